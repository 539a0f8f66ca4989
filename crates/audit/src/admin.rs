//! Copies, restores, checks and exports a SQLite journal, also while a server has it open.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use thiserror::Error;

use crate::report::Report;
use crate::source::{self, SqliteSource};
use crate::verify::{Progress, verify, verify_chain};

/// Pages copied in one step.
const STEP_PAGES: i32 = 1024;

/// Why a journal was not copied, restored, checked or exported.
#[derive(Debug, Error)]
pub enum AdminError {
    /// A file could not be read or written.
    #[error("{doing} {path}: {error}")]
    File {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// SQLite could not do it.
    #[error("{doing} {path}: {reason}")]
    Database {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// What SQLite said.
        reason: String,
    },
    /// There is something where the copy should go.
    #[error("{0} is not empty: nothing is ever overwritten, choose another place")]
    NotEmpty(PathBuf),
    /// The copy is not a good journal.
    #[error("the copy is not a good journal: {0}")]
    Bad(String),
}

fn file_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> AdminError {
    let path = path.to_owned();
    move |error| AdminError::File { doing, path, error }
}

fn database_error<E: ToString>(doing: &'static str, path: &Path) -> impl FnOnce(E) -> AdminError {
    let path = path.to_owned();
    move |error| AdminError::Database { doing, path, reason: error.to_string() }
}

/// How far an operation has come: pages while copying, then records while verifying.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Pages copied, of so many.
    Copied {
        /// So far.
        pages: u64,
        /// In all.
        of: u64,
    },
    /// Records verified.
    Verified(Progress),
}

/// Copies a journal into one new file, consistent as of one instant, and verifies the copy. The
/// server that has the journal open goes on writing.
pub fn backup(
    journal: &Path,
    target: &Path,
    mut progress: impl FnMut(Step),
) -> Result<Report, AdminError> {
    backup_with(journal, target, &mut progress, verified)
}

/// Copies a cell's journal into one new file, consistent as of one instant, and verifies its chain.
pub fn backup_cell(
    journal: &Path,
    target: &Path,
    mut progress: impl FnMut(Step),
) -> Result<Report, AdminError> {
    backup_with(journal, target, &mut progress, chained)
}

fn backup_with<P: FnMut(Step)>(
    journal: &Path,
    target: &Path,
    progress: &mut P,
    check: impl FnOnce(&Path, &mut P) -> Result<Report, AdminError>,
) -> Result<Report, AdminError> {
    if target.exists() {
        return Err(AdminError::NotEmpty(target.to_owned()));
    }
    let partial = beside(target, ".partial");
    let copied = copy_database(journal, &partial, &mut *progress)
        .and_then(|()| check(&partial, &mut *progress))
        .and_then(|report| {
            sync(&partial)?;
            fs::rename(&partial, target).map_err(file_error("naming", target))?;
            sync_parent(target)?;
            Ok(report)
        });
    if copied.is_err() {
        // The first error is the one to tell; a leftover is named so that nobody takes it for a copy.
        let _ = fs::remove_file(&partial);
    }
    copied
}

/// Copies a journal into one new file, consistent as of one instant, as it is: nothing is verified.
pub fn copy(journal: &Path, target: &Path) -> Result<(), AdminError> {
    copy_database(journal, target, &mut |_| {})
}

/// Puts a backup into an empty directory as `name` and verifies it there.
pub fn restore(
    backup: &Path,
    directory: &Path,
    name: &str,
    mut progress: impl FnMut(Step),
) -> Result<Report, AdminError> {
    fs::create_dir_all(directory).map_err(file_error("making", directory))?;
    let mut entries = fs::read_dir(directory).map_err(file_error("reading", directory))?;
    if entries.next().is_some() {
        return Err(AdminError::NotEmpty(directory.to_owned()));
    }
    let target = directory.join(name);
    let partial = beside(&target, ".partial");
    let restored = fs::copy(backup, &partial)
        .map_err(file_error("copying", backup))
        .and_then(|_| verified(&partial, &mut progress))
        .and_then(|report| {
            sync(&partial)?;
            fs::rename(&partial, &target).map_err(file_error("naming", &target))?;
            sync_parent(&target)?;
            Ok(report)
        });
    if restored.is_err() {
        // As above.
        let _ = fs::remove_file(&partial);
    }
    restored
}

/// Checks the file as a database and the journal in it, from the first record to the last.
pub fn check(journal: &Path, mut progress: impl FnMut(Step)) -> Result<Report, AdminError> {
    check_database(journal)?;
    let source = SqliteSource::open(journal).map_err(database_error("opening", journal))?;
    Ok(verify(&source, None, |records| progress(Step::Verified(records))))
}

fn check_database(journal: &Path) -> Result<(), AdminError> {
    let connection = open_read_only(journal)?;
    let mut words: Vec<String> = Vec::new();
    connection
        .pragma_query(None, "integrity_check", |row| {
            words.push(row.get(0)?);
            Ok(())
        })
        .map_err(database_error("checking", journal))?;
    if words != ["ok"] {
        return Err(AdminError::Database {
            doing: "checking",
            path: journal.to_owned(),
            reason: words.join("; "),
        });
    }
    Ok(())
}

/// Checks a cell's file as a database and the chain of the journal in it.
pub fn check_cell(journal: &Path, mut progress: impl FnMut(Step)) -> Result<Report, AdminError> {
    check_database(journal)?;
    let source = SqliteSource::open(journal).map_err(database_error("opening", journal))?;
    Ok(verify_chain(&source, |records| progress(Step::Verified(records))))
}

fn chained(path: &Path, progress: &mut impl FnMut(Step)) -> Result<Report, AdminError> {
    let source = SqliteSource::open(path).map_err(database_error("opening", path))?;
    let report = verify_chain(&source, |records| progress(Step::Verified(records)));
    match &report.problem {
        None => Ok(report),
        Some(problem) => Err(AdminError::Bad(problem.to_string())),
    }
}

/// Writes every record of a ledger's or a cell's journal as a line of JSON. Returns how many.
pub fn export(
    journal: &Path,
    of: crate::export::Of,
    out: &mut dyn Write,
    mut progress: impl FnMut(Step),
) -> Result<u64, AdminError> {
    let source = SqliteSource::open(journal).map_err(database_error("opening", journal))?;
    crate::export::export(&source, of, out, |records| progress(Step::Verified(records)))
        .map_err(file_error("exporting", journal))
}

fn verified(path: &Path, progress: &mut impl FnMut(Step)) -> Result<Report, AdminError> {
    let source = SqliteSource::open(path).map_err(database_error("opening", path))?;
    let report = verify(&source, None, |records| progress(Step::Verified(records)));
    match &report.problem {
        None => Ok(report),
        Some(problem) => Err(AdminError::Bad(problem.to_string())),
    }
}

fn open_read_only(path: &Path) -> Result<Connection, AdminError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection =
        Connection::open_with_flags(path, flags).map_err(database_error("opening", path))?;
    connection.busy_timeout(Duration::from_secs(5)).map_err(database_error("opening", path))?;
    Ok(connection)
}

fn copy_database(
    journal: &Path,
    target: &Path,
    progress: &mut impl FnMut(Step),
) -> Result<(), AdminError> {
    let from = open_read_only(journal)?;
    // One read transaction around the whole copy: what is written meanwhile is not seen, so the
    // copy never has to start again, however busy the journal is.
    let (_, stored, behind) =
        source::begin(&from, journal).map_err(database_error("reading", journal))?;
    let mut to = Connection::open(target).map_err(database_error("making", target))?;
    let copying = database_error::<rusqlite::Error>;
    {
        let backup = Backup::new(&from, &mut to).map_err(copying("copying", journal))?;
        loop {
            let step = backup.step(STEP_PAGES).map_err(copying("copying", journal))?;
            let count = backup.progress();
            let number = |pages: i32| u64::try_from(pages).unwrap_or(0);
            let (left, of) = (number(count.remaining), number(count.pagecount));
            progress(Step::Copied { pages: of.saturating_sub(left), of });
            match step {
                StepResult::Done => break,
                StepResult::More => {}
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
    let head = behind.head(stored);
    source::add(&mut to, &behind.batches, head).map_err(copying("finishing", target))?;
    // One file that needs no log beside it; a server that opens it switches back.
    to.pragma_update(None, "journal_mode", "delete")
        .or_else(|error| match error {
            rusqlite::Error::ExecuteReturnedResults => Ok(()),
            other => Err(other),
        })
        .map_err(copying("finishing", target))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn sync(path: &Path) -> Result<(), AdminError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(file_error("syncing", path))
}

fn sync_parent(path: &Path) -> Result<(), AdminError> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    sync(parent)
}
