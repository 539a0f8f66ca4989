//! The interface of all journal stores.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use bursar_core::time::Timestamp;

use crate::chain::{Chain, Epoch, Head, JournalId, StoredBatch};
use crate::error::{AppendError, JournalError, LeaseError, SegmentFault};
use crate::record::{Batch, RecordError};
use crate::segment::{OpenSegment, Sealing, SegmentMark};
use crate::snapshot::{Snapshot, SnapshotMark};

/// The journal of one machine. All methods may be called from any thread. They block.
pub trait Journal: Send + Sync + 'static {
    /// The identity of this journal.
    fn id(&self) -> JournalId;

    /// The last stored batch.
    fn head(&self) -> Result<Head, JournalError>;

    /// Starts to append `batch` after `expected`, as the owner of `epoch`. Several appends may be
    /// in progress, up to [`Journal::pipeline_depth`], each expecting the head that the one before
    /// it will leave. They are written in the order of these calls or not at all.
    fn begin_append(&self, epoch: Epoch, expected: Head, batch: Batch) -> Pending;

    /// Appends `batch` and waits until it is durable.
    ///
    /// # Errors
    /// See [`AppendError`]. After [`AppendError::Unknown`] call [`Journal::reopen`] and read again.
    fn append(&self, epoch: Epoch, expected: Head, batch: Batch) -> Result<Head, AppendError> {
        self.begin_append(epoch, expected, batch).wait()
    }

    /// How many appends may be in progress at once.
    fn pipeline_depth(&self) -> usize {
        1
    }

    /// How urgently [`Journal::compact`] is needed. Called after every append, so it must be cheap.
    fn maintenance_urgency(&self) -> MaintenanceUrgency {
        MaintenanceUrgency::None
    }

    /// Does maintenance that should not delay an answer. Called by another thread while appends
    /// continue.
    ///
    /// # Errors
    /// [`AppendError::Full`] if it must wait for space, which delays no append for a while;
    /// [`AppendError::Unknown`] if the store can no longer be trusted to keep its data.
    fn compact(&self) -> Result<(), AppendError> {
        Ok(())
    }

    /// Moves the oldest batches that no snapshot needs into one sealed segment, if there are enough
    /// of them, and returns it. Called by a thread of its own while appends continue. Ends early,
    /// with nothing changed, once `going` returns false.
    ///
    /// # Errors
    /// The batches are where they were, and the next call tries again.
    fn seal(
        &self,
        _sealing: &Sealing,
        _going: &dyn Fn() -> bool,
    ) -> Result<Option<SegmentMark>, JournalError> {
        Ok(None)
    }

    /// The time of the first record, if there is one.
    fn began_at(&self) -> Result<Option<Timestamp>, JournalError> {
        first_record_at(self)
    }

    /// The sealed segments, oldest first.
    fn sealed_segments(&self) -> Result<Vec<SegmentMark>, JournalError> {
        Ok(Vec::new())
    }

    /// Reads a sealed segment and verifies its checksum.
    ///
    /// # Errors
    /// [`JournalError::Segment`] with the name and the range of a missing or altered one.
    fn read_segment(&self, mark: &SegmentMark) -> Result<OpenSegment, JournalError> {
        let places = "this store, which has no segments".into();
        Err(mark.error(SegmentFault::Missing { places }))
    }

    /// Reads all batches after `after`, verified, up to the head at the time of this call.
    ///
    /// # Errors
    /// The reader yields [`JournalError::Corrupt`] with the first bad batch and then ends.
    fn read(&self, after: Head) -> Result<BatchReader, JournalError>;

    /// The head after batch `sequence`, checked against its content. 0 is the genesis.
    fn head_at(&self, sequence: u64) -> Result<Head, JournalError>;

    /// The head after the last batch that ends before the record at `position`, by binary search.
    fn head_before(&self, position: u64) -> Result<Head, JournalError> {
        self.head_before_from(Head::genesis(self.id()), position)
    }

    /// The same head, searched after a head that ends before `position`. It reads no batch before that head, which may
    /// be in segments that are away.
    fn head_before_from(&self, low: Head, position: u64) -> Result<Head, JournalError> {
        let mut low = low;
        let mut high = self.head()?.sequence;
        while low.sequence < high {
            let middle = low.sequence + (high - low.sequence).div_ceil(2);
            let head = self.head_at(middle)?;
            if head.position < position {
                low = head;
            } else {
                high = middle - 1;
            }
        }
        Ok(low)
    }

    /// Closes everything and starts again from the stored data.
    fn reopen(&self) -> Result<(), JournalError>;

    /// Why appends cannot succeed before [`Journal::reopen`], if that is already known. Called
    /// several times a second while nothing is appended, so it must be cheap.
    fn must_reopen(&self) -> Option<String> {
        None
    }

    /// Whether the next reads only follow the journal. A store that does not answer them soon is read later, so that
    /// they delay no takeover.
    fn set_following(&self, _following: bool) {}

    /// Takes over the journal: from now on only the returned epoch may append.
    fn acquire_lease(&self, holder: &str, ttl: Duration) -> Result<Lease, LeaseError>;

    /// Renews a lease for another `ttl`, counted by the store, if the store may still be trusted.
    ///
    /// # Errors
    /// [`JournalError::Unfit`] if the store may lose acknowledged data. The owner then steps down.
    fn renew_lease(&self, lease: &Lease) -> Result<(), LeaseError>;

    /// Releases a lease, so that the next owner need not wait.
    fn release_lease(&self, lease: &Lease) -> Result<(), LeaseError>;

    /// Stores a snapshot durably and deletes all but the newest two.
    fn put_snapshot(&self, snapshot: &Snapshot) -> Result<(), JournalError>;

    /// The stored snapshots, newest first. Not verified.
    fn list_snapshots(&self) -> Result<Vec<SnapshotMark>, JournalError>;

    /// Reads and verifies a snapshot.
    ///
    /// # Errors
    /// [`JournalError::Damaged`] if it is not the stored snapshot. Use an older one.
    fn get_snapshot(&self, mark: SnapshotMark) -> Result<Snapshot, JournalError>;
}

/// How urgent it is to call [`Journal::compact`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MaintenanceUrgency {
    /// Nothing to do.
    None,
    /// Some work, which can wait a moment in which more may come.
    Soon,
    /// Due at once. Otherwise appends will have to wait for it.
    Now,
}

/// The right to append under one epoch, for a limited time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The epoch to append under.
    pub epoch: Epoch,
    /// The name of the holder.
    pub holder: String,
    /// How long the store keeps it without a renewal.
    pub ttl: Duration,
}

/// An append in progress.
#[derive(Debug)]
pub enum Pending {
    /// Already completed.
    Done(Result<Head, AppendError>),
    /// Completed by another thread.
    Waiting(Receiver<Result<Head, AppendError>>),
}

impl Pending {
    /// Waits for the outcome.
    pub fn wait(self) -> Result<Head, AppendError> {
        match self {
            Pending::Done(outcome) => outcome,
            Pending::Waiting(outcome) => outcome.recv().unwrap_or_else(|_| {
                Err(AppendError::Unknown("the connection to the store ended".into()))
            }),
        }
    }
}

/// The source of a [`BatchReader`]'s rows. The rows may be wrong in any way: the reader verifies
/// them.
pub trait RowSource: Send {
    /// The next row in order of sequence, if there is one.
    fn next_row(&mut self) -> Result<Option<StoredBatch>, JournalError>;
}

/// Verified batches, in order. Ends at the head it was opened with, or at the first bad batch.
pub struct BatchReader {
    source: Box<dyn RowSource>,
    chain: Chain,
    until: Head,
    failed: bool,
}

impl BatchReader {
    /// Reads the batches after `after` from `source`. They must end at `until`.
    pub fn new(source: Box<dyn RowSource>, after: Head, until: Head) -> BatchReader {
        BatchReader { source, chain: Chain::from(after), until, failed: false }
    }

    /// The last verified batch.
    pub fn head(&self) -> Head {
        self.chain.head()
    }

    fn verified(&mut self) -> Result<StoredBatch, JournalError> {
        let sequence = self.chain.head().sequence + 1;
        let Some(batch) = self.source.next_row()? else {
            let reason = format!("it is missing; the journal's head is {}", self.until.sequence);
            return Err(JournalError::Corrupt { sequence, reason });
        };
        self.chain.accept(&batch)?;
        if sequence == self.until.sequence && self.chain.head() != self.until {
            let reason = "it is not the batch that the journal's head names".into();
            return Err(JournalError::Corrupt { sequence, reason });
        }
        Ok(batch)
    }
}

impl Iterator for BatchReader {
    type Item = Result<StoredBatch, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.chain.head().sequence >= self.until.sequence {
            return None;
        }
        let batch = self.verified();
        self.failed = batch.is_err();
        Some(batch)
    }
}

/// The time of a journal's first record, if there is one.
pub(crate) fn first_record_at<J: Journal + ?Sized>(
    journal: &J,
) -> Result<Option<Timestamp>, JournalError> {
    let first = journal.read(Head::genesis(journal.id()))?.next().transpose()?;
    Ok(first.as_ref().map(first_time).transpose()?)
}

/// The time of the first record of a batch.
pub(crate) fn first_time(batch: &StoredBatch) -> Result<Timestamp, RecordError> {
    match batch.frames().next() {
        Some(record) => record.map(|record| record.time),
        // Every batch has a record. A reader that finds none reports it.
        None => Ok(batch.time),
    }
}

/// The head after `row`, if it is batch `sequence` and matches its own hash.
pub(crate) fn checked_head(sequence: u64, row: Option<StoredBatch>) -> Result<Head, JournalError> {
    let corrupt = |reason: &str| JournalError::Corrupt { sequence, reason: reason.into() };
    let row = row.ok_or_else(|| corrupt("it is missing"))?;
    if row.sequence != sequence || row.computed_hash() != row.hash {
        return Err(corrupt("its content does not match its hash"));
    }
    Ok(row.head())
}

pub(crate) fn no_snapshot(mark: SnapshotMark) -> JournalError {
    let reason = format!("at batch {}: it is missing", mark.sequence);
    JournalError::Damaged { part: "snapshot", reason }
}
