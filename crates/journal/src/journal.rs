//! What every back end does.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use crate::chain::{Chain, Epoch, Head, JournalId, StoredBatch};
use crate::error::{AppendError, JournalError, LeaseError};
use crate::record::Batch;
use crate::snapshot::{Snapshot, SnapshotMark};

/// The journal of one machine. All methods may be called from any thread; they block.
pub trait Journal: Send + Sync + 'static {
    /// Which journal this is.
    fn id(&self) -> JournalId;

    /// The last batch that is stored.
    fn head(&self) -> Result<Head, JournalError>;

    /// Starts to append `batch` behind `expected`, as the owner of `epoch`. Several may be under way
    /// at once, up to [`Journal::pipeline_depth`], each expecting the head that the one before it
    /// will leave; they are written in the order of these calls or not at all.
    fn begin_append(&self, epoch: Epoch, expected: Head, batch: Batch) -> Pending;

    /// Appends `batch` and waits until it is durable.
    ///
    /// # Errors
    /// See [`AppendError`]; after [`AppendError::Unknown`] call [`Journal::reopen`] and read again.
    fn append(&self, epoch: Epoch, expected: Head, batch: Batch) -> Result<Head, AppendError> {
        self.begin_append(epoch, expected, batch).wait()
    }

    /// How many appends may be under way at once.
    fn pipeline_depth(&self) -> usize {
        1
    }

    /// How much [`Journal::tidy`] has to do. Asked after every append, so it costs nothing.
    fn untidiness(&self) -> Untidiness {
        Untidiness::None
    }

    /// Housekeeping that should not delay an answer; called while appends go on, by another thread.
    ///
    /// # Errors
    /// [`AppendError::Full`] if it must wait for space, which nobody notices for a while;
    /// [`AppendError::Unknown`] if the store can no longer be trusted to keep what it has.
    fn tidy(&self) -> Result<(), AppendError> {
        Ok(())
    }

    /// Reads all batches behind `after`, verified, up to the head at the time of this call.
    ///
    /// # Errors
    /// The reader yields [`JournalError::Corrupt`] with the first bad batch and then ends.
    fn read(&self, after: Head) -> Result<BatchReader, JournalError>;

    /// The head that batch `sequence` left, checked against its own content; 0 is the genesis.
    fn head_at(&self, sequence: u64) -> Result<Head, JournalError>;

    /// Drops whatever is open and starts again from what the store holds.
    fn reopen(&self) -> Result<(), JournalError>;

    /// Why appends cannot go through before [`Journal::reopen`], if that is known already. Asked
    /// several times a second while nothing is appended, so it costs nothing.
    fn must_reopen(&self) -> Option<String> {
        None
    }

    /// Takes the journal over: from now on only the returned epoch may append.
    fn acquire_lease(&self, holder: &str, ttl: Duration) -> Result<Lease, LeaseError>;

    /// Keeps a lease for another `ttl`, counted by the store, if the store may still be trusted.
    ///
    /// # Errors
    /// [`JournalError::Unfit`] if the store may lose what it acknowledges: the owner steps down.
    fn renew_lease(&self, lease: &Lease) -> Result<(), LeaseError>;

    /// Gives a lease back, so that the next owner need not wait.
    fn release_lease(&self, lease: &Lease) -> Result<(), LeaseError>;

    /// Stores a snapshot, durably, and forgets all but the newest two.
    fn put_snapshot(&self, snapshot: &Snapshot) -> Result<(), JournalError>;

    /// What snapshots there are, newest first. Nothing is checked yet.
    fn list_snapshots(&self) -> Result<Vec<SnapshotMark>, JournalError>;

    /// Reads a snapshot and checks it.
    ///
    /// # Errors
    /// [`JournalError::Damaged`] if it is not what was put: use an older one.
    fn get_snapshot(&self, mark: SnapshotMark) -> Result<Snapshot, JournalError>;
}

/// How urgent it is to call [`Journal::tidy`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Untidiness {
    /// There is nothing to do.
    None,
    /// There is something; it can wait for a moment in which more may come.
    Some,
    /// It should be done at once, or appends will have to wait for it.
    Much,
}

/// The right to append under one epoch, for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The epoch to append under.
    pub epoch: Epoch,
    /// Who asked for it.
    pub holder: String,
    /// How long the store keeps it without renewal.
    pub ttl: Duration,
}

/// An append under way.
#[derive(Debug)]
pub enum Pending {
    /// Already decided.
    Done(Result<Head, AppendError>),
    /// Decided by another thread.
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

/// Where a [`BatchReader`] gets its rows from: any order of trouble, checked by the reader.
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
    /// Reads from `source` what lies behind `after`, which must end at `until`.
    pub fn new(source: Box<dyn RowSource>, after: Head, until: Head) -> BatchReader {
        BatchReader { source, chain: Chain::from(after), until, failed: false }
    }

    /// The last batch that was verified.
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

/// The head that `row` leaves if it is batch `sequence` and matches its own hash.
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
