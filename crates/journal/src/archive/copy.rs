//! Copies of an archive's file, for backups.

use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::{ArchiveMark, ArchiveTables, SqliteTables};
use crate::chain::{Head, JournalId};
use crate::error::JournalError;
use crate::journal::Journal;

/// Pages that are copied in one step.
const STEP_PAGES: i32 = 1024;

/// Copies an archive into one new file, as of one instant, also while a server writes to it.
///
/// # Errors
/// A file could not be read or written, or the target exists.
pub fn copy_archive(archive: &Path, target: &Path) -> Result<(), JournalError> {
    let failed = |error: rusqlite::Error| JournalError::storage("copying the archive", error);
    let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(target);
    made.map_err(|error| JournalError::storage("copying the archive", error))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let copy = || {
        let from = Connection::open_with_flags(archive, flags)?;
        from.busy_timeout(Duration::from_secs(5))?;
        // One read transaction, so that later writes do not begin the copy anew.
        from.execute_batch("BEGIN; SELECT position FROM mark")?;
        let mut to = Connection::open(target)?;
        let backup = Backup::new(&from, &mut to)?;
        loop {
            match backup.step(STEP_PAGES)? {
                StepResult::Done => return Ok(()),
                StepResult::More => {}
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    };
    copy().map_err(failed)
}

/// Whether the archive in a file, which no server uses, is one of this journal as it is: nothing in it is of records
/// that the journal does not have.
pub fn fits(archive: &Path, journal: &dyn Journal) -> Result<bool, JournalError> {
    let mark = mark_in(archive, journal.id())?;
    is_of_past(mark, journal.head()?, journal)
}

fn mark_in(archive: &Path, journal: JournalId) -> Result<ArchiveMark, JournalError> {
    Ok(SqliteTables::open(archive, journal)?.contents()?.mark)
}

/// Whether a mark was written when the journal had what it has, or less.
pub fn is_of_past(
    mark: ArchiveMark,
    head: Head,
    journal: &dyn Journal,
) -> Result<bool, JournalError> {
    match mark.batch {
        _ if mark.position == 0 => Ok(false),
        Some((sequence, _)) if sequence > head.sequence => Ok(false),
        Some((sequence, hash)) => Ok(journal.head_at(sequence)?.hash == hash),
        None => Ok(mark.position <= head.position),
    }
}
