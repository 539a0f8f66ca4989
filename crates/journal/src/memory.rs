//! A journal in memory whose disk fails on demand. For tests and the simulator.
//!
//! Clones share one disk, like processes that open the same store one after the other. A batch is
//! first *written* and then *synced*. [`MemoryJournal::crash`] is a power loss that keeps only
//! synced batches, or as many more as the test wants.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bursar_seeded::{Bug, seeded};

use crate::chain::{Epoch, Head, JournalId, StoredBatch};
use crate::error::{AppendError, JournalError, LeaseError};
use crate::journal::{BatchReader, Journal, Lease, Pending, RowSource};
use crate::record::Batch;
use crate::snapshot::{KEPT_SNAPSHOTS, Snapshot, SnapshotMark};

/// A fault of one append.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No space: refused before anything is written.
    Full,
    /// The outcome is unknown. Nothing was written.
    UnknownNotWritten,
    /// The outcome is unknown. Written but not synced, so a crash may lose it.
    UnknownNotSynced,
    /// The outcome is unknown. Written and synced.
    UnknownDurable,
}

/// The batches that a power loss leaves of those written and not synced.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Survivors {
    /// This many complete batches.
    pub whole: usize,
    /// And half of the next one, which the store must detect and drop.
    pub torn: bool,
}

#[derive(Debug)]
struct Disk {
    id: JournalId,
    rows: Vec<StoredBatch>,
    synced: usize,
    torn: Option<StoredBatch>,
    /// The head before the test changed the batches, as a head row on a disk would still have it.
    claimed: Option<Head>,
    epoch: Epoch,
    holder: Option<String>,
    appends: u64,
    faults: BTreeMap<u64, Fault>,
    held: bool,
    cut_off: bool,
    snapshots: Vec<(SnapshotMark, Vec<u8>)>,
}

#[derive(Debug)]
struct Shared {
    disk: Mutex<Disk>,
    released: Condvar,
}

/// A journal in memory: see the module documentation.
#[derive(Clone, Debug)]
pub struct MemoryJournal {
    id: JournalId,
    shared: Arc<Shared>,
}

impl MemoryJournal {
    /// An empty journal.
    pub fn new(id: JournalId) -> MemoryJournal {
        let disk = Disk {
            id,
            rows: Vec::new(),
            synced: 0,
            torn: None,
            claimed: None,
            epoch: Epoch(0),
            holder: None,
            appends: 0,
            faults: BTreeMap::new(),
            held: false,
            cut_off: false,
            snapshots: Vec::new(),
        };
        let shared = Shared { disk: Mutex::new(disk), released: Condvar::new() };
        MemoryJournal { id, shared: Arc::new(shared) }
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        // No holder of this lock leaves the disk inconsistent when it panics.
        self.shared.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the append after the next `skip` ones fail.
    pub fn inject(&self, skip: u64, fault: Fault) {
        let mut disk = self.disk();
        let number = disk.appends + skip;
        disk.faults.insert(number, fault);
    }

    /// Makes every append wait until [`MemoryJournal::release_appends`]: a slow disk.
    pub fn hold_appends(&self) {
        self.disk().held = true;
    }

    /// Ends [`MemoryJournal::hold_appends`].
    pub fn release_appends(&self) {
        self.disk().held = false;
        self.shared.released.notify_all();
    }

    /// Power loss. Follow with [`Journal::reopen`].
    pub fn crash(&self, survivors: Survivors) {
        let mut disk = self.disk();
        let keep = (disk.synced + survivors.whole).min(disk.rows.len());
        disk.torn = disk.rows.get(keep).filter(|_| survivors.torn).cloned().map(|mut row| {
            row.payload.truncate(row.payload.len() / 2);
            row
        });
        disk.rows.truncate(keep);
        disk.synced = keep;
        disk.held = false;
        self.shared.released.notify_all();
    }

    /// Makes every call about the lease and every reopening fail, as if the store does not answer.
    pub fn cut_off(&self, cut_off: bool) {
        self.disk().cut_off = cut_off;
    }

    /// Expires the lease.
    pub fn expire_lease(&self) {
        self.disk().holder = None;
    }

    /// How many appends were tried.
    pub fn appends(&self) -> u64 {
        self.disk().appends
    }

    /// Changes the stored batches without the journal. Its head is unchanged.
    pub fn tamper(&self, change: impl FnOnce(&mut Vec<StoredBatch>)) {
        let mut disk = self.disk();
        disk.claimed = Some(disk.head());
        change(&mut disk.rows);
    }

    /// Changes the bytes of the newest snapshot without the journal.
    pub fn tamper_snapshot(&self, change: impl FnOnce(&mut Vec<u8>)) {
        if let Some((_, bytes)) = self.disk().snapshots.last_mut() {
            change(bytes);
        }
    }

    fn try_append(&self, epoch: Epoch, expected: Head, batch: &Batch) -> Result<Head, AppendError> {
        let mut disk = self.disk();
        while disk.held {
            disk = self.shared.released.wait(disk).unwrap_or_else(PoisonError::into_inner);
        }
        let number = disk.appends;
        disk.appends += 1;
        let fault = disk.faults.remove(&number);
        if disk.torn.is_some() {
            return Err(AppendError::Unknown("the store crashed and was not reopened".into()));
        }
        if fault == Some(Fault::Full) {
            return Err(AppendError::Full("injected".into()));
        }
        if fault == Some(Fault::UnknownNotWritten) {
            return Err(AppendError::Unknown("injected, not written".into()));
        }
        let is_older = disk.epoch != epoch && !seeded(Bug::AppendsWithoutEpoch);
        if is_older || disk.head() != expected {
            return Err(AppendError::Fenced { epoch });
        }
        disk.rows.push(expected.followed_by(epoch, batch.clone()));
        if fault == Some(Fault::UnknownNotSynced) {
            return Err(AppendError::Unknown("injected, not synced".into()));
        }
        disk.synced = disk.rows.len();
        if fault == Some(Fault::UnknownDurable) {
            return Err(AppendError::Unknown("injected, durable".into()));
        }
        Ok(disk.head())
    }
}

impl Disk {
    fn reach(&self) -> Result<(), JournalError> {
        let unreachable = || JournalError::storage("reaching the store", "it does not answer");
        if self.cut_off { Err(unreachable()) } else { Ok(()) }
    }

    fn head(&self) -> Head {
        if let Some(claimed) = self.claimed {
            return claimed;
        }
        self.rows.last().map_or(Head::genesis(self.id), StoredBatch::head)
    }
}

impl Journal for MemoryJournal {
    fn id(&self) -> JournalId {
        self.id
    }

    fn head(&self) -> Result<Head, JournalError> {
        Ok(self.disk().head())
    }

    fn begin_append(&self, epoch: Epoch, expected: Head, batch: Batch) -> Pending {
        Pending::Done(self.try_append(epoch, expected, &batch))
    }

    fn read(&self, after: Head) -> Result<BatchReader, JournalError> {
        let until = self.disk().head();
        let next = usize::try_from(after.sequence).unwrap_or(usize::MAX);
        let source = Rows { journal: self.clone(), next };
        Ok(BatchReader::new(Box::new(source), after, until))
    }

    fn head_at(&self, sequence: u64) -> Result<Head, JournalError> {
        if sequence == 0 {
            return Ok(Head::genesis(self.id));
        }
        let index = usize::try_from(sequence).unwrap_or(usize::MAX) - 1;
        let row = self.disk().rows.get(index).cloned();
        crate::journal::checked_head(sequence, row)
    }

    fn reopen(&self) -> Result<(), JournalError> {
        let mut disk = self.disk();
        disk.reach()?;
        // A real store finds a torn batch by its checksum and drops it.
        disk.torn = None;
        Ok(())
    }

    fn acquire_lease(&self, holder: &str, ttl: Duration) -> Result<Lease, LeaseError> {
        let mut disk = self.disk();
        disk.reach()?;
        if let Some(other) = disk.holder.as_ref().filter(|other| *other != holder) {
            return Err(LeaseError::Held { holder: other.clone(), remaining_ms: 0 });
        }
        disk.epoch.0 += 1;
        disk.holder = Some(holder.to_owned());
        Ok(Lease { epoch: disk.epoch, holder: holder.to_owned(), ttl })
    }

    fn renew_lease(&self, lease: &Lease) -> Result<(), LeaseError> {
        let mut disk = self.disk();
        disk.reach()?;
        if disk.epoch != lease.epoch {
            return Err(LeaseError::Lost { epoch: lease.epoch });
        }
        disk.holder = Some(lease.holder.clone());
        Ok(())
    }

    fn release_lease(&self, lease: &Lease) -> Result<(), LeaseError> {
        let mut disk = self.disk();
        disk.reach()?;
        if disk.epoch != lease.epoch {
            return Err(LeaseError::Lost { epoch: lease.epoch });
        }
        disk.holder = None;
        Ok(())
    }

    fn put_snapshot(&self, snapshot: &Snapshot) -> Result<(), JournalError> {
        let mut disk = self.disk();
        let mark = snapshot.mark();
        disk.snapshots.retain(|(other, _)| *other != mark);
        disk.snapshots.push((mark, snapshot.encode(self.id)));
        disk.snapshots.sort_by_key(|(mark, _)| *mark);
        let excess = disk.snapshots.len().saturating_sub(KEPT_SNAPSHOTS);
        disk.snapshots.drain(..excess);
        Ok(())
    }

    fn list_snapshots(&self) -> Result<Vec<SnapshotMark>, JournalError> {
        Ok(self.disk().snapshots.iter().rev().map(|(mark, _)| *mark).collect())
    }

    fn get_snapshot(&self, mark: SnapshotMark) -> Result<Snapshot, JournalError> {
        let disk = self.disk();
        let Some((_, bytes)) = disk.snapshots.iter().find(|(other, _)| *other == mark) else {
            return Err(crate::journal::no_snapshot(mark));
        };
        Snapshot::decode(bytes, self.id, mark)
    }
}

struct Rows {
    journal: MemoryJournal,
    next: usize,
}

impl RowSource for Rows {
    fn next_row(&mut self) -> Result<Option<StoredBatch>, JournalError> {
        let row = self.journal.disk().rows.get(self.next).cloned();
        self.next += 1;
        Ok(row)
    }
}
