//! A cache of the newest batches for followers, which would otherwise read from the store what was
//! just written.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bursar_core::time::Timestamp;

use crate::chain::{Epoch, Head, JournalId, StoredBatch};
use crate::error::{AppendError, JournalError, LeaseError};
use crate::journal::{BatchReader, Journal, Lease, MaintenanceUrgency, Pending, RowSource};
use crate::record::Batch;
use crate::segment::{OpenSegment, Sealing, SegmentMark};
use crate::snapshot::{Snapshot, SnapshotMark};

/// Bytes of payload that are kept.
const MAX_BYTES: usize = 4 << 20;

/// A journal that caches its last appends. Other batches are read from the store, and only batches
/// that the store has acknowledged are cached. A caller that must check whether the store still has
/// a batch, for a proof or a verification, reads the store itself.
pub struct Recent {
    store: Arc<dyn Journal>,
    kept: Mutex<Kept>,
}

/// Consecutive batches, the last of which is the journal's head.
#[derive(Default)]
struct Kept {
    batches: VecDeque<Arc<StoredBatch>>,
    bytes: usize,
}

impl Kept {
    fn push(&mut self, batch: StoredBatch) {
        if self.batches.back().is_some_and(|last| last.hash != batch.previous) {
            *self = Kept::default();
        }
        self.bytes += batch.payload.len();
        self.batches.push_back(Arc::new(batch));
        while self.bytes > MAX_BYTES {
            let Some(oldest) = self.batches.pop_front() else { break };
            self.bytes -= oldest.payload.len();
        }
    }

    /// The batches after `after`, if all of them are cached.
    fn behind(&self, after: Head) -> Option<VecDeque<Arc<StoredBatch>>> {
        let first = self.batches.front()?.sequence;
        let place = usize::try_from((after.sequence + 1).checked_sub(first)?).ok()?;
        let next = self.batches.get(place)?;
        (next.previous == after.hash).then(|| self.batches.range(place..).cloned().collect())
    }
}

impl Recent {
    /// Caches the appends to `store` from now on.
    pub fn new(store: Arc<dyn Journal>) -> Recent {
        Recent { store, kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Nothing that holds this lock can panic half way.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget(&self) {
        *self.kept() = Kept::default();
    }
}

/// Batches from the cache.
struct Remembered(VecDeque<Arc<StoredBatch>>);

impl RowSource for Remembered {
    fn next_row(&mut self) -> Result<Option<StoredBatch>, JournalError> {
        Ok(self.0.pop_front().map(Arc::unwrap_or_clone))
    }
}

impl Journal for Recent {
    fn id(&self) -> JournalId {
        self.store.id()
    }

    fn head(&self) -> Result<Head, JournalError> {
        self.store.head()
    }

    fn begin_append(&self, epoch: Epoch, expected: Head, batch: Batch) -> Pending {
        let mut stored = StoredBatch {
            sequence: expected.sequence + 1,
            first_position: expected.position + 1,
            records: batch.records(),
            epoch,
            time: batch.time(),
            payload: batch.payload().to_vec(),
            previous: expected.hash,
            hash: expected.hash,
        };
        let pending = self.store.begin_append(epoch, expected, batch);
        match &pending {
            Pending::Done(Ok(head)) => {
                stored.hash = head.hash;
                self.kept().push(stored);
            }
            // The append failed or another thread completes it, so the next reads use the store.
            Pending::Done(Err(_)) | Pending::Waiting(_) => self.forget(),
        }
        pending
    }

    fn set_following(&self, following: bool) {
        self.store.set_following(following);
    }

    fn pipeline_depth(&self) -> usize {
        self.store.pipeline_depth()
    }

    fn maintenance_urgency(&self) -> MaintenanceUrgency {
        self.store.maintenance_urgency()
    }

    fn compact(&self) -> Result<(), AppendError> {
        self.store.compact()
    }

    fn seal(
        &self,
        sealing: &Sealing,
        going: &dyn Fn() -> bool,
    ) -> Result<Option<SegmentMark>, JournalError> {
        self.store.seal(sealing, going)
    }

    fn sealed_segments(&self) -> Result<Vec<SegmentMark>, JournalError> {
        self.store.sealed_segments()
    }

    fn read_segment(&self, mark: &SegmentMark) -> Result<OpenSegment, JournalError> {
        self.store.read_segment(mark)
    }

    fn began_at(&self) -> Result<Option<Timestamp>, JournalError> {
        self.store.began_at()
    }

    fn read(&self, after: Head) -> Result<BatchReader, JournalError> {
        let remembered = self.kept().behind(after);
        match remembered.as_ref().and_then(VecDeque::back).map(|last| last.head()) {
            Some(until) => {
                let source = Remembered(remembered.unwrap_or_default());
                Ok(BatchReader::new(Box::new(source), after, until))
            }
            None => self.store.read(after),
        }
    }

    fn head_at(&self, sequence: u64) -> Result<Head, JournalError> {
        self.store.head_at(sequence)
    }

    fn reopen(&self) -> Result<(), JournalError> {
        self.forget();
        self.store.reopen()
    }

    fn must_reopen(&self) -> Option<String> {
        self.store.must_reopen()
    }

    fn acquire_lease(&self, holder: &str, ttl: Duration) -> Result<Lease, LeaseError> {
        self.forget();
        self.store.acquire_lease(holder, ttl)
    }

    fn renew_lease(&self, lease: &Lease) -> Result<(), LeaseError> {
        self.store.renew_lease(lease)
    }

    fn release_lease(&self, lease: &Lease) -> Result<(), LeaseError> {
        self.store.release_lease(lease)
    }

    fn put_snapshot(&self, snapshot: &Snapshot) -> Result<(), JournalError> {
        self.store.put_snapshot(snapshot)
    }

    fn list_snapshots(&self) -> Result<Vec<SnapshotMark>, JournalError> {
        self.store.list_snapshots()
    }

    fn get_snapshot(&self, mark: SnapshotMark) -> Result<Snapshot, JournalError> {
        self.store.get_snapshot(mark)
    }
}
