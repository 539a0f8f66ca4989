//! A journal in one SQLite file, for one process.
//!
//! WAL mode with `synchronous=FULL`: every commit is one sync of the log. One connection writes,
//! another moves the log into the file ([`SqliteJournal::tidy`]) while batches are appended; readers
//! have connections of their own.
//! A file beside the database is locked by the operating system for as long as the journal is open.
//! The first failed write or sync stops the journal for the life of the process: what the disk holds
//! then is only known after the page cache was dropped and everything was read again, at the next
//! start.

mod files;
mod log;
mod rows;
mod schema;
mod tidier;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, InterruptHandle};

use crate::chain::{Epoch, Head, JournalId};
use crate::error::{AppendError, JournalError, LeaseError};
use crate::journal::{BatchReader, Journal, Lease, Pending, checked_head};
use crate::record::Batch;
use crate::snapshot::{Snapshot, SnapshotMark};
use files::{LockFile, SnapshotFiles};
use rows::{ReaderPool, Rows};
use tidier::Tidier;

/// How to open a SQLite journal.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// After how many pages of log [`Journal::tidy`] moves it into the file.
    pub checkpoint_pages: u32,
    /// `synchronous=NORMAL`: loses acknowledged batches on power loss. Only there so that the crash
    /// tests can show that they notice.
    pub unsafe_normal_sync: bool,
}

impl Default for SqliteOptions {
    fn default() -> SqliteOptions {
        SqliteOptions { checkpoint_pages: 1_800, unsafe_normal_sync: false }
    }
}

/// See the module's documentation.
pub struct SqliteJournal {
    path: PathBuf,
    options: SqliteOptions,
    id: JournalId,
    /// Whoever locks both locks the tidier first.
    tidier: Mutex<Tidier>,
    writer: Mutex<Writer>,
    /// About how many pages the log has. Changed only under the writer's lock.
    log_pages: AtomicU32,
    readers: Arc<ReaderPool>,
    snapshots: SnapshotFiles,
    // Last, so that the lock is given up after every connection is closed.
    _lock: LockFile,
}

struct Writer {
    connection: Option<Connection>,
    /// Why nothing may be done any more.
    stopped: Option<String>,
    /// Stops the tidier in the middle of its work.
    tidying: InterruptHandle,
}

impl SqliteJournal {
    /// Opens the journal at `path`, or creates it.
    ///
    /// # Errors
    /// Refuses a second process, a SQLite with the WAL-reset race, a format it does not know, and a
    /// head that does not match the last batch.
    pub fn open(path: &Path, options: SqliteOptions) -> Result<SqliteJournal, JournalError> {
        schema::check_library()?;
        let lock = LockFile::take(path)?;
        files::drop_page_cache(path)?;
        // Without syncs more than one transaction may be torn, and this would be a false alarm.
        if !options.unsafe_normal_sync {
            log::check(path)?;
        }
        let connection = schema::open_writer(path, &options)?;
        let id = schema::create_or_check(&connection)?;
        let tidier = Tidier::open(path, &options)?;
        // If it could not be emptied now, the first chance is taken.
        let log_pages = if tidier.restart_log()? { 0 } else { u32::MAX };
        files::sync_directory(path)?;
        let readers = Arc::new(ReaderPool::new(path));
        let snapshots = SnapshotFiles::new(path, id);
        let tidying = tidier.interrupt_handle();
        let writer = Writer { connection: Some(connection), stopped: None, tidying };
        let journal = SqliteJournal {
            path: path.to_owned(),
            options,
            id,
            tidier: Mutex::new(tidier),
            writer: Mutex::new(writer),
            log_pages: AtomicU32::new(log_pages),
            readers,
            snapshots,
            _lock: lock,
        };
        journal.check_tail()?;
        Ok(journal)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        // A panic inside leaves a transaction open at worst, which the next one rolls back.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The head row and the last batch must agree, or one of them is damaged.
    fn check_tail(&self) -> Result<(), JournalError> {
        let head = self.head()?;
        if self.head_at(head.sequence)? != head {
            let reason = "it is not the batch that the journal's head names".into();
            return Err(JournalError::Corrupt { sequence: head.sequence, reason });
        }
        Ok(())
    }

    fn with_writer<T>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, JournalError> {
        let mut writer = self.writer();
        let connection = writer.connection()?;
        work(connection).map_err(|error| writer.note(&error).unwrap_or(failure(doing, &error)))
    }
}

impl Writer {
    fn connection(&self) -> Result<&Connection, JournalError> {
        if let Some(reason) = &self.stopped {
            return Err(JournalError::Stopped(reason.clone()));
        }
        self.connection
            .as_ref()
            .ok_or_else(|| JournalError::storage("using the journal", "it must be reopened"))
    }

    /// Stops for good on the first input/output error.
    fn note(&mut self, error: &rusqlite::Error) -> Option<JournalError> {
        if error.sqlite_error_code() != Some(ErrorCode::SystemIoFailure) {
            return None;
        }
        Some(self.stop(error.to_string()))
    }

    /// From here on only a new process may touch these files.
    fn stop(&mut self, reason: String) -> JournalError {
        // Closing neither writes nor syncs (see `schema::open_writer`).
        self.connection = None;
        self.tidying.interrupt();
        JournalError::Stopped(self.stopped.get_or_insert(reason).clone())
    }

    /// Appends one batch; says what the new head is and about how many pages the log grew.
    fn append(
        &mut self,
        epoch: Epoch,
        expected: Head,
        batch: &Batch,
    ) -> Result<(Head, u32), AppendError> {
        let unknown = |error: JournalError| AppendError::Unknown(error.to_string());
        let connection = self.connection().map_err(unknown)?;
        let error = match schema::append(connection, epoch, expected, batch) {
            Ok(Some(appended)) => return Ok(appended),
            Ok(None) => return Err(AppendError::Fenced { epoch }),
            Err(error) => error,
        };
        if let Some(stopped) = self.note(&error) {
            return Err(unknown(stopped));
        }
        match error.sqlite_error_code() {
            // The transaction was rolled back: its commit mark was never written.
            Some(ErrorCode::DiskFull) => Err(AppendError::Full(error.to_string())),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Err(AppendError::Corrupt(failure("appending a batch", &error)))
            }
            _ => {
                self.connection = None;
                Err(AppendError::Unknown(error.to_string()))
            }
        }
    }
}

/// The words of a SQLite error as one of ours.
fn failure(doing: &'static str, error: &rusqlite::Error) -> JournalError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            JournalError::Damaged { part: "file", reason: format!("{doing}: {error}") }
        }
        _ => JournalError::storage(doing, error),
    }
}

impl Journal for SqliteJournal {
    fn id(&self) -> JournalId {
        self.id
    }

    fn head(&self) -> Result<Head, JournalError> {
        let stored = self.readers.with("reading the head", schema::read_head)?;
        stored.check()
    }

    fn begin_append(&self, epoch: Epoch, expected: Head, batch: Batch) -> Pending {
        let mut writer = self.writer();
        Pending::Done(writer.append(epoch, expected, &batch).map(|(head, pages)| {
            let pages = self.log_pages.load(Ordering::Relaxed).saturating_add(pages);
            self.log_pages.store(pages, Ordering::Relaxed);
            head
        }))
    }

    fn is_untidy(&self) -> bool {
        self.log_pages.load(Ordering::Relaxed) >= self.options.checkpoint_pages
    }

    fn tidy(&self) -> Result<(), AppendError> {
        if !self.is_untidy() {
            return Ok(());
        }
        self.move_log().map_err(|error| AppendError::Unknown(error.to_string()))
    }

    fn read(&self, after: Head) -> Result<BatchReader, JournalError> {
        let until = self.head()?;
        let rows = Rows::new(Arc::clone(&self.readers), after.sequence, until.sequence);
        Ok(BatchReader::new(Box::new(rows), after, until))
    }

    fn head_at(&self, sequence: u64) -> Result<Head, JournalError> {
        if sequence == 0 {
            return Ok(Head::genesis(self.id));
        }
        let row = self
            .readers
            .with("reading a batch", |connection| rows::read_one(connection, sequence))?;
        checked_head(sequence, row)
    }

    fn reopen(&self) -> Result<(), JournalError> {
        // Not in the middle of moving the log.
        let tidier = self.tidier();
        let mut writer = self.writer();
        if let Some(reason) = &writer.stopped {
            return Err(JournalError::Stopped(reason.clone()));
        }
        writer.connection = None;
        self.readers.clear();
        writer.connection = Some(schema::open_writer(&self.path, &self.options)?);
        drop(writer);
        drop(tidier);
        self.check_tail()
    }

    fn acquire_lease(&self, holder: &str, ttl: Duration) -> Result<Lease, LeaseError> {
        // The lock file already keeps other processes out: whoever asks here gets it.
        let epoch = self.with_writer("taking the lease", |connection| {
            let owned = schema::read_ownership(connection)?;
            let next = owned.taken_by(holder);
            schema::write_ownership(connection, self.id, &next)?;
            Ok(next.epoch)
        })?;
        Ok(Lease { epoch, holder: holder.to_owned(), ttl })
    }

    fn renew_lease(&self, lease: &Lease) -> Result<(), LeaseError> {
        let owned = self.with_writer("renewing the lease", schema::read_ownership)?;
        if owned.epoch != lease.epoch {
            return Err(LeaseError::Lost { epoch: lease.epoch });
        }
        Ok(())
    }

    fn release_lease(&self, lease: &Lease) -> Result<(), LeaseError> {
        self.renew_lease(lease)
    }

    fn put_snapshot(&self, snapshot: &Snapshot) -> Result<(), JournalError> {
        self.snapshots.put(snapshot)
    }

    fn list_snapshots(&self) -> Result<Vec<SnapshotMark>, JournalError> {
        self.snapshots.list()
    }

    fn get_snapshot(&self, mark: SnapshotMark) -> Result<Snapshot, JournalError> {
        self.snapshots.get(mark)
    }
}
