//! What a journal's database has: its last batch, its segments, single batches.

use rusqlite::ErrorCode;

use super::rows::{self, ReaderPool};
use super::{failure, schema, segment_table};
use crate::chain::{Head, JournalId};
use crate::error::JournalError;
use crate::journal::checked_head;
use crate::segment::SegmentMark;

/// The last batch in the database. The head row and that batch must agree, or one of them is
/// damaged.
pub(super) fn stored_head(readers: &ReaderPool, id: JournalId) -> Result<Head, JournalError> {
    let head = readers.with("reading the head", schema::read_head)?.check()?;
    if head_in_database(readers, id, head.sequence)? != head {
        let reason = "it is not the batch that the journal's head names".into();
        return Err(JournalError::Corrupt { sequence: head.sequence, reason });
    }
    Ok(head)
}

/// The list of segments. They end before the last batch in the database.
pub(super) fn sealed(
    readers: &ReaderPool,
    id: JournalId,
    head: Head,
) -> Result<Vec<SegmentMark>, JournalError> {
    let mut found = Ok(Vec::new());
    readers.with("reading the list of segments", |connection| {
        found = segment_table::read(connection, id);
        Ok(())
    })?;
    let list = found?;
    if list.last().is_some_and(|last| last.last >= head.sequence) {
        let reason = format!("it goes beyond batch {}, the last one", head.sequence);
        return Err(JournalError::Damaged { part: "list of segments", reason });
    }
    Ok(list)
}

/// Gives back the space of sealed batches. A full disk leaves the file as it is.
pub(super) fn shrink(connection: &rusqlite::Connection) -> Result<(), JournalError> {
    match segment_table::shrink(connection) {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => Ok(()),
        other => other.map(drop).map_err(|error| failure("shrinking the journal", &error)),
    }
}

pub(super) fn head_in_database(
    readers: &ReaderPool,
    id: JournalId,
    sequence: u64,
) -> Result<Head, JournalError> {
    if sequence == 0 {
        return Ok(Head::genesis(id));
    }
    let row = readers.with("reading a batch", |connection| rows::read_one(connection, sequence))?;
    checked_head(sequence, row)
}
