//! The tables and the statements that write them.
//!
//! Every row that is not a batch has its own checksum, so that a flipped bit is always found.

use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bursar_core::digest::Digest;
use rusqlite::config::DbConfig;
use rusqlite::{
    Connection, OpenFlags, OptionalExtension, Row, Transaction, TransactionBehavior, params,
};

use super::{SqliteOptions, failure};
use crate::chain::{Epoch, Head, JournalId, StoredBatch};
use crate::error::JournalError;

/// The first release without the WAL-reset race.
const OLDEST_LIBRARY: i32 = 3_051_003;
/// `user_version` of the file: the version of the tables below and of the files beside it. Version
/// 1 had no tail. A build that knows no tail would miss the newest batches, and rejects version 2. A
/// journal gets version 3 with its first segment: a build that knows no segments would miss the
/// oldest batches.
const SCHEMA_VERSION: i64 = 2;
pub(super) const WITH_SEGMENTS: i64 = 3;
const WITHOUT_TAIL: i64 = 1;
/// `application_id` of the file: "BRSR".
const APPLICATION_ID: i64 = 0x4252_5352;
/// The page size of a new file. Writes are large consecutive rows, for which large pages need fewer
/// system calls. Earlier builds created pages of 4 KiB, and their files keep them.
pub(super) const PAGE_BYTES: usize = 16 << 10;
/// The approximate size of a row of `batch` without its payload.
const ROW_BYTES: usize = 100;

const TABLES: &str = "
CREATE TABLE identity (
  only INTEGER PRIMARY KEY CHECK (only = 1),
  journal BLOB NOT NULL, checksum BLOB NOT NULL) STRICT;
CREATE TABLE lease (
  only INTEGER PRIMARY KEY CHECK (only = 1),
  epoch INTEGER NOT NULL, holder TEXT NOT NULL, checksum BLOB NOT NULL) STRICT;
CREATE TABLE head (
  only INTEGER PRIMARY KEY CHECK (only = 1),
  sequence INTEGER NOT NULL, position INTEGER NOT NULL,
  hash BLOB NOT NULL, checksum BLOB NOT NULL) STRICT;
CREATE TABLE batch (
  sequence INTEGER PRIMARY KEY,
  first_position INTEGER NOT NULL, records INTEGER NOT NULL, epoch INTEGER NOT NULL,
  time INTEGER NOT NULL, previous BLOB NOT NULL, hash BLOB NOT NULL,
  payload BLOB NOT NULL) STRICT;
";

pub(super) fn check_library() -> Result<(), JournalError> {
    if rusqlite::version_number() < OLDEST_LIBRARY {
        return Err(JournalError::Refused(format!(
            "SQLite {} may corrupt a database under load (WAL-reset race); 3.51.3 or newer is needed",
            rusqlite::version()
        )));
    }
    Ok(())
}

/// Opens a connection that writes or checkpoints.
pub(super) fn open_writer(
    path: &Path,
    options: &SqliteOptions,
) -> Result<Connection, JournalError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    configure_writer(path, flags, options).map_err(|error| failure("opening the journal", &error))
}

fn configure_writer(
    path: &Path,
    flags: OpenFlags,
    options: &SqliteOptions,
) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    // Closing must not write: after a failed sync nothing may touch the file again.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.pragma_update(None, "page_size", PAGE_BYTES.cast_signed())?;
    connection.pragma_update_and_check(None, "journal_mode", "wal", |row| {
        let mode: String = row.get(0)?;
        assert_eq!(mode, "wal", "a file on a local disk can always be switched to WAL");
        Ok(())
    })?;
    let synchronous = if options.unsafe_normal_sync { "normal" } else { "full" };
    connection.pragma_update(None, "synchronous", synchronous)?;
    for (name, value) in [
        ("mmap_size", 0),
        // Checkpoints are made by `compact`, where their errors are handled.
        ("wal_autocheckpoint", 0),
        // A batch reaches the log at its commit and not before.
        ("cache_spill", 0),
        ("cell_size_check", 1),
        ("trusted_schema", 0),
        ("checkpoint_fullfsync", 1),
        ("fullfsync", 1),
    ] {
        connection.pragma_update_and_check(None, name, value, |_| Ok(())).or_else(no_rows)?;
    }
    Ok(connection)
}

/// Some settings return a row and some do not.
fn no_rows(error: rusqlite::Error) -> rusqlite::Result<()> {
    match error {
        rusqlite::Error::QueryReturnedNoRows => Ok(()),
        other => Err(other),
    }
}

/// Creates the tables of a new journal, or checks existing ones.
pub(super) fn create_or_check(connection: &Connection) -> Result<JournalId, JournalError> {
    let storage = |error: rusqlite::Error| failure("reading the journal's schema", &error);
    let number = |name: &str| -> Result<i64, JournalError> {
        connection.pragma_query_value(None, name, |row| row.get(0)).map_err(storage)
    };
    let (version, application) = (number("user_version")?, number("application_id")?);
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(storage)?;
    if (version, application, tables) == (0, 0, 0) {
        let id = JournalId::random()?;
        create(connection, id).map_err(|error| failure("creating the journal", &error))?;
        return Ok(id);
    }
    if application != APPLICATION_ID {
        return Err(JournalError::Refused(
            "the file is a SQLite database but not a Bursar journal".into(),
        ));
    }
    if !(WITHOUT_TAIL..=WITH_SEGMENTS).contains(&version) {
        return Err(JournalError::Refused(format!(
            "the journal has schema version {version}; this build knows version {WITH_SEGMENTS}"
        )));
    }
    let id = read_identity(connection)?;
    read_ownership(connection).map_err(|error| damaged("lease", error.to_string()))?.check(id)?;
    if version == WITHOUT_TAIL {
        connection.pragma_update(None, "user_version", SCHEMA_VERSION).map_err(storage)?;
    }
    Ok(id)
}

/// The identity of the journal.
pub(super) fn read_identity(connection: &Connection) -> Result<JournalId, JournalError> {
    let stored = connection
        .query_row("SELECT journal, checksum FROM identity WHERE only = 1", [], |row| {
            Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, Vec<u8>>(1)?))
        })
        .map_err(|error| damaged("identity", error.to_string()))?;
    match stored.0.try_into().map(JournalId) {
        Ok(id) if checksum("identity", &[&id.0]).0[..] == stored.1[..] => Ok(id),
        _ => Err(damaged("identity", "its checksum does not match".into())),
    }
}

/// Opens or creates a file that no server uses, readable by its owner only.
pub(super) fn open_new(path: &Path) -> Result<Connection, JournalError> {
    std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|error| JournalError::io("making a copy", error))?;
    let open = || {
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "page_size", PAGE_BYTES.cast_signed())?;
        Ok(connection)
    };
    open().map_err(|error: rusqlite::Error| failure("opening a copy", &error))
}

/// Makes the copy a single file without a log. A server that opens it switches back.
pub(super) fn finish_copy(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update_and_check(None, "journal_mode", "delete", |_| Ok(()))
}

pub(super) fn damaged(part: &'static str, reason: String) -> JournalError {
    JournalError::Damaged { part, reason }
}

pub(super) fn create(connection: &Connection, id: JournalId) -> rusqlite::Result<()> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Exclusive)?;
    transaction.execute_batch(TABLES)?;
    transaction.execute(
        "INSERT INTO identity VALUES (1, ?1, ?2)",
        params![id.0, checksum("identity", &[&id.0]).0],
    )?;
    let owner = Ownership { epoch: Epoch(0), holder: String::new(), checksum: Vec::new() };
    transaction.execute(
        "INSERT INTO lease VALUES (1, 0, '', ?1)",
        params![owner.computed_checksum(id).0],
    )?;
    let head = Head::genesis(id);
    transaction.execute(
        "INSERT INTO head VALUES (1, 0, 0, ?1, ?2)",
        params![head.hash.0, head_checksum(&head).0],
    )?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    transaction.commit()
}

/// A checksum over one small row, with the name of its table as a separator.
pub(super) fn checksum(part: &str, fields: &[&[u8]]) -> Digest {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"bursar row v1\0").update(part.as_bytes());
    for field in fields {
        hasher.update(&(field.len() as u64).to_le_bytes()).update(field);
    }
    Digest(*hasher.finalize().as_bytes())
}

fn head_checksum(head: &Head) -> Digest {
    let numbers = [head.sequence.to_le_bytes(), head.position.to_le_bytes()];
    checksum("head", &[&numbers[0], &numbers[1], &head.hash.0])
}

/// The owner that may append.
pub(super) struct Ownership {
    pub(super) epoch: Epoch,
    pub(super) holder: String,
    checksum: Vec<u8>,
}

impl Ownership {
    /// The next owner.
    pub(super) fn taken_by(&self, holder: &str) -> Ownership {
        let epoch = Epoch(self.epoch.0 + 1);
        Ownership { epoch, holder: holder.to_owned(), checksum: Vec::new() }
    }

    fn computed_checksum(&self, id: JournalId) -> Digest {
        checksum("lease", &[&id.0, &self.epoch.0.to_le_bytes(), self.holder.as_bytes()])
    }

    fn check(&self, id: JournalId) -> Result<(), JournalError> {
        if self.computed_checksum(id).0[..] != self.checksum[..] {
            return Err(damaged("lease", "its checksum does not match".into()));
        }
        Ok(())
    }
}

pub(super) fn read_ownership(connection: &Connection) -> rusqlite::Result<Ownership> {
    connection.query_row("SELECT epoch, holder, checksum FROM lease WHERE only = 1", [], |row| {
        Ok(Ownership {
            epoch: Epoch(unsigned(row, 0)?),
            holder: row.get(1)?,
            checksum: row.get(2)?,
        })
    })
}

/// The epoch of the last batch in the database.
pub(super) fn last_epoch(connection: &Connection) -> rusqlite::Result<Epoch> {
    let sql = "SELECT epoch FROM batch ORDER BY sequence DESC LIMIT 1";
    let found = connection.query_row(sql, [], |row| unsigned(row, 0)).optional()?;
    Ok(Epoch(found.unwrap_or(0)))
}

pub(super) fn write_ownership(
    connection: &Connection,
    id: JournalId,
    next: &Ownership,
) -> rusqlite::Result<()> {
    connection.execute(
        "UPDATE lease SET epoch = ?1, holder = ?2, checksum = ?3 WHERE only = 1",
        params![next.epoch.0.cast_signed(), next.holder, next.computed_checksum(id).0],
    )?;
    Ok(())
}

/// The stored head, not verified yet.
pub(super) struct StoredHead {
    head: Head,
    checksum: Vec<u8>,
}

impl StoredHead {
    pub(super) fn check(self) -> Result<Head, JournalError> {
        if head_checksum(&self.head).0[..] != self.checksum[..] {
            return Err(damaged("head", "its checksum does not match".into()));
        }
        Ok(self.head)
    }
}

pub(super) fn read_head(connection: &Connection) -> rusqlite::Result<StoredHead> {
    let mut statement = connection
        .prepare_cached("SELECT sequence, position, hash, checksum FROM head WHERE only = 1")?;
    statement.query_row([], |row| {
        let head = Head {
            sequence: unsigned(row, 0)?,
            position: unsigned(row, 1)?,
            hash: digest(row, 2)?,
        };
        Ok(StoredHead { head, checksum: row.get(3)? })
    })
}

/// Bytes of one page of this file.
pub(super) fn page_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    connection.pragma_query_value(None, "page_size", |row| unsigned(row, 0))
}

/// Appends consecutive batches in one transaction, if the first follows the head. Returns the bytes
/// of rows written, or `None` if the head is another.
pub(super) fn append(
    connection: &Connection,
    batches: &[Arc<StoredBatch>],
) -> rusqlite::Result<Option<u64>> {
    let (Some(first), Some(last)) = (batches.first(), batches.last()) else { return Ok(Some(0)) };
    let head = last.head();
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    let moved = transaction
        .prepare_cached(
            "UPDATE head SET sequence = ?1, position = ?2, hash = ?3, checksum = ?4
             WHERE only = 1 AND sequence = ?5 AND hash = ?6",
        )?
        .execute(params![
            head.sequence.cast_signed(),
            head.position.cast_signed(),
            head.hash.0,
            head_checksum(&head).0,
            (first.sequence - 1).cast_signed(),
            first.previous.0,
        ])?;
    if moved == 0 {
        return Ok(None);
    }
    let bytes = insert(&transaction, batches)?;
    transaction.commit()?;
    Ok(Some(bytes))
}

/// Adds batches to the database of a copy, and moves its head.
pub(super) fn add(
    connection: &Connection,
    batches: &[Arc<StoredBatch>],
    head: Head,
) -> rusqlite::Result<()> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Exclusive)?;
    insert(&transaction, batches)?;
    move_head(&transaction, head)?;
    transaction.commit()
}

/// Returns the bytes of rows written.
pub(super) fn insert(
    connection: &Connection,
    batches: &[Arc<StoredBatch>],
) -> rusqlite::Result<u64> {
    let mut insert =
        connection.prepare_cached("INSERT INTO batch VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?;
    let mut bytes = 0;
    for batch in batches {
        bytes += batch.payload.len() + ROW_BYTES;
        insert.execute(params![
            batch.sequence.cast_signed(),
            batch.first_position.cast_signed(),
            i64::from(batch.records),
            batch.epoch.0.cast_signed(),
            batch.time.millis(),
            batch.previous.0,
            batch.hash.0,
            batch.payload,
        ])?;
    }
    Ok(bytes as u64)
}

pub(super) fn move_head(connection: &Connection, end: Head) -> rusqlite::Result<()> {
    connection.execute(
        "UPDATE head SET sequence = ?1, position = ?2, hash = ?3, checksum = ?4 WHERE only = 1",
        params![
            end.sequence.cast_signed(),
            end.position.cast_signed(),
            end.hash.0,
            head_checksum(&end).0,
        ],
    )?;
    Ok(())
}

/// Moves the log into the file as far as readers allow. Returns the number of pages left in it.
pub(super) fn checkpoint(connection: &Connection) -> rusqlite::Result<u64> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
        let (log, moved): (i64, i64) = (row.get(1)?, row.get(2)?);
        Ok(u64::try_from(log - moved).unwrap_or(0))
    })
}

/// Moves all of the log into the file and empties it. Returns false if the disk is full.
pub(super) fn restart_log(connection: &Connection) -> Result<bool, JournalError> {
    let moved = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(true));
    match moved {
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) => Ok(false),
        other => other.map_err(|error| failure("emptying the log", &error)),
    }
}

/// A number that was stored from 64 unsigned bits.
pub(super) fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(i64::cast_unsigned)
}

/// A stored hash.
pub(super) fn digest(row: &Row<'_>, column: usize) -> rusqlite::Result<Digest> {
    row.get(column).map(Digest)
}
