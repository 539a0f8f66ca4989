//! A journal in one SQLite file, with a tail and sealed segments beside it, for one process.
//!
//! A batch is appended to the tail ([`tail`]), with one write and one sync, and is then durable.
//! Another thread moves batches from the tail into the database ([`SqliteJournal::compact`]), many in
//! one transaction, in WAL mode with `synchronous=FULL`. Readers have their own connections, and
//! get batches that are not in the database yet from memory, and old ones from sealed segments
//! ([`SqliteJournal::seal`]). A file beside the database is locked
//! for as long as the journal is open. The first failed write or sync stops the journal until the
//! process restarts: the contents of the disk are known only after the page cache was dropped and
//! everything was read again, at the next start.

mod archive;
pub mod backup;
mod database;
mod files;
mod inspect;
mod journal;
mod log;
mod newest;
mod rows;
mod schema;
mod seal;
mod segment_table;
mod stored;
mod tail;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bursar_seeded::{Bug, seeded};
use rusqlite::{ErrorCode, InterruptHandle};

use crate::chain::{Epoch, Head, JournalId, StoredBatch};
use crate::error::{AppendError, JournalError};
use crate::journal::MaintenanceUrgency;
use crate::record::Batch;
use crate::segment::{Places, SegmentMark, Segments};
use database::{Database, DatabaseError};
use files::{LockFile, SnapshotFiles};
use newest::Newest;
use rows::ReaderPool;
use stored::{sealed, shrink, stored_head};
use tail::{OccupiedRange, Tail, WriteError};

pub use archive::{archive, sealed_segments};
pub use inspect::{
    Expected, Inspected, REMEDY, cut_database, inspect, is_begun, tail_file, written_tail,
};

/// Options of a SQLite journal.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// The length of the tail at which an append waits until part of it is in the database.
    pub tail_bytes: u64,
    /// The pages of SQLite's log, of 4 KiB each, after which [`Journal::compact`] moves it into the
    /// file.
    pub checkpoint_pages: u32,
    /// Does not sync the tail and uses `synchronous=NORMAL`: loses acknowledged batches on power
    /// loss. Exists only so that the crash tests can prove that they notice.
    pub unsafe_normal_sync: bool,
}

impl Default for SqliteOptions {
    fn default() -> SqliteOptions {
        SqliteOptions { tail_bytes: 8 << 20, checkpoint_pages: 1_800, unsafe_normal_sync: false }
    }
}

/// A journal in SQLite: see the module documentation.
pub struct SqliteJournal {
    path: PathBuf,
    options: SqliteOptions,
    id: JournalId,
    /// Several of these three are always locked in this order.
    database: Mutex<Database>,
    writer: Mutex<Writer>,
    newest: Mutex<Newest>,
    /// An [`MaintenanceUrgency`], readable without a lock.
    urgency: AtomicU8,
    /// Why the journal has stopped.
    stopped: OnceLock<String>,
    /// Interrupts the current operation of the database.
    interrupt: Mutex<InterruptHandle>,
    readers: Arc<ReaderPool>,
    snapshots: SnapshotFiles,
    segments: Arc<Segments<Places>>,
    /// Held while a segment is sealed.
    sealing: Mutex<()>,
    /// The last batch up to which there was too little for a segment.
    looked_until: AtomicU64,
    // Last, so that the lock is released after every connection is closed.
    _lock: LockFile,
}

/// Locked during an append.
struct Writer {
    tail: Tail,
    /// The epoch that may append.
    epoch: Epoch,
}

impl SqliteJournal {
    /// Opens the journal at `path`, or creates it.
    ///
    /// # Errors
    /// Rejects a second process, a SQLite with the WAL-reset race, an unknown format, a head that
    /// does not match the last batch, and a tail with a missing batch.
    pub fn open(path: &Path, options: SqliteOptions) -> Result<SqliteJournal, JournalError> {
        schema::check_library()?;
        let lock = LockFile::take(path)?;
        files::make_private(path)?;
        files::drop_page_cache(path)?;
        // Without syncs more than one transaction may be torn, and this would be a false alarm.
        if !options.unsafe_normal_sync {
            log::check(path)?;
        }
        let connection = schema::open_writer(path, &options)?;
        let id = schema::create_or_check(&connection)?;
        shrink(&connection)?;
        // If the log could not be emptied now, it is emptied at the next opportunity.
        let log_bytes = if schema::restart_log(&connection)? { 0 } else { u64::MAX };
        let epoch = schema::read_ownership(&connection)
            .map_err(|error| failure("reading the lease", &error))?
            .epoch;
        let readers = Arc::new(ReaderPool::new(path));
        let head = stored_head(&readers, id)?;
        let segments =
            Arc::new(Segments::new(Places::of(path, id), id, sealed(&readers, id, head)?));
        let tail = Tail::open(path, id, options.tail_bytes, !options.unsafe_normal_sync)?;
        let newest = Newest::recover(&tail, head)?;
        if !options.unsafe_normal_sync {
            inspect::check_tail(path, (&tail, options.tail_bytes), &readers, head)?;
        }
        files::sync_directory(path)?;
        let journal = SqliteJournal {
            path: path.to_owned(),
            options,
            id,
            interrupt: Mutex::new(connection.get_interrupt_handle()),
            database: Mutex::new(Database::new(connection, log_bytes)?),
            writer: Mutex::new(Writer { tail, epoch }),
            newest: Mutex::new(newest),
            urgency: AtomicU8::new(0),
            stopped: OnceLock::new(),
            readers,
            snapshots: SnapshotFiles::new(path, id),
            segments,
            sealing: Mutex::new(()),
            looked_until: AtomicU64::new(0),
            _lock: lock,
        };
        match journal.move_tail() {
            Ok(()) => {}
            // The batches are safe in the tail, and reads are still served.
            Err(AppendError::Full(_)) => return Ok(journal),
            Err(error) => {
                return Err(JournalError::storage("moving the tail into the file", error));
            }
        }
        journal.mark_tail()?;
        Ok(journal)
    }

    /// Writes a frame into the tail of every journal that has a batch, so that an empty tail is
    /// known to be damaged. A new tail, and that of a copy, gets the last batch, which the database
    /// has as well.
    fn mark_tail(&self) -> Result<(), JournalError> {
        let head = self.newest().head;
        let mut writer = self.writer();
        if head.sequence == 0 || writer.tail.was_written()? {
            return Ok(());
        }
        let last = self
            .readers
            .with("reading a batch", |connection| rows::read_one(connection, head.sequence))?;
        let Some(last) = last else { return Ok(()) };
        match writer.tail.place(last.payload.len(), None, None) {
            // A batch too large for the tail was never in it.
            None => Ok(()),
            Some(place) => match writer.tail.write(place, last) {
                Ok(written) => {
                    self.newest().frame = Some(OccupiedRange::from(&written));
                    Ok(())
                }
                Err(WriteError::Full(_)) => Ok(()),
                Err(WriteError::Failed(error)) => Err(JournalError::io("writing the tail", error)),
            },
        }
    }

    fn database(&self) -> MutexGuard<'_, Database> {
        // A panic inside at worst leaves a transaction open, which the next one rolls back.
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        // A panic inside at worst leaves a torn frame, in a place that is written again.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn newest(&self) -> MutexGuard<'_, Newest> {
        // Nothing that holds this lock can panic half way.
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_running(&self) -> Result<(), JournalError> {
        match self.stopped.get() {
            Some(reason) => Err(JournalError::Stopped(reason.clone())),
            None => Ok(()),
        }
    }

    /// Stops the journal: only a new process may use these files again.
    fn stop(&self, reason: String) -> AppendError {
        let reason = self.stopped.get_or_init(|| reason).clone();
        self.interrupt.lock().unwrap_or_else(PoisonError::into_inner).interrupt();
        AppendError::Unknown(JournalError::Stopped(reason).to_string())
    }

    fn append_batch(
        &self,
        epoch: Epoch,
        expected: Head,
        batch: Batch,
    ) -> Result<Head, AppendError> {
        let mut batch = expected.followed_by(epoch, batch);
        loop {
            match self.append_to_tail(expected, batch)? {
                Appended::Done(head) => return Ok(head),
                Appended::NoRoom(back) => batch = back,
            }
            self.move_tail()?;
            if batch.payload.len() as u64 > tail::largest_payload(self.options.tail_bytes) {
                return self.append_to_database(expected, batch);
            }
        }
    }

    fn append_to_tail(&self, expected: Head, batch: StoredBatch) -> Result<Appended, AppendError> {
        let mut writer = self.writer();
        // Only the holder of the writer's lock adds to these. Batches moved meanwhile make more
        // room.
        let (head, occupied, frame) = {
            let newest = self.newest();
            (newest.head, newest.occupied(), newest.frame)
        };
        self.check_turn(&writer, batch.epoch, expected, head)?;
        let Some(place) = writer.tail.place(batch.payload.len(), occupied, frame) else {
            return Ok(Appended::NoRoom(batch));
        };
        let head = batch.head();
        let waiting = writer.tail.write(place, batch).map_err(|error| match error {
            WriteError::Full(error) => AppendError::Full(error.to_string()),
            WriteError::Failed(error) => self.stop(error.to_string()),
        })?;
        let mut newest = self.newest();
        newest.push(waiting);
        self.look(&newest);
        Ok(Appended::Done(head))
    }

    /// Appends a batch that is too large for the tail.
    fn append_to_database(&self, expected: Head, batch: StoredBatch) -> Result<Head, AppendError> {
        let mut database = self.database();
        let writer = self.writer();
        let head = self.newest().head;
        self.check_turn(&writer, batch.epoch, expected, head)?;
        let batch = Arc::new(batch);
        self.store(&mut database, std::slice::from_ref(&batch))?;
        self.newest().head = batch.head();
        Ok(batch.head())
    }

    fn check_turn(
        &self,
        writer: &Writer,
        epoch: Epoch,
        expected: Head,
        head: Head,
    ) -> Result<(), AppendError> {
        self.check_running().map_err(|error| AppendError::Unknown(error.to_string()))?;
        let is_older = writer.epoch != epoch && !seeded(Bug::AppendsWithoutEpoch);
        if is_older || head != expected {
            return Err(AppendError::Fenced { epoch });
        }
        Ok(())
    }

    /// Moves all waiting batches from the tail into the database.
    fn move_tail(&self) -> Result<(), AppendError> {
        let mut database = self.database();
        self.check_running().map_err(|error| AppendError::Unknown(error.to_string()))?;
        let batches: Vec<_> =
            self.newest().waiting.iter().map(|waiting| Arc::clone(&waiting.batch)).collect();
        self.store(&mut database, &batches)?;
        let mut newest = self.newest();
        newest.waiting.drain(..batches.len());
        self.look(&newest);
        Ok(())
    }

    fn store(
        &self,
        database: &mut Database,
        batches: &[Arc<StoredBatch>],
    ) -> Result<(), AppendError> {
        let stored = database.store(batches, self.checkpoint_bytes());
        stored.map_err(|trouble| self.trouble(database, trouble))
    }

    fn checkpoint_bytes(&self) -> u64 {
        u64::from(self.options.checkpoint_pages) << 12
    }

    /// Stops the journal after a failed write or sync of the database.
    fn trouble(&self, database: &mut Database, trouble: DatabaseError) -> AppendError {
        match trouble {
            DatabaseError::Failed(reason) => {
                database.close();
                self.stop(reason)
            }
            other => other.into(),
        }
    }

    /// The sealed segments, oldest first.
    pub fn segments(&self) -> Vec<SegmentMark> {
        self.segments.list()
    }

    /// Where the segments are.
    pub fn segment_places(&self) -> &Places {
        self.segments.store()
    }

    /// Records how much work there is for [`Journal::compact`].
    fn look(&self, newest: &Newest) {
        let urgency = match newest.occupied() {
            None => MaintenanceUrgency::None,
            Some(occupied) if occupied.is_half_of(self.options.tail_bytes) => {
                MaintenanceUrgency::Now
            }
            Some(_) => MaintenanceUrgency::Soon,
        };
        self.urgency.store(urgency as u8, Ordering::Relaxed);
    }
}

/// The result of an append to the tail.
enum Appended {
    Done(Head),
    /// The batch is returned.
    NoRoom(StoredBatch),
}

/// Converts an error of SQLite.
fn failure(doing: &'static str, error: &rusqlite::Error) -> JournalError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            JournalError::Damaged { part: "file", reason: format!("{doing}: {error}") }
        }
        Some(ErrorCode::DiskFull) => JournalError::full(doing, error),
        _ => JournalError::storage(doing, error),
    }
}

impl Drop for SqliteJournal {
    fn drop(&mut self) {
        // One file then contains everything after a clean stop. If it fails, the tail has the
        // batches.
        let _ = self.move_tail();
    }
}
