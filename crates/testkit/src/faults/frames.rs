//! Messages of PostgreSQL's protocol, as far as finding the append of a batch needs them.

use std::collections::BTreeSet;

/// What the text of the statement that appends a batch contains.
const APPEND_TEXTS: [&[u8]; 2] = [b"INSERT INTO bursar_batch", b"bursar_head"];

/// Cuts a stream into messages.
#[derive(Debug, Default)]
pub(super) struct FrameReader {
    pending: Vec<u8>,
    /// The first message of a client has no type.
    typed: bool,
}

impl FrameReader {
    pub(super) fn of_client() -> FrameReader {
        FrameReader::default()
    }

    pub(super) fn of_server() -> FrameReader {
        FrameReader { typed: true, ..FrameReader::default() }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// The next whole message.
    pub(super) fn next_frame(&mut self) -> Option<Vec<u8>> {
        let start = usize::from(self.typed);
        let length: [u8; 4] = self.pending.get(start..start + 4)?.try_into().ok()?;
        let end = start + u32::from_be_bytes(length) as usize;
        if self.pending.len() < end {
            return None;
        }
        self.typed = true;
        Some(self.pending.drain(..end).collect())
    }
}

/// What a client asked for on one connection.
#[derive(Debug, Default)]
pub(super) struct RequestReader {
    /// Prepared statements that append.
    appends: BTreeSet<Vec<u8>>,
    /// An append whose last message has not arrived.
    gathered: Vec<u8>,
    /// How many requests were complete.
    asked: u64,
}

/// What is passed on as one piece.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestPart {
    Other(Vec<u8>),
    /// A whole append; its answer is the one with this number.
    Append(Vec<u8>, u64),
}

impl RequestReader {
    /// Takes the next message.
    pub(super) fn take(&mut self, frame: Vec<u8>) -> Option<RequestPart> {
        let body = frame.get(5..).unwrap_or_default();
        match frame.first() {
            Some(b'P') => {
                let mut parts = body.split(|byte| *byte == 0);
                let name = parts.next().unwrap_or_default();
                let text = parts.next().unwrap_or_default();
                let contains = |part: &&[u8]| text.windows(part.len()).any(|found| found == *part);
                if APPEND_TEXTS.iter().all(contains) {
                    self.appends.insert(name.to_vec());
                } else {
                    self.appends.remove(name);
                }
            }
            Some(b'B') => {
                let name = body.split(|byte| *byte == 0).nth(1).unwrap_or_default();
                if self.appends.contains(name) {
                    self.gathered = frame;
                    return None;
                }
            }
            _ => {}
        }
        let ends = matches!(frame.first(), Some(b'S' | b'Q'));
        self.asked += u64::from(ends);
        if self.gathered.is_empty() {
            return Some(RequestPart::Other(frame));
        }
        self.gathered.extend(frame);
        ends.then(|| RequestPart::Append(std::mem::take(&mut self.gathered), self.asked))
    }
}

/// What a server answered on one connection.
#[derive(Debug, Default)]
pub(super) struct AnswerReader {
    /// How often it was ready for a request: once before the first one.
    ready: u64,
    gathered: Vec<u8>,
}

impl AnswerReader {
    /// Takes the next message. Gathers the answer with the number `wanted`, and returns it as one piece.
    pub(super) fn take(&mut self, frame: Vec<u8>, wanted: Option<u64>) -> (Vec<u8>, bool) {
        let is_wanted = wanted == Some(self.ready);
        let ends = frame.first() == Some(&b'Z');
        self.ready += u64::from(ends);
        if !is_wanted {
            return (frame, false);
        }
        self.gathered.extend(frame);
        if ends { (std::mem::take(&mut self.gathered), true) } else { (Vec::new(), false) }
    }
}
