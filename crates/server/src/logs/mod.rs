//! The output of attempts, one file per node, and their final messages.
//!
//! All of it is limited: per attempt (the beginning is kept), per node (the least recently written
//! file is removed first), in total (the least recently written file of the tenant that has most is
//! removed first), by the rate at which a node sends, and by the amount that waits to be written.
//! When the file system has too little room, no more output is accepted: agents keep it and send it
//! later. Where output is incomplete, a file beside it has the reason. One thread writes; callers
//! never wait for a disk.

mod files;
mod index;
mod keeper;
mod lost;
mod meter;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use bursar_core::cell::NodeKey;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use self::files::Files;
use self::keeper::Keeper;
pub use self::lost::is_lost;
pub(crate) use self::lost::set_aside_lost;
use self::meter::Meters;
use crate::telemetry::monotonic::Stopwatch;

/// The most bytes that one request appends.
pub const MAX_PIECE_BYTES: usize = 1 << 20;
/// The most bytes of an agent's final message for an attempt.
pub const MAX_MESSAGE_BYTES: usize = 4 << 10;
/// The most bytes of output that are stored from a report.
pub const MAX_TAIL_BYTES: usize = 64 << 10;
/// The most pieces that wait to be written.
const MAX_QUEUED: usize = 64;

/// The `Retry-After` for output that finds no room, in seconds.
pub const FULL_RETRY_SECONDS: u64 = 30;

/// Limits on the size and rate of output.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogLimits {
    /// Bytes of one attempt's output on one node.
    pub attempt_bytes: u64,
    /// Bytes of all attempts on one node.
    pub node_bytes: u64,
    /// Bytes per second of one node.
    pub node_rate: u64,
    /// The burst of one node in bytes.
    pub node_burst: u64,
    /// Bytes of all tenants together.
    pub total_bytes: u64,
    /// Files of all tenants together: each output, final message and reason is one.
    pub files: u64,
    /// The free bytes that the file system must have for output to be accepted.
    pub min_free_bytes: u64,
}

impl Default for LogLimits {
    fn default() -> LogLimits {
        LogLimits {
            attempt_bytes: 16 << 20,
            node_bytes: 2 << 30,
            node_rate: 4 << 20,
            node_burst: 64 << 20,
            total_bytes: 32 << 30,
            files: 100_000,
            min_free_bytes: 512 << 20,
        }
    }
}

/// A short hash that stands for a name in file names.
fn tag(of: &str) -> u64 {
    let hash = blake3::hash(of.as_bytes());
    let [a, b, c, d, e, f, g, h, ..] = *hash.as_bytes();
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// A node in file names: a short hash of its region, owner and name.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeTag(u64);

/// A tenant in file names.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantTag(u64);

impl TenantTag {
    /// The tag of a tenant.
    pub fn of(tenant: &str) -> TenantTag {
        TenantTag(tag(tenant))
    }
}

impl NodeTag {
    /// The tag of a node.
    pub fn of(region: &str, node: &NodeKey) -> NodeTag {
        NodeTag::of_full(region, &node.full())
    }

    /// The tag of a node by its full name, as ledgers have it.
    pub fn of_full(region: &str, full: &str) -> NodeTag {
        // No region has a line break in its name.
        NodeTag(tag(&format!("{region}\n{full}")))
    }
}

/// The output of an attempt on one of its nodes.
#[derive(Clone, Debug)]
pub struct Output {
    /// The attempt's stored id.
    pub attempt: String,
    /// The rank of the node in the attempt.
    pub rank: u32,
    /// The node.
    pub node: NodeTag,
    /// The tenant whose job it is.
    pub tenant: TenantTag,
}

/// Why nothing was written.
#[derive(Debug)]
pub enum LogError {
    /// The node exceeds its rate. It may continue after this many seconds.
    TooFast(u64),
    /// Too much waits to be written.
    Busy,
    /// The file system has too little room left.
    NoRoom,
    /// Writing to the folder failed.
    Disk(std::io::Error),
}

impl std::fmt::Display for LogError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LogError::TooFast(seconds) => {
                write!(f, "the node sends output too fast; send on in {seconds} s")
            }
            LogError::Busy => f.write_str("too much output waits to be written; send it again"),
            LogError::NoRoom => write!(
                f,
                "the server's file system has too little room for output; keep it and send it again \
                 in {FULL_RETRY_SECONDS} s"
            ),
            LogError::Disk(error) => write!(f, "output was not kept: {error}"),
        }
    }
}

/// A task of the writer.
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
        tenant: TenantTag,
        attempt: String,
        message: String,
    },
}

/// The gauges of the writer.
#[derive(Debug, Default)]
struct Gauges {
    bytes: AtomicU64,
    files: AtomicU64,
    refused: AtomicU64,
    removed: AtomicU64,
    no_room: AtomicBool,
}

/// The size of the stored output, and counts of refused and removed output.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct LogStatus {
    /// Stored bytes.
    pub bytes: u64,
    /// Stored files.
    pub files: u64,
    /// Pieces that were refused because the file system had too little room.
    pub refused: u64,
    /// Files that were removed in favour of newer ones.
    pub removed: u64,
    /// Whether output is refused because the file system has too little room.
    pub no_room: bool,
}

/// Returns the free bytes on the file system of a folder.
pub type FreeSpace = Box<dyn Fn(&Path) -> std::io::Result<u64> + Send>;

/// The store of the output and final messages of attempts.
#[derive(Debug)]
pub struct LogStore {
    files: Arc<Files>,
    gauges: Arc<Gauges>,
    writer: SyncSender<Work>,
}

impl LogStore {
    /// Stores files in this folder, which is created with the first file.
    ///
    /// # Errors
    /// If the writer thread cannot be started.
    pub fn start(folder: PathBuf, limits: LogLimits) -> std::io::Result<LogStore> {
        LogStore::start_on(folder, limits, Box::new(keeper::free_space))
    }

    /// Like [`LogStore::start`], with a replaceable measurement of the free space.
    ///
    /// # Errors
    /// If the writer thread cannot be started.
    pub fn start_on(
        folder: PathBuf,
        limits: LogLimits,
        free: FreeSpace,
    ) -> std::io::Result<LogStore> {
        let files = Arc::new(Files::new(folder));
        let gauges = Arc::new(Gauges::default());
        let (writer, work) = sync_channel(MAX_QUEUED);
        let keeper = Keeper::new(Arc::clone(&files), Arc::clone(&gauges), limits, free);
        // The thread ends with the store and is not joined.
        let _unjoined = std::thread::Builder::new()
            .name("bursar-logs".into())
            .spawn(move || write(keeper, limits, &work))?;
        Ok(LogStore { files, gauges, writer })
    }

    /// The size of the stored output, and counts of refused and removed output.
    pub fn status(&self) -> LogStatus {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        LogStatus {
            bytes: read(&self.gauges.bytes),
            files: read(&self.gauges.files),
            refused: read(&self.gauges.refused),
            removed: read(&self.gauges.removed),
            no_room: self.gauges.no_room.load(Ordering::Relaxed),
        }
    }

    /// Appends output at `offset`; bytes that are already stored are not written again. Returns the
    /// offset of the next piece. Bytes beyond the limit of the attempt are accepted and dropped.
    ///
    /// # Errors
    /// If the node sends too fast, too much waits, or writing fails.
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

    /// Stores the end of the output that came with a report, unless there is output already.
    ///
    /// # Errors
    /// If too much waits to be written.
    pub fn tail(&self, output: Output, text: &str) -> Result<(), LogError> {
        let data = last(text, MAX_TAIL_BYTES).as_bytes().to_vec();
        self.send(Work::Tail { output, data })
    }

    /// Stores the final message of an agent for an attempt. The first message is kept.
    ///
    /// # Errors
    /// If too much waits to be written.
    pub fn note(
        &self,
        node: NodeTag,
        tenant: TenantTag,
        attempt: &str,
        text: &str,
    ) -> Result<(), LogError> {
        let message = first(text, MAX_MESSAGE_BYTES).to_owned();
        self.send(Work::Note { node, tenant, attempt: attempt.to_owned(), message })
    }

    fn send(&self, work: Work) -> Result<(), LogError> {
        self.writer.try_send(work).map_err(|error| match error {
            TrySendError::Full(_) | TrySendError::Disconnected(_) => LogError::Busy,
        })
    }

    /// Reads files on a thread that may wait for the disk. Handlers have no other way to them.
    async fn reading<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Files) -> T + Send + 'static,
    ) -> std::io::Result<T> {
        let files = Arc::clone(&self.files);
        let read = tokio::task::spawn_blocking(move || read(&files));
        read.await.map_err(std::io::Error::other)
    }

    /// A piece of the output from `offset` on; empty at its end.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn read(&self, output: &Output, offset: u64) -> std::io::Result<Vec<u8>> {
        let output = output.clone();
        self.reading(move |files| files.read(&output, offset)).await?
    }

    /// Why an output ends where it does, if it was cut off.
    pub async fn cut(&self, output: &Output) -> Option<String> {
        let output = output.clone();
        self.reading(move |files| files.cut(&output)).await.ok().flatten()
    }

    /// What was noted about the ends of attempts of a tenant, in their order.
    pub async fn messages(&self, attempts: Vec<String>, tenant: TenantTag) -> Vec<Option<String>> {
        let count = attempts.len();
        let read = move |files: &Files| {
            attempts.iter().map(|attempt| files.message(attempt, tenant)).collect()
        };
        self.reading(read).await.unwrap_or_else(|_| vec![None; count])
    }
}

/// Runs the writer until the store is dropped.
fn write(mut keeper: Keeper, limits: LogLimits, work: &Receiver<Work>) {
    let mut meters = Meters::new(limits);
    let clock = Stopwatch::start();
    for work in work {
        let now = clock.elapsed();
        match work {
            Work::Append { output, offset, data, done } => {
                let kept = meters.take(output.node, data.len(), now);
                let kept = kept.and_then(|()| keeper.append(&output, offset, &data));
                // The caller may have gone.
                let _gone = done.send(kept);
            }
            Work::Tail { output, data } => {
                let kept = meters.take(output.node, data.len(), now);
                let kept = kept.and_then(|()| keeper.tail(&output, &data));
                warn(&output.attempt, kept);
            }
            Work::Note { node, tenant, attempt, message } => {
                let kept = meters.take(node, message.len(), now);
                let kept = kept.and_then(|()| keeper.note(tenant, &attempt, &message));
                warn(&attempt, kept);
            }
        }
    }
}

fn warn(attempt: &str, kept: Result<(), LogError>) {
    if let Err(error) = kept {
        tracing::warn!(%error, attempt, "output or a message of an agent was not stored");
    }
}

/// The longest prefix of a text within `most` bytes.
fn first(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The longest suffix of a text within `most` bytes.
fn last(text: &str, most: usize) -> &str {
    let mut start = text.len().saturating_sub(most);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll};
    use std::time::Duration;

    use super::*;

    fn store(limits: LogLimits) -> (tempfile::TempDir, LogStore) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = LogStore::start(folder.path().join("logs"), limits).expect("a thread");
        (folder, store)
    }

    fn output(attempt: &str, rank: u32, node: &str) -> Output {
        let node = NodeTag::of("eu", &NodeKey::from(node));
        Output { attempt: attempt.to_owned(), rank, node, tenant: TenantTag::of("acme") }
    }

    async fn append(store: &LogStore, offset: u64, data: &[u8]) -> u64 {
        let appended = store.append(output("att_1", 0, "n1"), offset, data.to_vec());
        appended.await.expect("written")
    }

    async fn message(store: &LogStore, attempt: &str, tenant: &str) -> Option<String> {
        let found = store.messages(vec![attempt.to_owned()], TenantTag::of(tenant)).await;
        found.into_iter().next().flatten()
    }

    /// A pipe in place of a file is a disk that does not answer until something is written to it.
    #[tokio::test]
    async fn a_disk_that_does_not_answer_holds_up_no_thread_of_handlers() {
        let (folder, store) = store(LogLimits::default());
        let tenant = TenantTag::of("acme");
        let pipe =
            folder.path().join("logs").join(Files::message_of("att_1", tenant).expect("a name"));
        std::fs::create_dir_all(folder.path().join("logs")).expect("made");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("made");
        let (went_on, others) = std::sync::mpsc::channel::<()>();
        let writer = std::thread::spawn(move || {
            // Only to fail instead of hanging.
            let in_time = others.recv_timeout(Duration::from_secs(20)).is_ok();
            std::fs::write(pipe, if in_time { "in time" } else { "too late" })
        });
        let mut reading = Box::pin(store.messages(vec!["att_1".to_owned()], tenant));
        let look = |context: &mut Context<'_>| Poll::Ready(reading.as_mut().poll(context));
        let first = std::future::poll_fn(look).await;
        let _gone = went_on.send(());
        let read = match first {
            Poll::Ready(read) => read,
            Poll::Pending => reading.await,
        };
        assert_eq!(read, [Some("in time".to_owned())]);
        writer.join().expect("it ends").expect("written");
    }

    #[tokio::test]
    async fn a_repeated_piece_is_stored_once_and_a_gap_is_requested() {
        let (_folder, store) = store(LogLimits::default());
        assert_eq!(append(&store, 0, b"hello ").await, 6);
        assert_eq!(append(&store, 0, b"hello ").await, 6);
        assert_eq!(append(&store, 3, b"lo world").await, 11);
        assert_eq!(append(&store, 20, b"later").await, 11);
        let own = output("att_1", 0, "n1");
        assert_eq!(store.read(&own, 0).await.expect("read"), b"hello world");
        assert_eq!(store.read(&own, 6).await.expect("read"), b"world");
        assert_eq!(store.read(&output("att_2", 0, "n1"), 0).await.expect("read"), b"");
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
            assert_eq!(store.read(&own, 0).await.expect("read"), said.as_bytes());
        }
    }

    #[tokio::test]
    async fn output_beyond_the_limit_is_accepted_and_dropped() {
        let limits = LogLimits { attempt_bytes: 100, ..LogLimits::default() };
        let (_folder, store) = store(limits);
        assert_eq!(append(&store, 0, &[b'x'; 105]).await, 105);
        assert_eq!(append(&store, 105, b"more").await, 109);
        assert_eq!(store.read(&output("att_1", 0, "n1"), 0).await.expect("read").len(), 100);
    }

    #[tokio::test]
    async fn a_node_that_sends_too_fast_waits_and_others_do_not() {
        let limits = LogLimits { node_rate: 1, node_burst: 1000, ..LogLimits::default() };
        let (_folder, store) = store(limits);
        assert_eq!(append(&store, 0, &[b'x'; 1000]).await, 1000);
        let own = output("att_1", 0, "n1");
        let refused = store.append(own.clone(), 1000, vec![b'x'; 900]).await;
        assert!(matches!(refused, Err(LogError::TooFast(1..))), "{refused:?}");
        assert_eq!(store.read(&own, 1000).await.expect("read"), b"", "nothing of it was kept");
        let other = store.append(output("att_2", 0, "n2"), 0, vec![b'x'; 900]).await;
        assert_eq!(other.expect("another node"), 900);
    }

    #[tokio::test]
    async fn only_an_attempt_names_a_file_and_the_first_message_is_kept() {
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
            store.note(node, TenantTag::of("acme"), attempt, text).expect("queued");
        }
        // The writer keeps the order, so earlier work is done after this.
        append(&store, 0, b"x").await;
        assert_eq!(message(&store, "att_1", "acme").await.as_deref(), Some("out of memory"));
        let kept = message(&store, "att_2", "acme").await;
        assert_eq!(kept.map(|text| text.len()), Some(MAX_MESSAGE_BYTES));
        assert_eq!(message(&store, "att_1", "umbra").await, None);
    }

    #[tokio::test]
    async fn without_room_output_is_refused_and_the_reason_is_stored_until_there_is_room() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let free = Arc::new(AtomicU64::new(2 << 30));
        let said = Arc::clone(&free);
        let look: FreeSpace = Box::new(move |_| Ok(said.load(Ordering::SeqCst)));
        let store = LogStore::start_on(folder.path().join("logs"), LogLimits::default(), look);
        let store = store.expect("a thread");
        let own = output("att_1", 0, "n1");
        assert_eq!(append(&store, 0, b"before ").await, 7);
        free.store(1 << 20, Ordering::SeqCst);
        for _ in 0..3 {
            let refused = store.append(own.clone(), 7, b"after".to_vec()).await;
            assert!(matches!(refused, Err(LogError::NoRoom)), "{refused:?}");
        }
        let status = store.status();
        assert_eq!((status.refused, status.no_room), (3, true));
        assert!(store.cut(&own).await.is_some_and(|note| note.contains("too little room")));
        // What is there already can be asked for, and what an agent says of an end is dropped.
        assert_eq!(append(&store, 0, b"").await, 7);
        let tenant = TenantTag::of("acme");
        store.note(own.node, tenant, "att_1", "out of memory").expect("queued");
        append(&store, 0, b"").await;
        free.store(2 << 30, Ordering::SeqCst);
        assert_eq!(append(&store, 7, b"after").await, 12);
        assert_eq!(store.read(&own, 0).await.expect("read"), b"before after");
        assert_eq!(store.cut(&own).await, None);
        let status = store.status();
        assert_eq!((status.bytes, status.files, status.no_room), (12, 1, false));
    }

    #[tokio::test]
    async fn the_total_is_bounded_and_files_of_the_largest_tenant_are_removed_first() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let limits = LogLimits { total_bytes: 10_000, ..LogLimits::default() };
        let of = |tenant: &str, number: usize| Output {
            tenant: TenantTag::of(tenant),
            ..output(&format!("att_{tenant}{number:03}"), 0, &format!("n{number}"))
        };
        for start in 0..3 {
            // A restart counts the existing files.
            let store = LogStore::start(folder.path().join("logs"), limits).expect("a thread");
            if start == 0 {
                store.append(of("small", 0), 0, vec![b'x'; 900]).await.expect("written");
                let node = of("small", 0).node;
                let tenant = TenantTag::of("small");
                store.note(node, tenant, "att_small000", "out of memory").expect("queued");
            }
            for number in 0..50 {
                let own = of("large", 100 * start + number);
                store.append(own.clone(), 0, vec![b'x'; 500]).await.expect("written");
                store.note(own.node, own.tenant, &own.attempt, "killed").expect("queued");
                assert_eq!(
                    store.read(&own, 0).await.expect("read").len(),
                    500,
                    "the newest is there"
                );
            }
            // The writer keeps the order, so earlier work is done after this.
            store.append(of("large", 100 * start), 0, Vec::new()).await.expect("nothing");
            let status = store.status();
            assert!(status.bytes <= 10_000 && status.bytes > 8_000, "{status:?}");
            assert!(status.removed > 0);
            assert_eq!(store.read(&of("small", 0), 0).await.expect("read").len(), 900);
            let message = message(&store, "att_small000", "small").await;
            assert_eq!(message.as_deref(), Some("out of memory"));
            // Messages are removed with the output.
            let kept = std::fs::read_dir(folder.path().join("logs")).expect("a folder").count();
            assert!(kept < 60, "{kept} files");
        }
    }

    #[tokio::test]
    async fn output_beyond_the_limit_of_an_attempt_leaves_a_reason() {
        let limits = LogLimits { attempt_bytes: 100, ..LogLimits::default() };
        let (_folder, store) = store(limits);
        let own = output("att_1", 0, "n1");
        assert_eq!(append(&store, 0, &[b'x'; 100]).await, 100);
        assert_eq!(store.cut(&own).await, None);
        assert_eq!(append(&store, 100, b"more").await, 104);
        assert!(store.cut(&own).await.is_some_and(|note| note.contains("first 100 bytes")));
        assert_eq!(store.read(&own, 0).await.expect("read").len(), 100);
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!((first("aé", 2), first("aé", 3), first("", 3)), ("a", "aé", ""));
        assert_eq!((last("éa", 2), last("éa", 3), last("", 3)), ("a", "éa", ""));
    }
}
