//! Reads batches on separate connections, so that no reader delays the writer.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bursar_core::time::Timestamp;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, params};

use super::failure;
use super::schema::{digest, unsigned};
use crate::chain::{Epoch, StoredBatch};
use crate::error::JournalError;
use crate::journal::RowSource;
use crate::segment::{Places, SegmentMark, Segments};

/// Batches fetched in one query.
const PAGE_ROWS: i64 = 32;
/// Idle connections that are kept open.
const IDLE_READERS: usize = 4;

/// Read-only connections, opened when needed and reused.
pub(super) struct ReaderPool {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl ReaderPool {
    pub(super) fn new(path: &Path) -> ReaderPool {
        ReaderPool { path: path.to_owned(), idle: Mutex::new(Vec::new()) }
    }

    fn open(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(Duration::from_secs(5))?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        connection.pragma_update(None, "mmap_size", 0).or_else(|error| match error {
            // This setting returns a row.
            rusqlite::Error::ExecuteReturnedResults => Ok(()),
            other => Err(other),
        })?;
        connection.pragma_update(None, "cell_size_check", 1)?;
        Ok(connection)
    }

    /// Runs one query. The connection is reused only if it succeeded.
    pub(super) fn with<T>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, JournalError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let run = || {
            let connection = idle.map_or_else(|| self.open(), Ok)?;
            let value = work(&connection)?;
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < IDLE_READERS {
                idle.push(connection);
            }
            Ok(value)
        };
        run().map_err(|error| failure(doing, &error))
    }

    /// Closes the idle connections.
    pub(super) fn clear(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Batches in order: from sealed segments, from the database, page by page, and then those that are
/// not there yet. Batches may be sealed while they are read.
pub(super) struct Rows {
    readers: Arc<ReaderPool>,
    segments: Arc<Segments<Places>>,
    after: u64,
    /// The last one to read from the database.
    stored: u64,
    fetched: VecDeque<StoredBatch>,
    waiting: VecDeque<Arc<StoredBatch>>,
}

impl Rows {
    pub(super) fn new(
        readers: Arc<ReaderPool>,
        segments: Arc<Segments<Places>>,
        after: u64,
        stored: u64,
        waiting: VecDeque<Arc<StoredBatch>>,
    ) -> Rows {
        Rows { readers, segments, after, stored, fetched: VecDeque::new(), waiting }
    }
}

impl RowSource for Rows {
    fn next_row(&mut self) -> Result<Option<StoredBatch>, JournalError> {
        if self.after >= self.stored {
            return Ok(self.waiting.pop_front().map(Arc::unwrap_or_clone));
        }
        if self.fetched.is_empty() {
            let next = self.after.saturating_add(1);
            if let Some(mark) = self.segments.covering(next) {
                self.fetch_sealed(&mark)?;
            } else if let Some(found) = self.fetch_stored()? {
                return Ok(Some(found));
            } else if self.fetched.front().is_none_or(|row| row.sequence != next)
                && let Some(mark) = self.segments.covering(next)
            {
                // It was sealed and deleted meanwhile.
                self.fetch_sealed(&mark)?;
            }
        }
        let row = self.fetched.pop_front();
        if let Some(row) = &row {
            self.after = row.sequence;
        }
        Ok(row)
    }
}

impl Rows {
    /// Fetches the next batches of a segment.
    fn fetch_sealed(&mut self, mark: &SegmentMark) -> Result<(), JournalError> {
        let next = self.after.saturating_add(1);
        self.fetched = self.segments.batches(mark, next, self.stored)?;
        Ok(())
    }

    /// Fetches the next page of the database. Returns its first row alone if the page has a bad one.
    fn fetch_stored(&mut self) -> Result<Option<StoredBatch>, JournalError> {
        let (after, until) = (self.after, self.stored);
        let page =
            self.readers.with("reading batches", |connection| read_page(connection, after, until));
        match page {
            Ok(page) => {
                self.fetched = page;
                Ok(None)
            }
            // Only one row of the page may be bad: find that row.
            Err(JournalError::Damaged { reason, .. }) => self.next_alone(&reason).map(Some),
            Err(other) => Err(other),
        }
    }

    /// Reads one row by its number, after a page of rows could not be read.
    fn next_alone(&mut self, reason: &str) -> Result<StoredBatch, JournalError> {
        let sequence = self.after.saturating_add(1);
        let corrupt = |reason: String| JournalError::Corrupt { sequence, reason };
        let row = self
            .readers
            .with("reading a batch", |connection| read_one(connection, sequence))
            .map_err(|error| corrupt(error.to_string()))?
            .ok_or_else(|| corrupt(reason.to_owned()))?;
        self.after = row.sequence;
        Ok(row)
    }
}

const COLUMNS: &str = "sequence, first_position, records, epoch, time, previous, hash, payload";

fn read_page(
    connection: &Connection,
    after: u64,
    until: u64,
) -> rusqlite::Result<VecDeque<StoredBatch>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM batch WHERE sequence > ?1 AND sequence <= ?2
         ORDER BY sequence LIMIT {PAGE_ROWS}"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(params![after.cast_signed(), until.cast_signed()], to_batch)?;
    rows.collect::<rusqlite::Result<_>>().map_err(as_damage)
}

/// Reads one batch by its number.
pub(super) fn read_one(
    connection: &Connection,
    sequence: u64,
) -> rusqlite::Result<Option<StoredBatch>> {
    let sql = format!("SELECT {COLUMNS} FROM batch WHERE sequence = ?1");
    let mut statement = connection.prepare_cached(&sql)?;
    statement.query_row(params![sequence.cast_signed()], to_batch).optional().map_err(as_damage)
}

/// The number of the first batch after `after` and up to `until` with at most `bytes` of payload.
pub(super) fn first_up_to(
    connection: &Connection,
    (after, until): (u64, u64),
    bytes: u64,
) -> rusqlite::Result<Option<u64>> {
    let sql = "SELECT sequence FROM batch WHERE sequence > ?1 AND sequence <= ?2 \
               AND length(payload) <= ?3 ORDER BY sequence LIMIT 1";
    let mut statement = connection.prepare_cached(sql)?;
    let bounds = params![after.cast_signed(), until.cast_signed(), bytes.cast_signed()];
    statement.query_row(bounds, |row| row.get::<_, i64>(0).map(i64::cast_unsigned)).optional()
}

/// A column of the wrong type or length is damage, not an error in the query.
fn as_damage(error: rusqlite::Error) -> rusqlite::Error {
    match error {
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::IntegralValueOutOfRange(..) => rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT),
            Some(error.to_string()),
        ),
        other => other,
    }
}

fn to_batch(row: &Row<'_>) -> rusqlite::Result<StoredBatch> {
    Ok(StoredBatch {
        sequence: unsigned(row, 0)?,
        first_position: unsigned(row, 1)?,
        records: row.get(2)?,
        epoch: Epoch(unsigned(row, 3)?),
        // A time outside the years 0 to 9999 differs from the hashed one and is found by the hash.
        time: Timestamp::from_millis(row.get(4)?),
        previous: digest(row, 5)?,
        hash: digest(row, 6)?,
        payload: row.get(7)?,
    })
}
