//! Inspects a journal's files without changing them, before a server trusts a folder.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, OpenFlags};

use super::SqliteOptions;
use super::files::{LockFile, beside};
use super::newest::Newest;
use super::rows::{self, ReaderPool};
use super::schema;
use super::stored::{head_in_database, sealed, stored_head};
use super::tail::{Tail, largest_payload};
use crate::chain::{Head, JournalId};
use crate::error::JournalError;
use crate::segment::{Places, Segments};

/// Conditions that a journal's files must meet.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The identity of the journal.
    pub id: JournalId,
    /// A batch that it must contain.
    pub bound: Head,
    /// The minimum length of its tail, if the tail was in use. It must then contain a frame and be
    /// that long, or it was emptied or truncated. A tail never shrinks in normal use.
    pub tail: Option<u64>,
}

/// The result of an inspection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// The identity of the journal.
    pub id: JournalId,
    /// Its last batch.
    pub head: Head,
}

/// How an operator can fix a wrong file.
pub const REMEDY: &str = "Nothing was changed. Put back the file as it was, or restore the last backup \
     into an empty folder: bursar admin restore BACKUP --data DIR";

fn refused(file: &Path, reason: &str) -> JournalError {
    JournalError::Refused(format!("{}: {reason}. {REMEDY}", file.display()))
}

/// The path of the file beside a database that contains its newest batches.
pub fn tail_file(path: &Path) -> PathBuf {
    beside(path, "-tail")
}

/// The durable length of the tail of journal `id` beside this file, if it ever contained a frame.
/// It may never have: a last batch that is larger than the tail is stored in the database at once.
pub fn written_tail(path: &Path, id: JournalId) -> Result<Option<u64>, JournalError> {
    if !tail_file(path).exists() {
        return Ok(None);
    }
    let tail = Tail::open_read_only(path, id)?;
    if tail.was_written()? { tail.durable_length().map(Some) } else { Ok(None) }
}

/// Rejects files that are missing, emptied, of another journal, older than they were, or of another
/// history. Writes nothing.
pub fn inspect(path: &Path, expected: Option<&Expected>) -> Result<Inspected, JournalError> {
    let length = |file: &Path| match std::fs::metadata(file) {
        Ok(metadata) => Ok(Some(metadata.len())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(JournalError::io("looking at a journal", error)),
    };
    match length(path)? {
        None => return Err(refused(path, "the file is missing")),
        Some(0) => return Err(refused(path, "the file is empty")),
        Some(_) => {}
    }
    if let Some((bytes, needed)) = cut_database(path) {
        let reason = format!("it was cut: {bytes} bytes are left of {needed}");
        return Err(refused(path, &reason));
    }
    let id = identity(path)?;
    if let Some(expected) = expected.filter(|expected| expected.id != id) {
        let reason =
            format!("it is journal {id}, and {} belongs here by manifest.json", expected.id);
        return Err(refused(path, &reason));
    }
    let tail_path = tail_file(path);
    let tail_bytes = length(&tail_path)?;
    let has_tail = tail_bytes.is_some();
    let needed = expected.and_then(|expected| expected.tail);
    if needed.is_some() && !has_tail {
        return Err(refused(&tail_path, "the file is missing, and with it the newest records"));
    }
    let readers = Arc::new(ReaderPool::new(path));
    let stored = stored_head(&readers, id)?;
    let head = if has_tail {
        let tail = Tail::open_read_only(path, id)?;
        let has_batches =
            stored.sequence > 0 || expected.is_some_and(|expected| expected.bound.sequence > 0);
        if needed.is_some() && has_batches && !tail.was_written()? {
            return Err(refused(&tail_path, "it was emptied, and with it the newest records"));
        }
        if let (Some(needed), Some(bytes)) =
            (needed, tail_bytes.filter(|bytes| needed > Some(*bytes)))
        {
            let reason = format!("it was cut: {bytes} bytes are left of at least {needed}");
            return Err(refused(&tail_path, &reason));
        }
        let newest = Newest::recover(&tail, stored)?.head;
        let checked =
            check_tail(path, (&tail, SqliteOptions::default().tail_bytes), &readers, stored);
        // A tail that changes while it is read may look older than it is.
        if checked.is_err() && LockFile::take(path).is_ok() {
            checked?;
        }
        newest
    } else {
        stored
    };
    let segments = Segments::new(Places::of(path, id), id, sealed(&readers, id, stored)?);
    if let Some(Expected { bound, .. }) = expected {
        check_bound(path, (&readers, &segments), (stored, head), *bound)?;
    }
    Ok(Inspected { id, head })
}

/// Rejects a tail that is older than its database: what was appended after the last batch in the
/// database would be missing. Every batch that fits into the tail was in it first, and the newest
/// one stays there. Nothing else may write the tail meanwhile.
pub(super) fn check_tail(
    path: &Path,
    (tail, capacity): (&Tail, u64),
    readers: &ReaderPool,
    stored: Head,
) -> Result<(), JournalError> {
    let Some(newest) = tail.recover(stored)?.newest.filter(|newest| *newest < stored.sequence)
    else {
        return Ok(());
    };
    let missing = readers.with("reading the newest batches", |connection| {
        rows::first_up_to(connection, (newest, stored.sequence), largest_payload(capacity))
    })?;
    let Some(missing) = missing else { return Ok(()) };
    let reason = format!(
        "it ends with batch {newest}, and batch {missing} was in it, by the database: it is an older \
         copy, and the newest records are missing"
    );
    Err(refused(&tail_file(path), &reason))
}

/// The length of a database's file and the length in its header, if that is more. `None` for a
/// database with a log beside it: an interrupted checkpoint leaves such a file, and is repeated.
pub fn cut_database(path: &Path) -> Option<(u64, u64)> {
    if std::fs::metadata(beside(path, "-wal")).is_ok_and(|log| log.len() > 0) {
        return None;
    }
    let file = File::open(path).ok()?;
    let bytes = file.metadata().ok()?.len();
    let mut header = [0; 32];
    file.read_exact_at(&mut header, 0).ok()?;
    // The size of a page, where 1 stands for 64 KiB, and the number of pages.
    let size = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 1 << 16,
        size => u64::from(size),
    };
    let pages = u32::from_be_bytes([header[28], header[29], header[30], header[31]]);
    let needed = size * u64::from(pages);
    (bytes < needed).then_some((bytes, needed))
}

fn check_bound(
    path: &Path,
    (readers, segments): (&ReaderPool, &Segments<Places>),
    (stored, head): (Head, Head),
    bound: Head,
) -> Result<(), JournalError> {
    if head.sequence < bound.sequence {
        let reason = format!(
            "it ends with batch {}, and batch {} was stored: it, or what lies beside it (-wal, \
             -tail), is an older copy",
            head.sequence, bound.sequence
        );
        return Err(refused(path, &reason));
    }
    // Batches only in the tail follow the database's last batch by their hash.
    let stored_at = || head_in_database(readers, segments.id(), bound.sequence);
    if bound.sequence <= stored.sequence && segments.head_at(bound.sequence, stored_at)? != bound {
        let reason = format!("batch {} is not the one that was stored here", bound.sequence);
        return Err(refused(path, &reason));
    }
    Ok(())
}

fn identity(path: &Path) -> Result<JournalId, JournalError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let read = || {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(std::time::Duration::from_secs(5))?;
        let tables: i64 =
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        Ok((tables > 0).then_some(connection))
    };
    let connection = read().map_err(|error: rusqlite::Error| refused(path, &error.to_string()))?;
    let Some(connection) = connection else {
        return Err(refused(path, "there is no journal in it"));
    };
    schema::read_identity(&connection)
}

/// Whether the file contains a journal. False if it is missing, empty, or without tables.
pub fn is_begun(path: &Path) -> bool {
    identity(path).is_ok()
}
