//! A journal whose durable writes are measured.

use std::sync::Arc;
use std::time::Duration;

use bursar_journal::{
    AppendError, Batch, BatchReader, Epoch, Head, Journal, JournalError, JournalId, Lease,
    LeaseError, Pending, Snapshot, SnapshotMark,
};

use crate::monotonic::Stopwatch;

/// Told how long each durable write took.
pub type Observer = Box<dyn Fn(Duration) + Send + Sync>;

/// Passes everything on to a journal, and measures appends that are durable when they return.
pub struct TimedJournal {
    inner: Arc<dyn Journal>,
    observe: Observer,
}

impl TimedJournal {
    /// Measures `inner`.
    pub fn new(inner: Arc<dyn Journal>, observe: Observer) -> TimedJournal {
        TimedJournal { inner, observe }
    }
}

impl Journal for TimedJournal {
    fn id(&self) -> JournalId {
        self.inner.id()
    }

    fn head(&self) -> Result<Head, JournalError> {
        self.inner.head()
    }

    fn begin_append(&self, epoch: Epoch, expected: Head, batch: Batch) -> Pending {
        let watch = Stopwatch::start();
        let pending = self.inner.begin_append(epoch, expected, batch);
        if let Pending::Done(Ok(_)) = &pending {
            (self.observe)(watch.elapsed());
        }
        pending
    }

    fn pipeline_depth(&self) -> usize {
        self.inner.pipeline_depth()
    }

    fn tidy(&self) -> Result<(), AppendError> {
        self.inner.tidy()
    }

    fn read(&self, after: Head) -> Result<BatchReader, JournalError> {
        self.inner.read(after)
    }

    fn head_at(&self, sequence: u64) -> Result<Head, JournalError> {
        self.inner.head_at(sequence)
    }

    fn reopen(&self) -> Result<(), JournalError> {
        self.inner.reopen()
    }

    fn acquire_lease(&self, holder: &str, ttl: Duration) -> Result<Lease, LeaseError> {
        self.inner.acquire_lease(holder, ttl)
    }

    fn renew_lease(&self, lease: &Lease) -> Result<(), LeaseError> {
        self.inner.renew_lease(lease)
    }

    fn release_lease(&self, lease: &Lease) -> Result<(), LeaseError> {
        self.inner.release_lease(lease)
    }

    fn put_snapshot(&self, snapshot: &Snapshot) -> Result<(), JournalError> {
        self.inner.put_snapshot(snapshot)
    }

    fn list_snapshots(&self) -> Result<Vec<SnapshotMark>, JournalError> {
        self.inner.list_snapshots()
    }

    fn get_snapshot(&self, mark: SnapshotMark) -> Result<Snapshot, JournalError> {
        self.inner.get_snapshot(mark)
    }
}
