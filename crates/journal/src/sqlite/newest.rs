//! The newest batches of an open journal, which readers get from memory.

use std::collections::VecDeque;
use std::sync::Arc;

use super::tail::{OccupiedRange, Recovered, Tail, TailBatch};
use crate::chain::{Head, StoredBatch};
use crate::error::JournalError;

/// The state that readers see. Locked only for a read or a change of it.
pub(super) struct Newest {
    pub(super) head: Head,
    /// The batches that are not known to be in the database. The last one is the head.
    pub(super) waiting: VecDeque<TailBatch>,
    /// Where the newest frame of the tail is.
    pub(super) frame: Option<OccupiedRange>,
}

impl Newest {
    /// The state from the database and the tail.
    pub(super) fn recover(tail: &Tail, stored: Head) -> Result<Newest, JournalError> {
        let Recovered { waiting, frame, .. } = tail.recover(stored)?;
        let head = waiting.back().map_or(stored, |last| last.batch.head());
        Ok(Newest { head, waiting, frame })
    }

    /// The part of the tail that the waiting batches occupy.
    pub(super) fn occupied(&self) -> Option<OccupiedRange> {
        OccupiedRange::by(&self.waiting)
    }

    /// Adds a batch that is in the tail.
    pub(super) fn push(&mut self, added: TailBatch) {
        self.head = added.batch.head();
        self.frame = Some(OccupiedRange::from(&added));
        self.waiting.push_back(added);
    }

    /// How many of the waiting batches are up to `sequence`.
    pub(super) fn count_to(&self, sequence: u64) -> usize {
        let before = self.waiting.front().map_or(0, |first| first.batch.sequence - 1);
        let count = usize::try_from(sequence.saturating_sub(before)).unwrap_or(usize::MAX);
        count.min(self.waiting.len())
    }

    /// The waiting batches after `sequence`.
    pub(super) fn behind(&self, sequence: u64) -> VecDeque<Arc<StoredBatch>> {
        let behind = self.waiting.range(self.count_to(sequence)..);
        behind.map(|waiting| Arc::clone(&waiting.batch)).collect()
    }

    /// The batch `sequence`, if it waits.
    pub(super) fn batch(&self, sequence: u64) -> Option<Arc<StoredBatch>> {
        let last = self.count_to(sequence).checked_sub(1)?;
        let batch = &self.waiting.get(last)?.batch;
        (batch.sequence == sequence).then(|| Arc::clone(batch))
    }
}
