//! Copies a journal, even while a server has it open, and creates and truncates backup files.

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use thiserror::Error;

use super::files::beside;
use super::tail::Tail;
use super::{schema, segment_table};
use crate::chain::{Head, JournalId, StoredBatch};
use crate::error::JournalError;
use crate::segment::{ArchivedSegment, Places, SegmentMark};

/// Batches written in one transaction.
const IMPORTED_AT_ONCE: usize = 64;
/// Pages copied in one step.
const STEP_PAGES: i32 = 1024;
/// How often a tail with a missing batch is read again. A tail in use may have been written while
/// it was read.
const MAX_TRIES: u32 = 20;
/// The pause before each of these reads.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Why a journal was not copied.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CopyError {
    /// The target exists.
    #[error("{0} is not empty: nothing is ever overwritten, choose another place")]
    NotEmpty(PathBuf),
    /// A segment could not be read or written.
    #[error(transparent)]
    Segment(#[from] JournalError),
    /// A file could not be read or written.
    #[error("{doing} {path}: {reason}")]
    Database {
        /// The failed action.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of SQLite.
        reason: String,
    },
}

fn failed<E: ToString>(doing: &'static str, path: &Path) -> impl FnOnce(E) -> CopyError {
    let path = path.to_owned();
    move |error| CopyError::Database { doing, path, reason: error.to_string() }
}

/// The progress of a copy.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CopiedPages {
    /// Pages copied so far.
    pub pages: u64,
    /// All pages.
    pub of: u64,
}

/// Copies a journal into one new file, consistent as of one instant, without verifying it, and its
/// segments beside it, also archived ones: the copy needs nothing else. A server that has the
/// journal open can continue to write.
pub fn copy(
    journal: &Path,
    target: &Path,
    progress: impl FnMut(CopiedPages),
) -> Result<(), CopyError> {
    let (id, sealed) = copy_database(journal, target, progress)?;
    copy_all(&Places::of(journal, id), &Places::of(target, id), &sealed)?;
    Ok(())
}

/// Copies a journal without its segments, which never change: the copy notes where they are. For a copy
/// that is read and then removed.
pub fn copy_to_read(journal: &Path, target: &Path) -> Result<(), CopyError> {
    let (id, sealed) = copy_database(journal, target, |_| {})?;
    refer(&Places::of(journal, id), &Places::of(target, id), &sealed)?;
    Ok(())
}

/// Copies the file and the tail. Returns the journal's identity and its segments.
fn copy_database(
    journal: &Path,
    target: &Path,
    mut progress: impl FnMut(CopiedPages),
) -> Result<(JournalId, Vec<SegmentMark>), CopyError> {
    if target.exists() {
        return Err(CopyError::NotEmpty(target.to_owned()));
    }
    let from = open_read_only(journal)?;
    // One read transaction around the whole copy: later writes are not seen, so the copy never has
    // to start again, however busy the journal is.
    let (stored, behind) = begin(&from, journal).map_err(failed("reading", journal))?;
    let id = schema::read_identity(&from)?;
    let sealed = segment_table::read(&from, id)?;
    let mut to = Connection::open(target).map_err(failed("making", target))?;
    let copying = failed::<rusqlite::Error>;
    {
        let backup = Backup::new(&from, &mut to).map_err(copying("copying", journal))?;
        loop {
            let step = backup.step(STEP_PAGES).map_err(copying("copying", journal))?;
            let count = backup.progress();
            let number = |pages: i32| u64::try_from(pages).unwrap_or(0);
            let (left, of) = (number(count.remaining), number(count.pagecount));
            progress(CopiedPages { pages: of.saturating_sub(left), of });
            match step {
                StepResult::Done => break,
                StepResult::More => {}
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
    let head = behind.last().map_or(stored, |last| last.head());
    schema::add(&to, &behind, head).map_err(copying("finishing", target))?;
    if let Some(last) = sealed.last() {
        let discarded = segment_table::discard(&to, last.last, u64::MAX);
        discarded.map_err(copying("finishing", target))?;
    }
    schema::finish_copy(&to).map_err(copying("finishing", target))?;
    Ok((id, sealed))
}

/// Copies the segments of a journal that no server uses beside a copy of its file.
pub fn copy_segments(journal: &Path, target: &Path) -> Result<(), CopyError> {
    let from = open_read_only(journal)?;
    let id = schema::read_identity(&from)?;
    let sealed = segment_table::read(&from, id)?;
    copy_all(&Places::of(journal, id), &Places::of(target, id), &sealed)?;
    Ok(())
}

/// Copies segments, each verified.
fn copy_all(from: &Places, to: &Places, sealed: &[SegmentMark]) -> Result<(), JournalError> {
    let failed = |error: std::io::Error| JournalError::io("copying a segment", error);
    if sealed.is_empty() {
        return Ok(());
    }
    std::fs::DirBuilder::new().mode(0o700).create(to.folder()).map_err(failed)?;
    for mark in sealed {
        let segment = from.open(mark)?;
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600);
        let mut file = file.open(to.folder().join(mark.name())).map_err(failed)?;
        file.write_all(segment.bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    }
    Ok(())
}

/// Remembers where segments are.
fn refer(from: &Places, to: &Places, sealed: &[SegmentMark]) -> Result<(), JournalError> {
    let failed = |error: std::io::Error| JournalError::io("finding the segments", error);
    if sealed.is_empty() {
        return Ok(());
    }
    let here = std::path::absolute(from.folder()).map_err(failed)?;
    let mut places = from.archived()?;
    places.extend(sealed.iter().map(|mark| ArchivedSegment::at(mark, here.clone())));
    to.write(places)
}

fn open_read_only(path: &Path) -> Result<Connection, CopyError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(failed("opening", path))?;
    connection.busy_timeout(Duration::from_secs(5)).map_err(failed("opening", path))?;
    Ok(connection)
}

/// Begins a read transaction of the journal in `path`. Returns the database's head and the batches
/// in the tail after it. A missing batch stays missing: a copy is verified afterwards.
fn begin(
    connection: &Connection,
    path: &Path,
) -> Result<(Head, Vec<Arc<StoredBatch>>), JournalError> {
    let failed = |error: rusqlite::Error| super::failure("reading the journal", &error);
    let id = schema::read_identity(connection)?;
    let mut tries = 0;
    loop {
        // The tail before the database: batches that are moved meanwhile are then in both, not in
        // neither.
        let tail = match beside(path, "-tail").exists() {
            true => Tail::open_read_only(path, id)?.frames()?,
            false => Vec::new(),
        };
        connection.execute_batch("BEGIN").map_err(failed)?;
        let head = schema::read_head(connection).map_err(failed)?.check()?;
        let behind: Vec<Arc<StoredBatch>> =
            tail.into_iter().filter(|batch| batch.sequence > head.sequence).collect();
        let is_whole =
            (head.sequence + 1..).zip(&behind).all(|(next, found)| next == found.sequence);
        tries += 1;
        // A batch that is still missing after this many reads was lost.
        if is_whole || tries == MAX_TRIES {
            return Ok((head, behind));
        }
        connection.execute_batch("ROLLBACK").map_err(failed)?;
        std::thread::sleep(RETRY_INTERVAL);
    }
}

/// Creates a new file with the batches of a journal, in order, and returns its head.
pub fn import(
    path: &Path,
    id: JournalId,
    batches: impl Iterator<Item = Result<StoredBatch, JournalError>>,
) -> Result<Head, JournalError> {
    let connection = schema::open_new(path)?;
    let failed = |error: rusqlite::Error| super::failure("writing the copy", &error);
    schema::create(&connection, id).map_err(failed)?;
    let mut head = Head::genesis(id);
    let mut waiting = Vec::new();
    let mut batches = batches.peekable();
    while let Some(batch) = batches.next() {
        let batch = Arc::new(batch?);
        head = batch.head();
        waiting.push(batch);
        if waiting.len() < IMPORTED_AT_ONCE && batches.peek().is_some() {
            continue;
        }
        if schema::append(&connection, &waiting).map_err(failed)?.is_none() {
            let reason = "it does not follow the batch before it".into();
            return Err(JournalError::Corrupt { sequence: head.sequence, reason });
        }
        waiting.clear();
    }
    schema::finish_copy(&connection).map_err(failed)?;
    Ok(head)
}

/// Deletes the batches after `end` from a copy that no server uses, also from its segments.
pub fn truncate(path: &Path, end: Head) -> Result<(), JournalError> {
    let connection = schema::open_new(path)?;
    let id = schema::read_identity(&connection)?;
    let places = Places::of(path, id);
    let sealed = segment_table::read(&connection, id)?;
    let beyond: Vec<_> = sealed.iter().filter(|mark| mark.last >= end.sequence).collect();
    let mut kept = Vec::new();
    if let Some(mark) = beyond.first().filter(|mark| mark.has(end.sequence)) {
        let segment = places.open(mark)?;
        let mut next = mark.first;
        while next <= end.sequence {
            let batches = segment.batches_from(next);
            let batches = batches.map_err(|reason| crate::segment::altered(mark, reason))?;
            next = batches.back().map_or(u64::MAX, |batch| batch.sequence + 1);
            kept.extend(batches.into_iter().map(Arc::new));
        }
        kept.retain(|batch| batch.sequence <= end.sequence);
    }
    segment_table::truncate(&connection, end, &kept)
        .and_then(|()| schema::finish_copy(&connection))
        .map_err(|error| super::failure("trimming the copy", &error))?;
    for mark in beyond {
        // A file that is not listed is not read. Archived ones belong to the original.
        let _ = std::fs::remove_file(places.folder().join(mark.name()));
    }
    Ok(())
}
