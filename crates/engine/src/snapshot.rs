//! Snapshots, made from a copy of the state that follows the journal. The writer never waits for
//! them.

use std::sync::Arc;

use bursar_core::machine::Machine;
use bursar_journal::{Head, Journal, Record, Snapshot};

use crate::codec::Codec;
use crate::error::ReplayError;
use crate::follower::Projection;
use crate::replay::replay;
use crate::writer::observer::{Observer, Trouble};

/// A projection that is the machine's own state and stores it as a snapshot at intervals.
pub struct Snapshotter<C: Codec> {
    journal: Arc<dyn Journal>,
    codec: Arc<C>,
    machine: C::Machine,
    head: Head,
    pace: SnapshotPace,
    observer: Observer,
}

/// When the next snapshot is due: after a number of records, and after more of them if the state is
/// large. Snapshots then never cost more than [`BYTES_A_RECORD`] for each record, whatever the size
/// of the state.
#[derive(Copy, Clone, Debug)]
pub struct SnapshotPace {
    every: u64,
    last: u64,
    bytes: u64,
}

/// The bytes of snapshot allowed for each record since the previous snapshot: about half of the
/// size of the record. A start then reads a snapshot and at most about as many bytes of journal
/// after it.
const BYTES_A_RECORD: u64 = 128;

impl SnapshotPace {
    /// Counts from the last stored snapshot. There are at least `every` records between two
    /// snapshots.
    pub fn new(every: u64, last: u64) -> SnapshotPace {
        SnapshotPace { every: every.max(1), last, bytes: 0 }
    }

    /// Whether a snapshot is due at `position`.
    pub fn is_due(&self, position: u64) -> bool {
        let records = self.every.max(self.bytes / BYTES_A_RECORD);
        position >= self.last.saturating_add(records)
    }

    /// Records that a snapshot of `bytes` bytes was made.
    pub fn made(&mut self, position: u64, bytes: usize) {
        self.last = position;
        self.bytes = bytes as u64;
    }
}

impl<C: Codec> Snapshotter<C> {
    /// Starts at the current end of the journal. Makes a snapshot after at least `every` records.
    pub fn new(
        journal: Arc<dyn Journal>,
        codec: Arc<C>,
        every: u64,
    ) -> Result<Snapshotter<C>, ReplayError> {
        let replayed = replay(&*journal, &*codec)?;
        let last = journal.head_at(replayed.snapshot)?.position;
        let (machine, head) = (replayed.machine, replayed.head);
        let pace = SnapshotPace::new(every, last);
        let observer = Observer::default();
        Ok(Snapshotter { journal, codec, machine, head, pace, observer })
    }

    /// Reports snapshots that could not be stored to `observer`.
    #[must_use]
    pub fn observed(mut self, observer: Observer) -> Snapshotter<C> {
        self.observer = observer;
        self
    }

    /// Stores a snapshot now.
    pub fn put(&mut self) -> Result<(), ReplayError> {
        let state = self.codec.encode_state(&self.machine);
        // Also if storing fails: without a snapshot the next start takes longer, nothing else.
        self.pace.made(self.head.position, state.len());
        self.journal.put_snapshot(&Snapshot { head: self.head, state })?;
        Ok(())
    }
}

impl<C: Codec> Projection<C::Machine> for Snapshotter<C> {
    fn head(&self) -> Head {
        self.head
    }

    fn record(&mut self, record: &Record<'_>, events: &[<C::Machine as Machine>::Event]) {
        for event in events {
            self.machine.apply(record.time, event);
        }
    }

    fn batch(&mut self, head: Head) {
        self.head = head;
        if self.pace.is_due(head.position) {
            // After a failure the next snapshot is tried after another interval.
            if let Err(error) = self.put() {
                self.observer.trouble(Trouble::NoSnapshot(error));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_state_is_stored_less_often() {
        let mut pace = SnapshotPace::new(100, 50);
        assert!(!pace.is_due(149) && pace.is_due(150));
        pace.made(150, 10_000);
        assert!(
            !pace.is_due(249) && pace.is_due(250),
            "eighty records would be enough for its size"
        );
        pace.made(250, 128_000);
        assert!(!pace.is_due(1249) && pace.is_due(1250));
        pace.made(u64::MAX - 5, 0);
        assert!(pace.is_due(u64::MAX), "a snapshot is due at the last position");
    }
}
