//! Checks and exports a SQLite journal, even while a server has it open.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use thiserror::Error;

use crate::report::Report;
use crate::source::SqliteSource;
use crate::verify::{Progress, verify, verify_chain};

/// Why a journal was not checked or exported.
#[derive(Debug, Error)]
pub enum CheckError {
    /// A file could not be written.
    #[error("{doing} {path}: {error}")]
    File {
        /// The failed action.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// SQLite returned an error.
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

fn database_error<E: ToString>(doing: &'static str, path: &Path) -> impl FnOnce(E) -> CheckError {
    let path = path.to_owned();
    move |error| CheckError::Database { doing, path, reason: error.to_string() }
}

/// Checks the file as a database and the journal in it, from the first record to the last.
pub fn check(journal: &Path, progress: impl FnMut(Progress)) -> Result<Report, CheckError> {
    check_database(journal)?;
    let source = SqliteSource::open(journal).map_err(database_error("opening", journal))?;
    Ok(verify(&source, None, progress))
}

fn check_database(journal: &Path) -> Result<(), CheckError> {
    let connection = open_read_only(journal)?;
    let mut words: Vec<String> = Vec::new();
    connection
        .pragma_query(None, "integrity_check", |row| {
            words.push(row.get(0)?);
            Ok(())
        })
        .map_err(database_error("checking", journal))?;
    if words != ["ok"] {
        return Err(CheckError::Database {
            doing: "checking",
            path: journal.to_owned(),
            reason: words.join("; "),
        });
    }
    Ok(())
}

/// Checks a cell's file as a database and the chain of the journal in it.
pub fn check_cell(journal: &Path, progress: impl FnMut(Progress)) -> Result<Report, CheckError> {
    check_database(journal)?;
    let source = SqliteSource::open(journal).map_err(database_error("opening", journal))?;
    Ok(verify_chain(&source, progress))
}

/// Writes every record of a ledger's or a cell's journal as a line of JSON. Returns the number of
/// lines.
pub fn export(
    journal: &Path,
    of: crate::export::JournalKind,
    out: &mut dyn Write,
    progress: impl FnMut(Progress),
) -> Result<u64, CheckError> {
    let source = SqliteSource::open(journal).map_err(database_error("opening", journal))?;
    crate::export::export(&source, of, out, progress).map_err(|error| CheckError::File {
        doing: "exporting",
        path: journal.to_owned(),
        error,
    })
}

fn open_read_only(path: &Path) -> Result<Connection, CheckError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection =
        Connection::open_with_flags(path, flags).map_err(database_error("opening", path))?;
    connection.busy_timeout(Duration::from_secs(5)).map_err(database_error("opening", path))?;
    Ok(connection)
}
