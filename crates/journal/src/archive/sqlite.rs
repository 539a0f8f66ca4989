//! The tables of an archive in a SQLite file beside the journal.

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bursar_core::digest::Digest;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};

use super::tables::{ArchiveMark, blocks_of, require_advance};
use super::{
    ArchiveContents, ArchiveFamily, ArchiveTables, EachBlock, FamilyCounts, GroupPlace, NewBlock,
    SealedRun,
};
use crate::chain::JournalId;
use crate::error::JournalError;

/// `BuAr`.
const APPLICATION_ID: i64 = 0x4275_4172;
const VERSION: i64 = 3;

const SCHEMA: &str = "
CREATE TABLE mark (one INTEGER PRIMARY KEY CHECK (one = 1), journal BLOB NOT NULL, position INTEGER NOT NULL,
  next_block INTEGER NOT NULL, batch INTEGER, hash BLOB, blocks_0 INTEGER NOT NULL, blocks_1 INTEGER NOT NULL,
  runs_0 INTEGER NOT NULL, runs_1 INTEGER NOT NULL) STRICT;
CREATE TABLE block (number INTEGER PRIMARY KEY, family INTEGER NOT NULL, newest_at INTEGER NOT NULL,
  body BLOB NOT NULL) STRICT;
CREATE INDEX block_of ON block (family, number);
CREATE TABLE run (number INTEGER PRIMARY KEY, family INTEGER NOT NULL, last_block INTEGER NOT NULL,
  newest_at INTEGER NOT NULL, filter BLOB NOT NULL, filters INTEGER, filter_column INTEGER, cells INTEGER) STRICT;
CREATE TABLE filters (place INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;
CREATE TABLE page (run INTEGER NOT NULL, first INTEGER NOT NULL, body BLOB NOT NULL) STRICT;
CREATE UNIQUE INDEX page_of ON page (run, first);
";

/// Idle connections that are kept for later reads.
const MAX_IDLE: usize = 16;

/// Tables in a SQLite file.
pub struct SqliteTables {
    path: PathBuf,
    writer: Mutex<Connection>,
    idle: Mutex<Vec<Connection>>,
}

fn failed(error: &rusqlite::Error) -> JournalError {
    JournalError::storage("using the archive", error.to_string())
}

/// A hash as SQLite orders it.
fn ordered(hash: u64) -> i64 {
    (hash ^ 1 << 63).cast_signed()
}

/// The place of a row of filters: that of its group, and its cell.
fn row_place(group: u32, cell: u32) -> i64 {
    (u64::from(group) << 32 | u64::from(cell)).cast_signed()
}

impl SqliteTables {
    /// Opens the file, or makes a new one.
    pub fn open(path: &Path, journal: JournalId) -> Result<SqliteTables, JournalError> {
        let made = std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        made.map_err(|error| JournalError::storage("opening the archive", error.to_string()))?;
        let writer = open_writer(path, journal).map_err(|error| failed(&error))??;
        let (writer, idle) = (Mutex::new(writer), Mutex::default());
        Ok(SqliteTables { path: path.to_owned(), writer, idle })
    }

    fn writer(&self) -> MutexGuard<'_, Connection> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes in one transaction.
    fn writing(
        &self,
        write: impl FnOnce(&Connection) -> rusqlite::Result<()>,
    ) -> Result<(), JournalError> {
        let writer = self.writer();
        let done = || {
            let transaction = writer.unchecked_transaction()?;
            write(&transaction)?;
            transaction.commit()
        };
        done().map_err(|error| failed(&error))
    }

    fn reading<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, JournalError> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = idle().pop();
        let connection = match taken {
            Some(connection) => connection,
            None => open_reader(&self.path).map_err(|error| failed(&error))?,
        };
        let found = read(&connection).map_err(|error| failed(&error))?;
        let mut idle = idle();
        if idle.len() < MAX_IDLE {
            idle.push(connection);
        }
        Ok(found)
    }
}

fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.pragma_update(None, "cache_size", -1024)?;
    Ok(connection)
}

fn open_writer(
    path: &Path,
    journal: JournalId,
) -> rusqlite::Result<Result<Connection, JournalError>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.pragma_update(None, "page_size", 8192)?;
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "full")?;
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    match (number("application_id")?, number("user_version")?) {
        (0, 0) => {
            let transaction = connection.unchecked_transaction()?;
            transaction.execute_batch(SCHEMA)?;
            transaction.execute(
                "INSERT INTO mark VALUES (1, ?1, 0, 0, NULL, NULL, 0, 0, 0, 0)",
                params![journal.0],
            )?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
            transaction.commit()?;
            return Ok(Ok(connection));
        }
        (APPLICATION_ID, VERSION) => {}
        (_, version) => {
            let reason = format!(
                "{}: not an archive of this build, which knows version {VERSION}, but of version \
                 {version}. Move it away: it is built again from the journal",
                path.display()
            );
            return Ok(Err(JournalError::Refused(reason)));
        }
    }
    let own: Vec<u8> = connection.query_row("SELECT journal FROM mark", [], |row| row.get(0))?;
    if own != journal.0 {
        let reason = format!("{}: the archive of another journal", path.display());
        return Ok(Err(JournalError::Refused(reason)));
    }
    Ok(Ok(connection))
}

impl ArchiveTables for SqliteTables {
    fn contents(&self) -> Result<ArchiveContents, JournalError> {
        let mut contents = ArchiveContents::default();
        let runs = self.reading(|connection| {
            let mark = "SELECT position, next_block, batch, hash, blocks_0, runs_0, blocks_1, runs_1 FROM mark";
            connection.query_row(mark, [], |row| {
                let number = |at: usize| row.get::<_, i64>(at).map(i64::cast_unsigned);
                let batch = row.get::<_, Option<i64>>(2)?.zip(row.get(3)?);
                let batch = batch.map(|(number, hash)| (number.cast_unsigned(), Digest(hash)));
                contents.mark = ArchiveMark { position: number(0)?, batch };
                contents.next_block = row.get(1)?;
                contents.counts = [
                    FamilyCounts { blocks: number(4)?, runs: number(5)? },
                    FamilyCounts { blocks: number(6)?, runs: number(7)? },
                ];
                Ok(())
            })?;
            let all = "SELECT number, last_block, newest_at, filter, filters, filter_column, cells, \
                 family FROM run ORDER BY number";
            let mut all = connection.prepare(all)?;
            let rows = all.query_map([], |row| {
                let group = match row.get(4)? {
                    Some(number) => {
                        Some(GroupPlace { number, column: row.get(5)?, cells: row.get(6)? })
                    }
                    None => None,
                };
                let run = SealedRun {
                    number: row.get(0)?,
                    family: ArchiveFamily::Objects,
                    last_block: row.get(1)?,
                    newest_at: row.get(2)?,
                    filter: row.get(3)?,
                    group,
                };
                Ok((run, row.get(7)?))
            })?;
            rows.collect::<rusqlite::Result<Vec<(SealedRun, i64)>>>()
        })?;
        for (run, of) in runs {
            contents.runs.push(SealedRun { family: ArchiveFamily::from_number(of)?, ..run });
        }
        Ok(contents)
    }

    fn append(&self, blocks: &[NewBlock], mark: ArchiveMark) -> Result<(), JournalError> {
        let ArchiveMark { position, batch } = mark;
        let writer = self.writer();
        let append = || -> rusqlite::Result<Result<(), JournalError>> {
            let transaction = writer.unchecked_transaction()?;
            let stored: i64 =
                transaction.query_row("SELECT position FROM mark", [], |row| row.get(0))?;
            if let Err(error) = require_advance(stored.cast_unsigned(), position) {
                return Ok(Err(error));
            }
            {
                let mut insert =
                    transaction.prepare_cached("INSERT INTO block VALUES (?1, ?2, ?3, ?4)")?;
                for NewBlock { number, family, newest_at, bytes } in blocks {
                    insert.execute(params![number, *family as i64, newest_at, bytes])?;
                }
            }
            let (batch, hash) = (batch.map(|of| of.0.cast_signed()), batch.map(|of| of.1.0));
            let added = ArchiveFamily::ALL.map(|family| blocks_of(blocks, family).cast_signed());
            transaction.execute(
                "UPDATE mark SET position = ?1, batch = ?2, hash = ?3, blocks_0 = blocks_0 + ?4,
                   blocks_1 = blocks_1 + ?5",
                params![position.cast_signed(), batch, hash, added[0], added[1]],
            )?;
            if let Some(last) = blocks.last() {
                transaction.execute("UPDATE mark SET next_block = ?1", params![last.number + 1])?;
            }
            transaction.commit()?;
            Ok(Ok(()))
        };
        append().map_err(|error| failed(&error))?
    }

    fn seal(&self, run: &SealedRun, pages: &[(u64, Vec<u8>)]) -> Result<(), JournalError> {
        self.writing(|transaction| {
            let SealedRun { number, family, last_block, newest_at, filter, .. } = run;
            transaction.execute(
                "INSERT INTO run VALUES (?1, ?2, ?3, ?4, ?5, NULL, NULL, NULL)",
                params![number, *family as i64, last_block, newest_at, filter],
            )?;
            let mut insert = transaction.prepare_cached("INSERT INTO page VALUES (?1, ?2, ?3)")?;
            for (first, page) in pages {
                insert.execute(params![number, ordered(*first), page])?;
            }
            let family = *family as usize;
            let counts =
                format!("UPDATE mark SET blocks_{family} = 0, runs_{family} = runs_{family} + 1");
            transaction.execute(&counts, [])?;
            Ok(())
        })
    }

    fn put_rows(&self, group: u32, rows: &[(u32, Vec<u8>)]) -> Result<(), JournalError> {
        self.writing(|transaction| {
            let mut insert =
                transaction.prepare_cached("INSERT OR REPLACE INTO filters VALUES (?1, ?2)")?;
            for (cell, row) in rows {
                insert.execute(params![row_place(group, *cell), row])?;
            }
            Ok(())
        })
    }

    fn group(&self, runs: &[(u32, GroupPlace)]) -> Result<(), JournalError> {
        self.writing(|transaction| {
            let mut update = transaction.prepare_cached(
                "UPDATE run SET filter = x'', filters = ?2, filter_column = ?3, cells = ?4
                 WHERE number = ?1",
            )?;
            for (run, GroupPlace { number, column, cells }) in runs {
                update.execute(params![run, number, column, cells])?;
            }
            Ok(())
        })
    }

    fn drop_run(&self, run: &SealedRun, emptied: Option<u32>) -> Result<(), JournalError> {
        self.writing(|transaction| {
            let gone =
                transaction.execute("DELETE FROM run WHERE number = ?1", params![run.number])?;
            let family = run.family as usize;
            let counts = format!("UPDATE mark SET runs_{family} = runs_{family} - ?1");
            transaction.execute(&counts, params![i64::from(gone > 0)])?;
            transaction.execute("DELETE FROM page WHERE run = ?1", params![run.number])?;
            transaction.execute(
                "DELETE FROM block WHERE number BETWEEN ?1 AND ?2 AND family = ?3",
                params![run.number, run.last_block, run.family as i64],
            )?;
            if let Some(group) = emptied {
                transaction.execute(
                    "DELETE FROM filters WHERE place BETWEEN ?1 AND ?2",
                    params![row_place(group, 0), row_place(group, u32::MAX)],
                )?;
            }
            Ok(())
        })
    }

    fn block(&self, family: ArchiveFamily, number: u32) -> Result<Option<Vec<u8>>, JournalError> {
        self.reading(|connection| {
            let block = "SELECT body FROM block WHERE number = ?1 AND family = ?2";
            let mut block = connection.prepare_cached(block)?;
            block.query_row(params![number, family as i64], |row| row.get(0)).optional()
        })
    }

    fn each_block(
        &self,
        family: ArchiveFamily,
        from: u32,
        each: &mut EachBlock<'_>,
    ) -> Result<(), JournalError> {
        self.reading(|connection| {
            let all = "SELECT number, newest_at, body FROM block INDEXED BY block_of
                       WHERE family = ?1 AND number >= ?2 ORDER BY number";
            let mut all = connection.prepare(all)?;
            let mut rows = all.query(params![family as i64, from])?;
            while let Some(row) = rows.next()? {
                let body: Vec<u8> = row.get(2)?;
                if let Err(error) = each(row.get(0)?, row.get(1)?, &body) {
                    return Ok(Err(error));
                }
            }
            Ok(Ok(()))
        })?
    }

    fn rows(&self, wanted: &[(u32, u32)]) -> Result<Vec<(u32, Vec<u8>)>, JournalError> {
        self.reading(|connection| {
            // One transaction, so that each row costs a search and no lock.
            let transaction = connection.unchecked_transaction()?;
            let row = "SELECT body FROM filters WHERE place = ?1";
            let mut row = transaction.prepare_cached(row)?;
            let mut found = Vec::with_capacity(wanted.len());
            for (group, cell) in wanted {
                let place = params![row_place(*group, *cell)];
                let body = row.query_row(place, |row| row.get(0)).optional()?;
                found.extend(body.map(|body| (*group, body)));
            }
            Ok(found)
        })
    }

    fn page(&self, run: u32, hash: u64) -> Result<Option<Vec<u8>>, JournalError> {
        self.reading(|connection| {
            let page =
                "SELECT body FROM page WHERE run = ?1 AND first <= ?2 ORDER BY first DESC LIMIT 1";
            let mut page = connection.prepare_cached(page)?;
            page.query_row(params![run, ordered(hash)], |row| row.get(0)).optional()
        })
    }

    fn clear(&self) -> Result<(), JournalError> {
        let writer = self.writer();
        let clear = "BEGIN IMMEDIATE; DELETE FROM block; DELETE FROM run; DELETE FROM page; DELETE FROM filters;
            UPDATE mark SET position = 0, next_block = 0, batch = NULL, hash = NULL, blocks_0 = 0, blocks_1 = 0,
              runs_0 = 0, runs_1 = 0; COMMIT;";
        writer.execute_batch(clear).map_err(|error| failed(&error))
    }
}
