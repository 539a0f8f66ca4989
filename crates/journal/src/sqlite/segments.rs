//! The sealed segments of an open journal.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bursar_core::digest::Digest;

use super::rows::ReaderPool;
use super::stored::head_in_database;
use crate::chain::{Head, JournalId, StoredBatch};
use crate::error::{JournalError, SegmentFault};
use crate::journal::checked_head;
use crate::merkle::Frontier;
use crate::segment::{OpenSegment, Places, SegmentMark, covering};

/// The list of segments, and the one that was read last.
pub(super) struct Segments {
    id: JournalId,
    places: Places,
    list: RwLock<Vec<SegmentMark>>,
    /// A search for a position reads one segment many times.
    opened: Mutex<Option<Arc<OpenSegment>>>,
}

impl Segments {
    /// `list` is what the database has.
    pub(super) fn new(path: &Path, id: JournalId, list: Vec<SegmentMark>) -> Segments {
        let (places, list) = (Places::of(path, id), RwLock::new(list));
        Segments { id, places, list, opened: Mutex::new(None) }
    }

    pub(super) fn places(&self) -> &Places {
        &self.places
    }

    /// Replaces the list, after the database was opened again.
    pub(super) fn replace(&self, list: Vec<SegmentMark>) {
        *self.list.write().unwrap_or_else(PoisonError::into_inner) = list;
    }

    pub(super) fn add(&self, mark: SegmentMark) {
        self.list.write().unwrap_or_else(PoisonError::into_inner).push(mark);
    }

    pub(super) fn list(&self) -> Vec<SegmentMark> {
        self.list.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn last(&self) -> Option<SegmentMark> {
        self.list.read().unwrap_or_else(PoisonError::into_inner).last().copied()
    }

    /// The first segment.
    pub(super) fn first(&self) -> Option<SegmentMark> {
        self.list.read().unwrap_or_else(PoisonError::into_inner).first().copied()
    }

    /// The end of the last segment.
    pub(super) fn end(&self) -> Head {
        self.last().map_or(Head::genesis(self.id), |mark| mark.end())
    }

    /// What the next segment continues: the end, the digest of the last segment, and the tree over
    /// all records up to there.
    pub(super) fn continued(&self) -> Result<(Head, Digest, Frontier), JournalError> {
        match self.last() {
            None => Ok((Head::genesis(self.id), Digest::default(), Frontier::new())),
            Some(last) => Ok((last.end(), last.digest, self.open(&last)?.tree().clone())),
        }
    }

    /// The segment that has this batch.
    pub(super) fn covering(&self, sequence: u64) -> Option<SegmentMark> {
        covering(&self.list.read().unwrap_or_else(PoisonError::into_inner), sequence)
    }

    /// Reads a segment and verifies its file, unless it is the one that was read last.
    pub(super) fn open(&self, mark: &SegmentMark) -> Result<Arc<OpenSegment>, JournalError> {
        let known = self.opened.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known.filter(|known| known.mark() == mark) {
            return Ok(known);
        }
        let segment = Arc::new(self.places.open(mark)?);
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&segment));
        Ok(segment)
    }

    /// The batch `sequence`, if it is sealed.
    pub(super) fn batch(&self, sequence: u64) -> Result<Option<StoredBatch>, JournalError> {
        let Some(mark) = self.covering(sequence) else { return Ok(None) };
        let segment = self.open(&mark)?;
        let mut batches =
            segment.batches_from(sequence).map_err(|reason| altered(&mark, reason))?;
        Ok(batches.pop_front())
    }

    /// The head at a batch that is in a segment or in the database.
    pub(super) fn head_at(
        &self,
        readers: &ReaderPool,
        sequence: u64,
    ) -> Result<Head, JournalError> {
        if let Some(mark) = self.covering(sequence) {
            return if mark.last == sequence { Ok(mark.end()) } else { self.sealed_head(sequence) };
        }
        match head_in_database(readers, self.id, sequence) {
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
pub(super) fn altered(mark: &SegmentMark, reason: String) -> JournalError {
    mark.error(SegmentFault::Altered { place: mark.name(), reason })
}
