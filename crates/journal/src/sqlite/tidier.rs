//! Moving the log into the file while batches are appended.
//!
//! SQLite lets one connection write and another checkpoint. What is moved in that way is on the disk
//! only after a sync of the file, and SQLite leaves that out when the log has grown meanwhile: the log
//! is not begun anew then, so nothing is lost, but whoever moves the rest pays for the sync of all.
//! So the file is synced here, and then the rest, which is short, is moved while nobody appends.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use rusqlite::{Connection, InterruptHandle};

use super::{SqliteJournal, SqliteOptions, schema};
use crate::error::JournalError;

/// What the log is moved with.
pub(super) struct Tidier {
    connection: Connection,
    /// The file itself. Closed after the connection, because closing any handle of a file gives up
    /// the locks that this process has on it.
    file: File,
}

/// Why the log could not be moved.
enum Trouble {
    Database(rusqlite::Error),
    Sync(std::io::Error),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Trouble {
        Trouble::Database(error)
    }
}

impl Tidier {
    /// For the journal at `path`, which exists.
    pub(super) fn open(path: &Path, options: &SqliteOptions) -> Result<Tidier, JournalError> {
        let connection = schema::open_writer(path, options)?;
        let file = File::open(path)
            .map_err(|error| JournalError::storage("opening the journal", error))?;
        Ok(Tidier { connection, file })
    }

    pub(super) fn interrupt_handle(&self) -> InterruptHandle {
        self.connection.get_interrupt_handle()
    }

    /// Moves all of the log into the file and empties it. False if the disk is too full for that.
    pub(super) fn restart_log(&self) -> Result<bool, JournalError> {
        schema::restart_log(&self.connection)
    }

    /// Moves what is in the log by now, durably, while others append.
    fn move_most(&self) -> Result<(), Trouble> {
        // If nobody appended meanwhile, SQLite has synced the file already.
        if schema::checkpoint(&self.connection)? > 0 {
            self.file.sync_data().map_err(Trouble::Sync)?;
        }
        Ok(())
    }
}

impl SqliteJournal {
    pub(super) fn tidier(&self) -> MutexGuard<'_, Tidier> {
        // A panic inside leaves a checkpoint unfinished at worst, which the next one continues.
        self.tidier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the log into the file, most of it while batches are appended, the rest between two.
    pub(super) fn move_log(&self) -> Result<(), JournalError> {
        let tidier = self.tidier();
        self.writer().connection()?;
        let moved = tidier.move_most();
        let mut writer = self.writer();
        // Stopped meanwhile: nothing may be touched any more.
        writer.connection()?;
        let left = moved.and_then(|()| Ok(schema::checkpoint(&tidier.connection)?));
        let left = match left {
            // A reader may hold part of the log back; the next round gets it.
            Ok(left) => left,
            Err(Trouble::Sync(error)) => return Err(writer.stop(error.to_string())),
            Err(Trouble::Database(error)) => match writer.note(&error) {
                Some(stopped) => return Err(stopped),
                // Disk full or busy: the log keeps everything, and the next round tries again.
                None => 0,
            },
        };
        self.log_pages.store(left, Ordering::Relaxed);
        Ok(())
    }
}
