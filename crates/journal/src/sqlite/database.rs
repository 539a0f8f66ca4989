//! The connection that writes the database.

use std::sync::Arc;

use rusqlite::{Connection, ErrorCode};

use super::{failure, schema, segment_table};
use crate::chain::{Epoch, JournalId, StoredBatch};
use crate::error::{AppendError, JournalError};

/// The writing connection. Closed after an error.
pub(super) struct Database {
    connection: Option<Connection>,
    /// The approximate size of its log in bytes.
    log_bytes: u64,
    page_bytes: u64,
}

/// Pages that every transaction writes besides its rows: the first, the head's, and the last
/// parent's.
const PAGES_BESIDE_ROWS: u64 = 3;

/// An error of the database.
pub(super) enum DatabaseError {
    /// A write or sync failed: the journal must stop.
    Failed(String),
    /// No space is left. Nothing was changed.
    Full(String),
    /// The file is inconsistent.
    Corrupt(JournalError),
    /// Another error. The connection is closed. Reopening shows what was written.
    Unknown(String),
}

impl From<DatabaseError> for AppendError {
    fn from(trouble: DatabaseError) -> AppendError {
        match trouble {
            DatabaseError::Full(reason) => AppendError::Full(reason),
            DatabaseError::Corrupt(error) => AppendError::Corrupt(error),
            DatabaseError::Failed(reason) | DatabaseError::Unknown(reason) => {
                AppendError::Unknown(reason)
            }
        }
    }
}

impl Database {
    /// `log_bytes` is the approximate size of the log.
    pub(super) fn new(connection: Connection, log_bytes: u64) -> Result<Database, JournalError> {
        let page_bytes = schema::page_bytes(&connection)
            .map_err(|error| failure("reading the journal's schema", &error))?;
        Ok(Database { connection: Some(connection), log_bytes, page_bytes })
    }

    fn connection(&self) -> Result<&Connection, JournalError> {
        self.connection
            .as_ref()
            .ok_or_else(|| JournalError::storage("using the journal", "it must be reopened"))
    }

    /// Uses another connection from now on.
    pub(super) fn reopen(
        &mut self,
        open: impl FnOnce() -> Result<Connection, JournalError>,
    ) -> Result<(), JournalError> {
        self.connection = None;
        self.connection = Some(open()?);
        Ok(())
    }

    /// Closes the connection, which neither writes nor syncs (see `schema::open_writer`).
    pub(super) fn close(&mut self) {
        self.connection = None;
    }

    /// Stores `batches` durably, and moves the log into the file when it has reached a number of
    /// bytes.
    pub(super) fn store(
        &mut self,
        batches: &[Arc<StoredBatch>],
        checkpoint_bytes: u64,
    ) -> Result<(), DatabaseError> {
        if !batches.is_empty() {
            let bytes = self.run(|connection| schema::append(connection, batches))?;
            let Some(bytes) = bytes else {
                let reason = "its head is not the batch that was moved into it last".into();
                return Err(DatabaseError::Corrupt(JournalError::Damaged { part: "file", reason }));
            };
            let grown = bytes + PAGES_BESIDE_ROWS * self.page_bytes;
            self.log_bytes = self.log_bytes.saturating_add(grown);
        }
        self.checkpoint(checkpoint_bytes)
    }

    /// Changes the database, and nothing that batches need.
    pub(super) fn change<T>(
        &mut self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, DatabaseError> {
        let changed = self.run(work)?;
        self.log_bytes = self.log_bytes.saturating_add(PAGES_BESIDE_ROWS * self.page_bytes);
        Ok(changed)
    }

    /// Deletes sealed batches up to `through`, about `bytes` bytes of them. Returns the deleted
    /// bytes; 0 if there are no more.
    pub(super) fn discard(
        &mut self,
        through: u64,
        bytes: u64,
        checkpoint_bytes: u64,
    ) -> Result<u64, DatabaseError> {
        let deleted = self.run(|connection| segment_table::discard(connection, through, bytes))?;
        if deleted > 0 {
            // Pages that become free are not written, but for the ones that list them.
            let grown = deleted / 16 + PAGES_BESIDE_ROWS * self.page_bytes;
            self.log_bytes = self.log_bytes.saturating_add(grown);
            self.checkpoint(checkpoint_bytes)?;
        }
        Ok(deleted)
    }

    /// Moves the log into the file, if it has reached a number of bytes.
    fn checkpoint(&mut self, checkpoint_bytes: u64) -> Result<(), DatabaseError> {
        if self.log_bytes < checkpoint_bytes {
            return Ok(());
        }
        match self.run(schema::checkpoint) {
            // A reader may hold back part of the log. The next round moves it.
            Ok(left) => self.log_bytes = left * self.page_bytes,
            // The log keeps everything, and the batches are stored.
            Err(DatabaseError::Full(_)) => {}
            Err(other) => return Err(other),
        }
        Ok(())
    }

    /// Makes `holder` the owner and returns its epoch.
    pub(super) fn take_over(
        &mut self,
        id: JournalId,
        holder: &str,
    ) -> Result<Epoch, DatabaseError> {
        self.run(|connection| {
            let mut last = schema::read_ownership(connection)?;
            // A copy of a journal has batches of owners that the copy never had.
            last.epoch = last.epoch.max(schema::last_epoch(connection)?);
            let next = last.taken_by(holder);
            schema::write_ownership(connection, id, &next)?;
            Ok(next.epoch)
        })
    }

    fn run<T>(
        &mut self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, DatabaseError> {
        let connection =
            self.connection().map_err(|error| DatabaseError::Unknown(error.to_string()))?;
        let error = match work(connection) {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        Err(match error.sqlite_error_code() {
            Some(ErrorCode::SystemIoFailure) => DatabaseError::Failed(error.to_string()),
            // The transaction was rolled back: its commit mark was never written.
            Some(ErrorCode::DiskFull) => DatabaseError::Full(error.to_string()),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                DatabaseError::Corrupt(failure("moving batches into the file", &error))
            }
            _ => {
                self.connection = None;
                DatabaseError::Unknown(error.to_string())
            }
        })
    }
}
