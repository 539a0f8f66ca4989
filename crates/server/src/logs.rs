//! The output of attempts, one file for each of their nodes, and their last words.
//!
//! All of it is bounded: by attempt (the beginning is kept), by node (the oldest files of a node go
//! first), by the rate at which a node sends, and by what waits to be written. One thread writes;
//! whoever asks it never waits for a disk.

mod files;
mod meter;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use bursar_core::cell::NodeKey;
use tokio::sync::oneshot;

use self::files::Files;
use self::meter::Meters;
use crate::monotonic::Stopwatch;

/// The most that one request adds.
pub const MAX_PIECE_BYTES: usize = 1 << 20;
/// The most that is kept of what an agent says about the end of an attempt.
pub const MAX_MESSAGE_BYTES: usize = 4 << 10;
/// The most that is kept of the output that comes along with a report.
pub const MAX_TAIL_BYTES: usize = 64 << 10;
/// How many pieces wait to be written.
const MAX_QUEUED: usize = 64;

/// How much is kept, and how fast it may come.
#[derive(Copy, Clone, Debug)]
pub struct LogLimits {
    /// Of one attempt's output on one node.
    pub attempt_bytes: u64,
    /// Of all attempts on one node.
    pub node_bytes: u64,
    /// Bytes per second of one node.
    pub node_rate: u64,
    /// Bytes that one node may send at once.
    pub node_burst: u64,
}

impl Default for LogLimits {
    fn default() -> LogLimits {
        LogLimits {
            attempt_bytes: 16 << 20,
            node_bytes: 2 << 30,
            node_rate: 4 << 20,
            node_burst: 64 << 20,
        }
    }
}

/// A node as the names of its files have it: its region, owner and name in a few digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeTag(String);

impl NodeTag {
    /// The tag of a node.
    pub fn of(region: &str, node: &NodeKey) -> NodeTag {
        NodeTag::of_full(region, &node.full())
    }

    /// The tag of a node by its name with its owner, as ledgers know it.
    pub fn of_full(region: &str, full: &str) -> NodeTag {
        // No region has a line break in its name.
        let hash = blake3::hash(format!("{region}\n{full}").as_bytes());
        NodeTag(hash.to_hex()[..16].to_owned())
    }
}

/// The output of an attempt on one of its nodes.
#[derive(Clone, Debug)]
pub struct Output {
    /// The attempt, as it is stored.
    pub attempt: String,
    /// The place of the node among those of the attempt.
    pub rank: u32,
    /// The node.
    pub node: NodeTag,
}

/// Why nothing was written.
#[derive(Debug)]
pub enum LogError {
    /// The node sends faster than it may. It may go on after so many seconds.
    TooFast(u64),
    /// Too much waits to be written.
    Busy,
    /// The folder does not take it.
    Disk(std::io::Error),
}

impl std::fmt::Display for LogError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LogError::TooFast(seconds) => {
                write!(f, "the node sends output too fast; send on in {seconds} s")
            }
            LogError::Busy => f.write_str("too much output waits to be written; send it again"),
            LogError::Disk(error) => write!(f, "output was not kept: {error}"),
        }
    }
}

/// What the writer is asked to do.
enum Work {
    Append {
        output: Output,
        offset: u64,
        data: Vec<u8>,
        done: oneshot::Sender<Result<u64, LogError>>,
    },
    Tail {
        output: Output,
        data: Vec<u8>,
    },
    Note {
        node: NodeTag,
        attempt: String,
        message: String,
    },
}

/// What is kept of attempts beside the ledger: their output and their last words.
#[derive(Debug)]
pub struct LogStore {
    files: Arc<Files>,
    writer: SyncSender<Work>,
}

impl LogStore {
    /// Keeps files in this folder, made when the first one is written.
    ///
    /// # Errors
    /// If the thread that writes cannot be started.
    pub fn start(folder: PathBuf, limits: LogLimits) -> std::io::Result<LogStore> {
        let files = Arc::new(Files::new(folder));
        let (writer, work) = sync_channel(MAX_QUEUED);
        let own = Arc::clone(&files);
        // It ends with the store; there is nothing to join it for.
        let _unjoined = std::thread::Builder::new()
            .name("bursar-logs".into())
            .spawn(move || write(&own, limits, &work))?;
        Ok(LogStore { files, writer })
    }

    /// Adds output that belongs at `offset`; what is there already is not written again. Says where
    /// the next piece belongs. What is beyond the bound of the attempt is taken and dropped.
    ///
    /// # Errors
    /// If the node sends too fast, too much waits, or the disk does not take it.
    pub async fn append(
        &self,
        output: Output,
        offset: u64,
        data: Vec<u8>,
    ) -> Result<u64, LogError> {
        let (done, answer) = oneshot::channel();
        self.send(Work::Append { output, offset, data, done })?;
        answer.await.unwrap_or(Err(LogError::Busy))
    }

    /// Keeps the end of the output that came with a report, unless there is output already.
    ///
    /// # Errors
    /// If too much waits to be written.
    pub fn tail(&self, output: Output, text: &str) -> Result<(), LogError> {
        let data = last(text, MAX_TAIL_BYTES).as_bytes().to_vec();
        self.send(Work::Tail { output, data })
    }

    /// Keeps what an agent had to say about the end of an attempt; the first word counts.
    ///
    /// # Errors
    /// If too much waits to be written.
    pub fn note(&self, node: NodeTag, attempt: &str, text: &str) -> Result<(), LogError> {
        let message = first(text, MAX_MESSAGE_BYTES).to_owned();
        self.send(Work::Note { node, attempt: attempt.to_owned(), message })
    }

    fn send(&self, work: Work) -> Result<(), LogError> {
        self.writer.try_send(work).map_err(|error| match error {
            TrySendError::Full(_) | TrySendError::Disconnected(_) => LogError::Busy,
        })
    }

    /// A piece of the output from `offset` on; empty at its end.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(&self, output: &Output, offset: u64) -> std::io::Result<Vec<u8>> {
        self.files.read(output, offset)
    }

    /// What was noted about the end of an attempt.
    pub fn message(&self, attempt: &str) -> Option<String> {
        self.files.message(attempt)
    }
}

/// Writes what comes until the store goes away.
fn write(files: &Files, limits: LogLimits, work: &Receiver<Work>) {
    let mut meters = Meters::new(limits);
    let mut totals = None;
    let clock = Stopwatch::start();
    for work in work {
        let now = clock.elapsed();
        match work {
            Work::Append { output, offset, data, done } => {
                let kept = meters.take(&output.node, data.len(), now).and_then(|()| {
                    let kept = files.append(&output, offset, &data, &limits, &mut totals);
                    kept.map_err(LogError::Disk)
                });
                // Whoever asked may have gone away.
                let _gone = done.send(kept);
            }
            Work::Tail { output, data } => {
                let kept = meters.take(&output.node, data.len(), now).and_then(|()| {
                    if files.len(&output) > 0 {
                        return Ok(());
                    }
                    let kept = files.append(&output, 0, &data, &limits, &mut totals);
                    kept.map(drop).map_err(LogError::Disk)
                });
                warn(&output.attempt, kept);
            }
            Work::Note { node, attempt, message } => {
                let kept = meters.take(&node, message.len(), now);
                let kept =
                    kept.and_then(|()| files.note(&attempt, &message).map_err(LogError::Disk));
                warn(&attempt, kept);
            }
        }
    }
}

fn warn(attempt: &str, kept: Result<(), LogError>) {
    if let Err(error) = kept {
        tracing::warn!(%error, attempt, "what the agent said was not kept");
    }
}

/// The beginning of a text, no longer than so many bytes.
fn first(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The end of a text, no longer than so many bytes.
fn last(text: &str, most: usize) -> &str {
    let mut start = text.len().saturating_sub(most);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(limits: LogLimits) -> (tempfile::TempDir, LogStore) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = LogStore::start(folder.path().join("logs"), limits).expect("a thread");
        (folder, store)
    }

    fn output(attempt: &str, rank: u32, node: &str) -> Output {
        let node = NodeTag::of("eu", &NodeKey::from(node));
        Output { attempt: attempt.to_owned(), rank, node }
    }

    async fn append(store: &LogStore, offset: u64, data: &[u8]) -> u64 {
        let appended = store.append(output("att_1", 0, "n1"), offset, data.to_vec());
        appended.await.expect("written")
    }

    #[tokio::test]
    async fn a_piece_that_is_sent_twice_is_kept_once_and_a_gap_is_asked_for() {
        let (_folder, store) = store(LogLimits::default());
        assert_eq!(append(&store, 0, b"hello ").await, 6);
        assert_eq!(append(&store, 0, b"hello ").await, 6);
        assert_eq!(append(&store, 3, b"lo world").await, 11);
        assert_eq!(append(&store, 20, b"later").await, 11);
        let own = output("att_1", 0, "n1");
        assert_eq!(store.read(&own, 0).expect("read"), b"hello world");
        assert_eq!(store.read(&own, 6).expect("read"), b"world");
        assert_eq!(store.read(&output("att_2", 0, "n1"), 0).expect("read"), b"");
    }

    #[tokio::test]
    async fn each_node_of_a_gang_has_its_own_output() {
        let (_folder, store) = store(LogLimits::default());
        for (rank, said) in [(1, "one"), (0, "zero"), (12, "twelve")] {
            let own = output("att_1", rank, &format!("n{rank}"));
            store.append(own, 0, said.as_bytes().to_vec()).await.expect("written");
        }
        for (rank, said) in [(0, "zero"), (1, "one"), (12, "twelve"), (2, "")] {
            let own = output("att_1", rank, &format!("n{rank}"));
            assert_eq!(store.read(&own, 0).expect("read"), said.as_bytes());
        }
    }

    #[tokio::test]
    async fn what_is_beyond_the_bound_is_taken_and_dropped() {
        let limits = LogLimits { attempt_bytes: 100, ..LogLimits::default() };
        let (_folder, store) = store(limits);
        assert_eq!(append(&store, 0, &[b'x'; 105]).await, 105);
        assert_eq!(append(&store, 105, b"more").await, 109);
        assert_eq!(store.read(&output("att_1", 0, "n1"), 0).expect("read").len(), 100);
    }

    #[tokio::test]
    async fn a_node_that_sends_too_fast_waits_and_others_do_not() {
        let limits = LogLimits { node_rate: 1, node_burst: 1000, ..LogLimits::default() };
        let (_folder, store) = store(limits);
        assert_eq!(append(&store, 0, &[b'x'; 1000]).await, 1000);
        let own = output("att_1", 0, "n1");
        let refused = store.append(own.clone(), 1000, vec![b'x'; 900]).await;
        assert!(matches!(refused, Err(LogError::TooFast(1..))), "{refused:?}");
        assert_eq!(store.read(&own, 1000).expect("read"), b"", "nothing of it was kept");
        let other = store.append(output("att_2", 0, "n2"), 0, vec![b'x'; 900]).await;
        assert_eq!(other.expect("another node"), 900);
    }

    #[tokio::test]
    async fn only_an_attempt_names_a_file_and_the_first_word_counts() {
        let (folder, store) = store(LogLimits::default());
        for wrong in ["../att_1", "att_/x", "", "job_1", "att_1.0"] {
            let refused = store.append(output(wrong, 0, "n1"), 0, b"x".to_vec()).await;
            assert!(refused.is_err(), "{wrong}");
        }
        assert!(!folder.path().join("logs").exists(), "nothing was made for them");
        let node = NodeTag::of("eu", &NodeKey::from("n1"));
        let long = "é".repeat(MAX_MESSAGE_BYTES);
        for (attempt, text) in
            [("att_1", "out of memory"), ("att_1", "another word"), ("att_2", long.as_str())]
        {
            store.note(node.clone(), attempt, text).expect("queued");
        }
        // What was asked for before this is written before it.
        append(&store, 0, b"x").await;
        assert_eq!(store.message("att_1").as_deref(), Some("out of memory"));
        assert_eq!(store.message("att_2").map(|text| text.len()), Some(MAX_MESSAGE_BYTES));
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!((first("aé", 2), first("aé", 3), first("", 3)), ("a", "aé", ""));
        assert_eq!((last("éa", 2), last("éa", 3), last("", 3)), ("a", "éa", ""));
    }
}
