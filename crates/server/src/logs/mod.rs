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
use tokio::sync::{Semaphore, oneshot};

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
/// The most readings of output at once, each on a thread.
const MAX_READINGS: usize = 32;

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
enum WriterTask {
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
    writer: SyncSender<WriterTask>,
    readings: Arc<Semaphore>,
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
        let readings = Arc::new(Semaphore::new(MAX_READINGS));
        Ok(LogStore { files, gauges, writer, readings })
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
        self.send(WriterTask::Append { output, offset, data, done })?;
        answer.await.unwrap_or(Err(LogError::Busy))
    }

    /// Stores the end of the output that came with a report, unless there is output already.
    ///
    /// # Errors
    /// If too much waits to be written.
    pub fn tail(&self, output: Output, text: &str) -> Result<(), LogError> {
        let data = last(text, MAX_TAIL_BYTES).as_bytes().to_vec();
        self.send(WriterTask::Tail { output, data })
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
        self.send(WriterTask::Note { node, tenant, attempt: attempt.to_owned(), message })
    }

    fn send(&self, work: WriterTask) -> Result<(), LogError> {
        self.writer.try_send(work).map_err(|error| match error {
            TrySendError::Full(_) | TrySendError::Disconnected(_) => LogError::Busy,
        })
    }

    /// Reads files on a thread that may wait for the disk. Handlers have no other way to them.
    async fn reading<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Files) -> T + Send + 'static,
    ) -> std::io::Result<T> {
        let turn = Arc::clone(&self.readings).acquire_owned().await;
        let turn = turn.map_err(std::io::Error::other)?;
        let files = Arc::clone(&self.files);
        let read = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            read(&files)
        });
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
fn write(mut keeper: Keeper, limits: LogLimits, work: &Receiver<WriterTask>) {
    let mut meters = Meters::new(limits);
    let clock = Stopwatch::start();
    for work in work {
        let now = clock.elapsed();
        match work {
            WriterTask::Append { output, offset, data, done } => {
                let kept = meters.take(output.node, data.len(), now);
                let kept = kept.and_then(|()| keeper.append(&output, offset, &data));
                // The caller may have gone.
                let _gone = done.send(kept);
            }
            WriterTask::Tail { output, data } => {
                let kept = meters.take(output.node, data.len(), now);
                let kept = kept.and_then(|()| keeper.tail(&output, &data));
                warn(&output.attempt, kept);
            }
            WriterTask::Note { node, tenant, attempt, message } => {
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
mod tests;
