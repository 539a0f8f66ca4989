//! Moves sealed segments to another folder, also while a server has the journal open.
//!
//! A segment is copied, synced and read again in the new folder. Its place is then remembered
//! beside the journal, and only after that it is removed here, so it can always be read.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::files::beside;
use super::{failure, schema, segment_table};
use crate::chain::JournalId;
use crate::error::JournalError;
use crate::segment::{
    ArchiveFolder, ArchiveTotals, ArchivedSegment, Places, SegmentMark, archive_failed as failed,
    sync_folder,
};

/// Moves the sealed segments of the journal in `path` into a folder under `to`, but for the newest.
///
/// # Errors
/// Every segment can be read where it is remembered, and the next call continues.
pub fn archive(path: &Path, to: &Path) -> Result<ArchiveTotals, JournalError> {
    let (id, marks) = sealed_segments(path)?;
    let mut totals = ArchiveTotals::default();
    let Some((newest, older)) = marks.split_last() else { return Ok(totals) };
    let places = Places::of(path, id);
    let _alone = lock(path)?;
    let machine = path.file_stem().unwrap_or_default().to_string_lossy();
    let target = ArchiveFolder::make(to, &machine, id)?;
    let folder = target.path().to_owned();
    let mut archived = places.archived()?;
    for mark in older {
        let here = places.folder().join(mark.name());
        let known = archived.iter().any(|known| known.name == mark.name());
        if known && !here.exists() {
            totals.before += 1;
            continue;
        }
        // Named if it is missing or altered.
        let (place, segment) = places.find(mark)?;
        if place == here {
            target.store(mark, &segment)?;
            archived.retain(|known| known.name != mark.name() || known.folder != folder);
            archived.push(ArchivedSegment::at(mark, folder.clone()));
            archived.sort_by(|a, b| a.name.cmp(&b.name));
            places.write(archived.clone())?;
            fs::remove_file(&here).map_err(failed)?;
            sync_folder(Some(&places.folder())).map_err(failed)?;
            totals.moved += 1;
            totals.bytes += mark.bytes;
        }
    }
    totals.kept = u64::from(places.folder().join(newest.name()).exists());
    Ok(totals)
}

/// The identity of a journal and its segments, oldest first. Opens its file for reading only.
pub fn sealed_segments(path: &Path) -> Result<(JournalId, Vec<SegmentMark>), JournalError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(Duration::from_secs(5))?;
        Ok(connection)
    };
    let connection = open().map_err(|error: rusqlite::Error| failure("opening it", &error))?;
    let id = schema::read_identity(&connection)?;
    let marks = segment_table::read(&connection, id)?;
    Ok((id, marks))
}

/// Only one process archives a journal at a time.
fn lock(path: &Path) -> Result<File, JournalError> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600);
    let file = file.open(beside(path, ".archived.lock")).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let holder = "it archives segments".into();
            Err(JournalError::Locked { journal: path.display().to_string(), holder })
        }
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}
