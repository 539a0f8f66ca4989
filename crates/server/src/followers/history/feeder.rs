//! The thread that feeds history from the journal.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bursar_engine::{Durable, Vital};
use bursar_history::{History, Sqlite};
use bursar_journal::{Head, Journal, StoredBatch};
use tokio::sync::watch;

use crate::followers::error::FollowerError;
use crate::telemetry::monotonic::Stopwatch;

/// The number of records taken in at once. Batches are never divided.
const CHUNK_RECORDS: u64 = 8192;

/// How long records that were taken in may stay uncommitted while more arrive and no query waits. A
/// page that changes repeatedly meanwhile is written once.
const COMMIT_INTERVAL: Duration = Duration::from_millis(500);

/// What the thread works with.
pub(super) struct Feeder {
    pub(super) journal: Arc<dyn Journal>,
    pub(super) history: History<Sqlite>,
    /// The last batch that queries can see.
    pub(super) kept: Head,
    pub(super) progress: watch::Sender<u64>,
    pub(super) pace: Duration,
    pub(super) waiting: Arc<AtomicUsize>,
}

impl Feeder {
    /// Feeds history until the writer ends.
    pub(super) fn run(mut self, durable: &Durable) {
        let _vital = Vital::new("the history follower");
        while let Err(reason) = self.begin(durable) {
            if durable.is_closed() {
                tracing::error!(%reason, "history cannot take in records");
                return;
            }
            // The store may come back.
            tracing::warn!(%reason, "history could not be fed; trying again");
            durable.pause(Duration::from_secs(1));
        }
        while durable.wait_beyond(self.kept.sequence) {
            if let Err(reason) = self.feed(durable) {
                tracing::warn!(%reason, "history could not be fed; trying again");
                durable.pause(Duration::from_secs(1));
            }
        }
    }

    /// Takes in durable records until no more arrive, a query waits or [`COMMIT_INTERVAL`] has passed.
    /// Then commits them.
    fn feed(&mut self, durable: &Durable) -> Result<(), FollowerError> {
        let begun = Stopwatch::start();
        let mut reached = self.kept;
        while let Some(until) = durable.head().filter(|head| head.sequence > reached.sequence) {
            reached = self.take_in(reached, until, &begun)?;
            if self.is_due(&begun) {
                break;
            }
            // A new waiting query ends the pause.
            std::thread::park_timeout(self.pace);
        }
        self.keep(reached)
    }

    fn is_due(&self, begun: &Stopwatch) -> bool {
        begun.elapsed() >= COMMIT_INTERVAL || self.waiting.load(Ordering::SeqCst) > 0
    }

    fn keep(&mut self, reached: Head) -> Result<(), FollowerError> {
        let position = self.history.keep()?;
        self.kept = reached;
        self.progress.send_replace(position);
        Ok(())
    }

    /// Finds the last batch whose records are all in history.
    fn begin(&mut self, durable: &Durable) -> Result<(), FollowerError> {
        durable.wait_beyond(0);
        let position = self.history.position()?;
        self.kept = self.journal.head_before(position + 1)?;
        Ok(())
    }

    /// Takes in the batches after one head up to another. Far behind, it commits on the way.
    fn take_in(
        &mut self,
        after: Head,
        until: Head,
        begun: &Stopwatch,
    ) -> Result<Head, FollowerError> {
        let mut reached = after;
        let (mut chunk, mut records) = (Vec::new(), 0);
        for batch in self.journal.read(after)? {
            let batch = batch?;
            if batch.sequence > until.sequence {
                break;
            }
            records += u64::from(batch.records);
            chunk.push(batch);
            if records >= CHUNK_RECORDS {
                reached = self.take_in_chunk(&mut chunk, reached)?;
                records = 0;
                if self.is_due(begun) {
                    self.keep(reached)?;
                }
            }
        }
        self.take_in_chunk(&mut chunk, reached)
    }

    fn take_in_chunk(
        &mut self,
        chunk: &mut Vec<StoredBatch>,
        before: Head,
    ) -> Result<Head, FollowerError> {
        let Some(last) = chunk.last().map(StoredBatch::head) else { return Ok(before) };
        self.history.take_in_batches(chunk)?;
        chunk.clear();
        Ok(last)
    }
}
