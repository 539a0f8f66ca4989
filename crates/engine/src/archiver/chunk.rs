//! Entries of an archive that is being built. They are written in chunks.

use bursar_journal::JournalError;
use bursar_journal::archive::ArchiveEntry;

/// Entries that are written at once.
const BUILD_CHUNK: usize = 16_384;
/// Bytes of entries that are written at once, however few they are.
const BUILD_BYTES: usize = 16 << 20;

/// Entries that are put together. One batch may forget all that was in memory, so they do not wait for its end.
pub(super) struct Chunk<P> {
    entries: Vec<ArchiveEntry>,
    bytes: usize,
    put: P,
    failure: Option<JournalError>,
}

impl<P: Fn(&[ArchiveEntry]) -> Result<(), JournalError>> Chunk<P> {
    pub(super) fn new(put: P) -> Chunk<P> {
        Chunk { entries: Vec::new(), bytes: 0, put, failure: None }
    }

    /// Adds entries, and puts all if they are many. Does nothing after a failure.
    pub(super) fn add(&mut self, added: Vec<ArchiveEntry>) {
        if self.failure.is_some() {
            return;
        }
        self.bytes += added.iter().map(|entry| entry.value.len()).sum::<usize>();
        self.entries.extend(added);
        if self.entries.len() >= BUILD_CHUNK || self.bytes >= BUILD_BYTES {
            self.failure = (self.put)(&self.entries).err();
            self.entries.clear();
            self.bytes = 0;
        }
    }

    /// The failure of a put, if there was one.
    pub(super) fn check(&mut self) -> Result<(), JournalError> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// What was not put yet.
    pub(super) fn rest(self) -> Vec<ArchiveEntry> {
        self.entries
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use bursar_journal::archive::ArchiveFamily;

    use super::*;

    fn entries(count: usize, bytes: usize) -> Vec<ArchiveEntry> {
        let value = vec![0; bytes];
        let entry = ArchiveEntry { family: ArchiveFamily::Objects, key: vec![1], value, at: 0 };
        vec![entry; count]
    }

    #[test]
    fn what_one_batch_forgets_is_put_in_parts() {
        let put = RefCell::new(Vec::new());
        let is_full = Cell::new(false);
        let write = |entries: &[ArchiveEntry]| match is_full.get() {
            true => Err(JournalError::storage("writing", "no space")),
            false => {
                put.borrow_mut().push(entries.len());
                Ok(())
            }
        };
        let mut chunk = Chunk::new(write);
        for _ in 0..5 {
            chunk.add(entries(BUILD_CHUNK / 2, 1));
        }
        assert_eq!(*put.borrow(), [BUILD_CHUNK, BUILD_CHUNK]);
        assert_eq!(chunk.entries.len(), BUILD_CHUNK / 2);
        chunk.add(entries(1, BUILD_BYTES));
        assert_eq!((put.borrow().len(), chunk.entries.len()), (3, 0), "few large ones");
        is_full.set(true);
        chunk.add(entries(1, BUILD_BYTES));
        is_full.set(false);
        chunk.add(entries(1, BUILD_BYTES));
        chunk.check().expect_err("it is reported");
        assert_eq!(put.borrow().len(), 3, "nothing is put after a gap");
    }
}
