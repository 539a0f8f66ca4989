//! The sealed segments of an open journal.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bursar_core::digest::Digest;

use super::{OpenSegment, Places, SegmentDamage, SegmentMark, covering};
use crate::chain::{Head, JournalId, StoredBatch};
use crate::error::{JournalError, SegmentFault};
use crate::journal::checked_head;
use crate::merkle::Frontier;

/// Where the bytes of segments are.
pub(crate) trait SegmentStore {
    /// Reads a segment and verifies its checksum.
    fn load(&self, mark: &SegmentMark) -> Result<OpenSegment, JournalError>;
}

impl SegmentStore for Places {
    fn load(&self, mark: &SegmentMark) -> Result<OpenSegment, JournalError> {
        self.open(mark)
    }
}

/// The list of segments, and the one that was read last.
pub(crate) struct Segments<S> {
    id: JournalId,
    store: S,
    list: RwLock<Vec<SegmentMark>>,
    /// A search for a position reads one segment many times.
    opened: Mutex<Option<Arc<OpenSegment>>>,
}

impl<S: SegmentStore> Segments<S> {
    /// `list` is what the database has.
    pub(crate) fn new(store: S, id: JournalId, list: Vec<SegmentMark>) -> Segments<S> {
        Segments { id, store, list: RwLock::new(list), opened: Mutex::new(None) }
    }

    pub(crate) fn id(&self) -> JournalId {
        self.id
    }

    pub(crate) fn store(&self) -> &S {
        &self.store
    }

    /// Replaces the list, after the database was opened again.
    pub(crate) fn replace(&self, list: Vec<SegmentMark>) {
        *self.list.write().unwrap_or_else(PoisonError::into_inner) = list;
    }

    pub(crate) fn add(&self, mark: SegmentMark) {
        self.list.write().unwrap_or_else(PoisonError::into_inner).push(mark);
    }

    pub(crate) fn list(&self) -> Vec<SegmentMark> {
        self.list.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn last(&self) -> Option<SegmentMark> {
        self.list.read().unwrap_or_else(PoisonError::into_inner).last().copied()
    }

    /// The first segment.
    pub(crate) fn first(&self) -> Option<SegmentMark> {
        self.list.read().unwrap_or_else(PoisonError::into_inner).first().copied()
    }

    /// The end of the last segment.
    pub(crate) fn end(&self) -> Head {
        self.last().map_or(Head::genesis(self.id), |mark| mark.end())
    }

    /// What the next segment continues: the end, the digest of the last segment, and the tree over
    /// all records up to there.
    pub(crate) fn continued(&self) -> Result<(Head, Digest, Frontier), JournalError> {
        match self.last() {
            None => Ok((Head::genesis(self.id), Digest::default(), Frontier::new())),
            Some(last) => Ok((last.end(), last.digest, self.open(&last)?.tree().clone())),
        }
    }

    /// The segment that has this batch.
    pub(crate) fn covering(&self, sequence: u64) -> Option<SegmentMark> {
        covering(&self.list.read().unwrap_or_else(PoisonError::into_inner), sequence)
    }

    /// Reads a segment and verifies its file, unless it is the one that was read last.
    pub(crate) fn open(&self, mark: &SegmentMark) -> Result<Arc<OpenSegment>, JournalError> {
        let known = self.opened.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known.filter(|known| known.mark() == mark) {
            return Ok(known);
        }
        let segment = Arc::new(self.store.load(mark)?);
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&segment));
        Ok(segment)
    }

    /// The batch `sequence`, if it is sealed.
    pub(crate) fn batch(&self, sequence: u64) -> Result<Option<StoredBatch>, JournalError> {
        let Some(mark) = self.covering(sequence) else { return Ok(None) };
        let segment = self.open(&mark)?;
        let mut batches =
            segment.batches_from(sequence).map_err(|reason| altered(&mark, reason))?;
        Ok(batches.pop_front())
    }

    /// The batches of a segment from `next` on to the end of a block, but none after `until`.
    pub(crate) fn batches(
        &self,
        mark: &SegmentMark,
        next: u64,
        until: u64,
    ) -> Result<VecDeque<StoredBatch>, JournalError> {
        let segment = self.open(mark)?;
        let mut batches = segment.batches_from(next).map_err(|reason| altered(mark, reason))?;
        let beyond = batches.iter().rev().take_while(|row| row.sequence > until).count();
        batches.truncate(batches.len() - beyond);
        Ok(batches)
    }

    /// The head at a batch that is in a segment, or in the database, where `stored` looks.
    pub(crate) fn head_at(
        &self,
        sequence: u64,
        stored: impl FnOnce() -> Result<Head, JournalError>,
    ) -> Result<Head, JournalError> {
        if let Some(mark) = self.covering(sequence) {
            return if mark.last == sequence { Ok(mark.end()) } else { self.sealed_head(sequence) };
        }
        match stored() {
            // It was sealed meanwhile.
            Err(JournalError::Corrupt { .. }) if self.covering(sequence).is_some() => {
                self.sealed_head(sequence)
            }
            found => found,
        }
    }

    fn sealed_head(&self, sequence: u64) -> Result<Head, JournalError> {
        checked_head(sequence, self.batch(sequence)?)
    }
}

/// The error of a segment whose content does not match, although its checksum does.
pub(crate) fn altered(mark: &SegmentMark, reason: SegmentDamage) -> JournalError {
    mark.error(SegmentFault::Altered { place: mark.name(), reason })
}
