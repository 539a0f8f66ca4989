//! Seals old batches into segments while the journal is in use.
//!
//! A segment is written beside the journal, synced, and read again. One small transaction then
//! lists it: from there on its batches are read from the segment and from nowhere else. Their rows
//! are deleted afterwards, a part at a time, so that the database is never busy for long. Whatever
//! is interrupted, the next sealing does again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use super::rows::Rows;
use super::{SqliteJournal, segment_table};
use crate::chain::Head;
use crate::error::{AppendError, JournalError};
use crate::segment::{Sealing, SegmentMark, SegmentWriter, altered, sync_folder, write_rows};

/// The bytes that are deleted from the database in one transaction.
const SLICE_BYTES: u64 = 1 << 20;

fn storage(error: io::Error) -> JournalError {
    JournalError::io("writing a segment", error)
}

fn refused(error: AppendError) -> JournalError {
    match error {
        AppendError::Corrupt(error) => error,
        AppendError::Full(reason) => JournalError::full("sealing a segment", reason),
        other => JournalError::storage("sealing a segment", other),
    }
}

/// A file that is written at its end by the same calls as the journal's other files, so that the
/// tests of failing disks reach them.
struct Extended {
    file: File,
    length: u64,
}

impl Write for Extended {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write_at(bytes, self.length)?;
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SqliteJournal {
    pub(super) fn seal_next(
        &self,
        sealing: &Sealing,
        going: &dyn Fn() -> bool,
    ) -> Result<Option<SegmentMark>, JournalError> {
        let _alone = self.sealing.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_running()?;
        self.discard_sealed(going)?;
        let Some(last) = self.due(sealing)? else { return Ok(None) };
        let folder = self.segments.store().folder();
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.and_then(|()| sync_folder(folder.parent())).map_err(storage)?;
        let temporary = folder.join("next.tmp");
        let written = self.write_segment(&temporary, last, sealing, going);
        let mark = match written {
            Ok(Some(mark)) => mark,
            other => {
                // Also after an error: a part of a segment is of no use, and needs space.
                let _ = fs::remove_file(&temporary);
                return other;
            }
        };
        fs::rename(&temporary, folder.join(mark.name())).map_err(storage)?;
        sync_folder(Some(&folder)).map_err(storage)?;
        self.read_back(&mark)?;
        self.check_running()?;
        {
            let mut database = self.database();
            database
                .change(|connection| segment_table::add(connection, self.id, &mark))
                .map_err(|trouble| refused(self.trouble(&mut database, trouble)))?;
            self.segments.add(mark);
        }
        self.discard_sealed(going)?;
        Ok(Some(mark))
    }

    /// The last batch of the next segment, if there are enough batches that no snapshot needs. A
    /// start reads the batch of its snapshot and all later ones, so these stay.
    fn due(&self, sealing: &Sealing) -> Result<Option<u64>, JournalError> {
        let oldest = self.snapshots.list()?.last().map_or(0, |mark| mark.sequence);
        let stored = {
            let newest = self.newest();
            newest.waiting.front().map_or(newest.head.sequence, |first| first.batch.sequence - 1)
        };
        let (after, until) = (self.segments.end().sequence, oldest.min(stored).saturating_sub(1));
        if until <= after || self.looked_until.load(Ordering::Relaxed) == until {
            return Ok(None);
        }
        let found = self.readers.with("looking for batches to seal", |connection| {
            segment_table::range_of(connection, (after, until), sealing.segment_bytes)
        })?;
        if found.is_none() {
            self.looked_until.store(until, Ordering::Relaxed);
        }
        Ok(found)
    }

    fn write_segment(
        &self,
        file: &Path,
        last: u64,
        sealing: &Sealing,
        going: &dyn Fn() -> bool,
    ) -> Result<Option<SegmentMark>, JournalError> {
        let continued = self.segments.continued()?;
        let before = continued.0;
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(file);
        let out = Extended { file: file.map_err(storage)?, length: 0 };
        let out = BufWriter::with_capacity(1 << 16, out);
        let writer = SegmentWriter::begin(out, self.id, continued, sealing.level)?;
        let mut rows = self.rows(before.sequence, last);
        let written = write_rows(writer, &mut rows, last, sealing.signer.as_ref(), going)?;
        let Some((out, mark)) = written else { return Ok(None) };
        let file = out.into_inner().map_err(|error| storage(error.into_error()))?.file;
        file.sync_all().map_err(storage)?;
        // The check that follows reads what the disk has.
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)
            .map_err(|error| JournalError::storage("dropping the page cache", error))?;
        Ok(Some(mark))
    }

    /// The rows of the database after `after`.
    fn rows(&self, after: u64, until: u64) -> Rows {
        let (readers, segments) = (Arc::clone(&self.readers), Arc::clone(&self.segments));
        Rows::new(readers, segments, after, until, std::collections::VecDeque::new())
    }

    /// Every batch of a new segment can be read from its file.
    fn read_back(&self, mark: &SegmentMark) -> Result<(), JournalError> {
        let segment = self.segments.store().open(mark)?;
        segment.check().map_err(|reason| altered(mark, reason))
    }

    /// Deletes the rows of sealed batches.
    fn discard_sealed(&self, going: &dyn Fn() -> bool) -> Result<(), JournalError> {
        let Head { sequence, .. } = self.segments.end();
        while sequence > 0 && going() {
            self.check_running()?;
            let mut database = self.database();
            let checkpoint_bytes = self.checkpoint_bytes();
            let deleted = database
                .discard(sequence, SLICE_BYTES, checkpoint_bytes)
                .map_err(|trouble| refused(self.trouble(&mut database, trouble)))?;
            drop(database);
            if deleted == 0 {
                break;
            }
            // Others wait for the database.
            std::thread::yield_now();
        }
        Ok(())
    }
}
