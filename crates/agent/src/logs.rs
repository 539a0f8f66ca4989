//! Sends the output of attempts to the server, in order, from the offset that the server has.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bursar_api::nodes::node::LogChunk;
use bursar_client::{ClientError, nodes};

use crate::attempt::output;
use crate::folder::AttemptFolder;
use crate::servers::Servers;

/// The most bytes that are sent at once.
const MAX_CHUNK_BYTES: usize = 256 * 1024;

/// The most pieces of one attempt that are sent before other attempts have their turn.
const MAX_PIECES: usize = 16;

/// How much output of an attempt was sent.
#[derive(Copy, Clone, Debug)]
struct Sent {
    /// The offset of the next byte on the node.
    local: u64,
    /// The offset of the next byte on the server. It is smaller if bytes were lost before they were sent.
    remote: u64,
}

impl Sent {
    /// Records that `bytes` were sent and the server expects `next`. A server that has less than was
    /// sent lost bytes and receives them again; one that claims more is ignored.
    fn advance(&mut self, bytes: u64, next: u64) {
        let expected = self.remote.saturating_add(bytes);
        let next = next.min(expected);
        self.local = self.local.saturating_add(bytes).saturating_sub(expected - next);
        self.remote = next;
    }
}

/// Sends the output of the attempts of a node.
#[derive(Debug)]
pub struct LogShipper {
    servers: Servers,
    node: String,
    sent: BTreeMap<String, Sent>,
}

impl LogShipper {
    /// Sends to the server in use, for a node.
    pub fn new(servers: Servers, node: String) -> LogShipper {
        LogShipper { servers, node, sent: BTreeMap::new() }
    }

    /// Sends all output of an attempt so far. The server stores one stream for each
    /// node of a job.
    pub async fn ship(
        &mut self,
        incarnation: u32,
        attempt: &str,
        place: &AttemptFolder,
    ) -> Result<(), ClientError> {
        let folder = place.path();
        let mut sent = match self.sent.get(attempt) {
            Some(sent) => *sent,
            None if output::read(folder, 0, 1).is_ok_and(|(_, bytes)| bytes.is_empty()) => {
                return Ok(());
            }
            None => {
                // An earlier start of this agent may have sent output.
                let next = self.send(incarnation, attempt, 0, &[]).await?;
                Sent { local: next, remote: next }
            }
        };
        for _ in 0..MAX_PIECES {
            // Output that cannot be read now cannot be read later either.
            let (start, bytes) =
                output::read(folder, sent.local, MAX_CHUNK_BYTES).unwrap_or_default();
            if bytes.is_empty() {
                break;
            }
            if start > sent.local {
                let note = format!("\n[{} bytes of output were lost here]\n", start - sent.local);
                sent.remote = self.send(incarnation, attempt, sent.remote, note.as_bytes()).await?;
                sent.local = start;
            }
            let next = self.send(incarnation, attempt, sent.remote, &bytes).await?;
            sent.advance(bytes.len() as u64, next);
            self.sent.insert(attempt.to_owned(), sent);
        }
        self.sent.insert(attempt.to_owned(), sent);
        Ok(())
    }

    /// Forgets an attempt.
    pub fn forget(&mut self, attempt: &str) {
        self.sent.remove(attempt);
    }

    async fn send(
        &self,
        incarnation: u32,
        attempt: &str,
        offset: u64,
        bytes: &[u8],
    ) -> Result<u64, ClientError> {
        let chunk = LogChunk {
            incarnation,
            attempt: attempt.to_owned(),
            offset,
            data: STANDARD.encode(bytes),
        };
        let kept = self.servers.chosen().client.send(nodes::send_log(&self.node, &chunk)).await?;
        Ok(kept.value.next_offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_answer_of_the_server_corrupts_the_offsets() {
        let at = |local, remote| Sent { local, remote };
        for (sent, bytes, next, local, remote) in [
            (at(100, 90), 10, 100, 110, 100),
            (at(100, 90), 10, 95, 105, 95),
            (at(100, 90), 10, 0, 10, 0),
            (at(100, 90), 10, u64::MAX, 110, 100),
            (at(u64::MAX, u64::MAX), 10, u64::MAX, u64::MAX, u64::MAX),
            (at(5, 90), 10, 0, 0, 0),
        ] {
            let mut after = sent;
            after.advance(bytes, next);
            assert_eq!((after.local, after.remote), (local, remote), "{sent:?} {bytes} {next}");
        }
    }
}
