//! Moves sealed segments to another folder, also while a server has the journal open.
//!
//! A segment is copied, synced and read again in the new folder. Its place is then remembered
//! beside the journal, and only after that it is removed here, so it can always be read.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::files::beside;
use super::{failure, schema, segment_table};
use crate::chain::JournalId;
use crate::error::JournalError;
use crate::segment::{ArchivedSegment, OpenSegment, Places, SegmentMark, sync_folder};

/// What was archived.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveTotals {
    /// Segments that were moved.
    pub moved: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Segments that were archived before.
    pub before: u64,
    /// Segments that stay: the newest one, which the next one continues.
    pub kept: u64,
}

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
    let folder = target_folder(path, to, id)?;
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
            store(&folder, mark, &segment, id)?;
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

fn failed(error: io::Error) -> JournalError {
    JournalError::io("archiving a segment", error)
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

/// The folder of this journal under `to`. It has the journal's identity in its name, so several
/// stores may be archived into one folder.
fn target_folder(path: &Path, to: &Path, id: JournalId) -> Result<PathBuf, JournalError> {
    let machine = path.file_stem().unwrap_or_default().to_string_lossy();
    let to = std::path::absolute(to).map_err(failed)?;
    let folder = to.join(format!("{machine}-{id}"));
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.map_err(|error| {
        let (folder, reason) = (folder.display(), error.to_string());
        JournalError::Refused(format!("{folder}: the folder cannot be made: {reason}"))
    })?;
    sync_mounted(&to).map_err(failed)?;
    Ok(folder)
}

/// Writes a segment into the folder and reads it again. A file of its name that is not the segment
/// is a part of it, left when an earlier attempt ended: no file refers to it.
fn store(
    folder: &Path,
    mark: &SegmentMark,
    segment: &OpenSegment,
    id: JournalId,
) -> Result<(), JournalError> {
    let file = folder.join(mark.name());
    let is_there = |file: &Path| match fs::read(file) {
        Ok(bytes) => Ok(OpenSegment::open(bytes, id).is_ok_and(|stored| stored.mark() == mark)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed(error)),
    };
    if is_there(&file)? {
        return Ok(());
    }
    // Without a rename, which not every mounted bucket has.
    let mut options = OpenOptions::new();
    let out = options.write(true).create(true).truncate(true).mode(0o600).open(&file);
    let mut out = out.map_err(failed)?;
    out.write_all(segment.bytes()).and_then(|()| out.sync_all()).map_err(failed)?;
    drop(out);
    sync_mounted(folder).map_err(failed)?;
    if is_there(&file)? {
        return Ok(());
    }
    let file = file.display();
    Err(JournalError::Refused(format!(
        "{file}: what was written there cannot be read again. The segment stays where it was"
    )))
}

/// Syncs a folder. A mounted bucket may have no such call.
fn sync_mounted(folder: &Path) -> io::Result<()> {
    match sync_folder(Some(folder)) {
        Err(error)
            if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) =>
        {
            Ok(())
        }
        other => other,
    }
}
