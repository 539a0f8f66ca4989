//! The table of sealed segments, and the statements around it.
//!
//! A batch up to the end of the last segment belongs to that segment. A row of it that is still in
//! the database is a leftover, which is not read and which the next sealing deletes.

use std::sync::Arc;

use bursar_core::digest::Digest;
use bursar_core::time::Timestamp;
use rusqlite::{Connection, Row, Transaction, TransactionBehavior, params};

use super::failure;
use super::schema::{self, WITH_SEGMENTS, checksum, damaged, digest, unsigned};
use crate::chain::{Head, JournalId, StoredBatch};
use crate::error::JournalError;
use crate::segment::{SegmentMark, check_chain};

const TABLE: &str = "
CREATE TABLE IF NOT EXISTS segment (
  first INTEGER PRIMARY KEY, last INTEGER NOT NULL,
  first_position INTEGER NOT NULL, last_position INTEGER NOT NULL, began_at INTEGER NOT NULL,
  previous BLOB NOT NULL, hash BLOB NOT NULL, digest BLOB NOT NULL, bytes INTEGER NOT NULL,
  checksum BLOB NOT NULL) STRICT;
";

fn row_checksum(id: JournalId, mark: &SegmentMark) -> Digest {
    let numbers =
        [mark.first, mark.last, mark.first_position, mark.last_position].map(u64::to_le_bytes);
    let [first, last, first_position, last_position] = &numbers;
    let began_at = mark.began_at.millis().to_le_bytes();
    let fields: [&[u8]; 10] = [
        &id.0,
        first,
        last,
        first_position,
        last_position,
        &began_at,
        &mark.previous.0,
        &mark.hash.0,
        &mark.digest.0,
        &mark.bytes.to_le_bytes(),
    ];
    checksum("segment", &fields)
}

/// All segments of the journal, oldest first.
pub(super) fn read(
    connection: &Connection,
    id: JournalId,
) -> Result<Vec<SegmentMark>, JournalError> {
    let failed = |error: rusqlite::Error| failure("reading the list of segments", &error);
    let exists: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'segment'", [], |row| {
            row.get(0)
        })
        .map_err(failed)?;
    if exists == 0 {
        return Ok(Vec::new());
    }
    let sql = "SELECT first, last, first_position, last_position, began_at, previous, hash, digest,
                      bytes, checksum FROM segment ORDER BY first";
    let mut statement = connection.prepare(sql).map_err(failed)?;
    let rows = statement
        .query_map([], |row| Ok((to_mark(row)?, row.get::<_, Vec<u8>>(9)?)))
        .and_then(Iterator::collect::<rusqlite::Result<Vec<_>>>)
        .map_err(failed)?;
    let mut marks = Vec::with_capacity(rows.len());
    for (mark, sum) in rows {
        if row_checksum(id, &mark).0[..] != sum[..] {
            let reason = format!("the checksum of batches {} on does not match", mark.first);
            return Err(damaged("list of segments", reason));
        }
        marks.push(mark);
    }
    check_chain(id, &marks)?;
    Ok(marks)
}

fn to_mark(row: &Row<'_>) -> rusqlite::Result<SegmentMark> {
    Ok(SegmentMark {
        first: unsigned(row, 0)?,
        last: unsigned(row, 1)?,
        first_position: unsigned(row, 2)?,
        last_position: unsigned(row, 3)?,
        began_at: Timestamp::from_millis(row.get(4)?),
        previous: digest(row, 5)?,
        hash: digest(row, 6)?,
        digest: digest(row, 7)?,
        bytes: unsigned(row, 8)?,
    })
}

/// Lists a segment. From then on its batches are read from it.
pub(super) fn add(
    connection: &Connection,
    id: JournalId,
    mark: &SegmentMark,
) -> rusqlite::Result<()> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    transaction.execute_batch(TABLE)?;
    transaction.execute(
        "INSERT INTO segment VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        params![
            mark.first.cast_signed(),
            mark.last.cast_signed(),
            mark.first_position.cast_signed(),
            mark.last_position.cast_signed(),
            mark.began_at.millis(),
            mark.previous.0,
            mark.hash.0,
            mark.digest.0,
            mark.bytes.cast_signed(),
            row_checksum(id, mark).0,
        ],
    )?;
    transaction.pragma_update(None, "user_version", WITH_SEGMENTS)?;
    transaction.commit()
}

/// The end of the range after `after` and up to `until` whose payloads have at least `bytes` bytes,
/// or `None` if there are fewer.
pub(super) fn range_of(
    connection: &Connection,
    (after, until): (u64, u64),
    bytes: u64,
) -> rusqlite::Result<Option<u64>> {
    let sql = "SELECT sequence, length(payload) FROM batch WHERE sequence > ?1 AND sequence <= ?2
               ORDER BY sequence";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![after.cast_signed(), until.cast_signed()])?;
    let mut sum = 0_u64;
    while let Some(row) = rows.next()? {
        sum = sum.saturating_add(unsigned(row, 1)?);
        if sum >= bytes {
            return unsigned(row, 0).map(Some);
        }
    }
    Ok(None)
}

/// Deletes leftovers up to `through`, at most about `bytes` bytes of them. Returns the deleted
/// bytes; 0 if there are no more.
pub(super) fn discard(connection: &Connection, through: u64, bytes: u64) -> rusqlite::Result<u64> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    let mut last = None;
    let mut sum = 0;
    {
        let sql = "SELECT sequence, length(payload) FROM batch WHERE sequence <= ?1
                   ORDER BY sequence";
        let mut statement = transaction.prepare_cached(sql)?;
        let mut rows = statement.query(params![through.cast_signed()])?;
        while sum < bytes
            && let Some(row) = rows.next()?
        {
            last = Some(unsigned(row, 0)?);
            // A row takes a few bytes beside its payload, and an empty one counts as well.
            sum += unsigned(row, 1)? + 100;
        }
    }
    let Some(last) = last else { return Ok(0) };
    transaction
        .prepare_cached("DELETE FROM batch WHERE sequence <= ?1")?
        .execute(params![last.cast_signed()])?;
    transaction.commit()?;
    Ok(sum)
}

/// Deletes everything after `end` from a copy. `kept` are the batches up to `end` of the segment
/// that has it. They return to the database, which always has the last batch, and that segment and
/// later ones are no longer listed.
pub(super) fn truncate(
    connection: &Connection,
    end: Head,
    kept: &[Arc<StoredBatch>],
) -> rusqlite::Result<()> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Exclusive)?;
    transaction
        .execute("DELETE FROM batch WHERE sequence > ?1", params![end.sequence.cast_signed()])?;
    let sql = "SELECT count(*) FROM sqlite_schema WHERE name = 'segment'";
    let has_segments: i64 = transaction.query_row(sql, [], |row| row.get(0))?;
    if has_segments > 0 {
        transaction
            .execute("DELETE FROM segment WHERE last >= ?1", params![end.sequence.cast_signed()])?;
    }
    if let Some(first) = kept.first() {
        // Leftovers of the same batches.
        transaction.execute(
            "DELETE FROM batch WHERE sequence >= ?1",
            params![first.sequence.cast_signed()],
        )?;
        schema::insert(&transaction, kept)?;
    }
    schema::move_head(&transaction, end)?;
    transaction.commit()
}

/// Returns free pages to the file system, if most of the file is free.
pub(super) fn shrink(connection: &Connection) -> rusqlite::Result<bool> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| unsigned(row, 0));
    let (free, pages, size) =
        (number("freelist_count")?, number("page_count")?, number("page_size")?);
    let (free, used) = (free.saturating_mul(size), pages.saturating_sub(free).saturating_mul(size));
    if free < LEAST_FREE_BYTES || used > MAX_USED_BYTES || used > free / 3 {
        return Ok(false);
    }
    connection.execute_batch("VACUUM")?;
    Ok(true)
}

/// The free bytes below which a file is left as it is: they are used again soon.
const LEAST_FREE_BYTES: u64 = 256 << 20;
/// The used bytes above which it is left as it is: shrinking writes all of them.
const MAX_USED_BYTES: u64 = 256 << 20;
