//! The files beside the database: the lock and the snapshots.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use crate::chain::JournalId;
use crate::error::JournalError;
use crate::journal::no_snapshot;
use crate::snapshot::{KEPT_SNAPSHOTS, Snapshot, SnapshotMark};

/// `path` with a suffix.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Held for as long as the journal is open. The operating system releases it when a process dies.
/// Both the database and the lock file beside it, which names the holder, are locked: deleting the
/// lock file lets no other process in.
pub(super) struct LockFile {
    _file: File,
    _database: File,
}

impl LockFile {
    pub(super) fn take(path: &Path) -> Result<LockFile, JournalError> {
        let storage = |error: io::Error| JournalError::io("locking the journal", error);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(beside(path, ".lock")).map_err(storage)?;
        let locked = |lock: Result<(), TryLockError>, file: &mut File| match lock {
            Ok(()) => Ok(()),
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Only for the message: the refusal does not depend on it.
                let known = file.read_to_string(&mut holder).is_ok() && !holder.is_empty();
                let holder = if known { holder } else { "process unknown".into() };
                Err(JournalError::Locked { journal: path.display().to_string(), holder })
            }
            Err(TryLockError::Error(error)) => Err(storage(error)),
        };
        locked(file.try_lock(), &mut file)?;
        // SQLite's own locks are of another kind and do not conflict with this one. They would be
        // lost if a file of the database was closed while it is in use, so this one is closed last.
        let database = options.open(path).map_err(storage)?;
        locked(database.try_lock(), &mut file)?;
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| write!(file, "process {}", std::process::id()))
            .map_err(storage)?;
        Ok(LockFile { _file: file, _database: database })
    }
}

/// Makes the files readable by their owner only. Files that SQLite creates beside the database
/// inherit its permissions.
pub(super) fn make_private(path: &Path) -> Result<(), JournalError> {
    for file in [path.to_owned(), beside(path, "-wal"), beside(path, "-shm"), beside(path, "-tail")]
    {
        match fs::set_permissions(&file, fs::Permissions::from_mode(0o600)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(JournalError::io("keeping the journal from others", error));
            }
        }
    }
    Ok(())
}

/// Makes the next reads come from the disk. After a failed sync the kernel keeps pages in memory
/// that the disk never received. They must not be trusted.
pub(super) fn drop_page_cache(path: &Path) -> Result<(), JournalError> {
    for file in [path.to_owned(), beside(path, "-wal"), beside(path, "-tail")] {
        match File::open(&file) {
            Ok(file) => posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)
                .map_err(|error| JournalError::storage("dropping the page cache", error))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(JournalError::io("opening the journal", error)),
        }
    }
    Ok(())
}

/// Makes the names of new files in the directory of `path` durable.
pub(super) fn sync_directory(path: &Path) -> Result<(), JournalError> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(|error| JournalError::io("syncing the journal's directory", error))
}

/// Snapshots as files, so that a large state never passes through the log.
pub(super) struct SnapshotFiles {
    path: PathBuf,
    id: JournalId,
}

impl SnapshotFiles {
    pub(super) fn new(path: &Path, id: JournalId) -> SnapshotFiles {
        SnapshotFiles { path: path.to_owned(), id }
    }

    fn file(&self, mark: SnapshotMark) -> PathBuf {
        // Twenty digits hold every u64, so names sort like numbers.
        beside(&self.path, &format!(".snapshot-{:020}", mark.sequence))
    }

    pub(super) fn put(&self, snapshot: &Snapshot) -> Result<(), JournalError> {
        let storage = |error: io::Error| JournalError::io("writing a snapshot", error);
        let temporary = beside(&self.path, ".snapshot.tmp");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&temporary).map_err(storage)?;
        for part in snapshot.encoded(self.id) {
            file.write_all(&part).map_err(storage)?;
        }
        file.sync_all().map_err(storage)?;
        fs::rename(&temporary, self.file(snapshot.mark())).map_err(storage)?;
        sync_directory(&self.path)?;
        for old in self.list()?.into_iter().skip(KEPT_SNAPSHOTS) {
            fs::remove_file(self.file(old)).map_err(storage)?;
        }
        Ok(())
    }

    pub(super) fn list(&self) -> Result<Vec<SnapshotMark>, JournalError> {
        let storage = |error: io::Error| JournalError::io("listing snapshots", error);
        let prefix = beside(&self.path, ".snapshot-");
        let (Some(directory), Some(prefix)) = (prefix.parent(), prefix.file_name()) else {
            return Ok(Vec::new());
        };
        let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        let mut marks = Vec::new();
        for entry in fs::read_dir(directory).map_err(storage)? {
            let name = entry.map_err(storage)?.file_name();
            let number = name
                .to_str()
                .zip(prefix.to_str())
                .and_then(|(name, prefix)| name.strip_prefix(prefix)?.parse().ok());
            marks.extend(number.map(|sequence| SnapshotMark { sequence }));
        }
        marks.sort_unstable_by(|a, b| b.cmp(a));
        Ok(marks)
    }

    pub(super) fn get(&self, mark: SnapshotMark) -> Result<Snapshot, JournalError> {
        match fs::read(self.file(mark)) {
            Ok(bytes) => Snapshot::decode(&bytes, self.id, mark),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(no_snapshot(mark)),
            // A file that a disk does not give once it does not give later either: an older one is read.
            Err(error) => {
                let reason = format!("at batch {}: {error}", mark.sequence);
                Err(JournalError::Damaged { part: "snapshot", reason })
            }
        }
    }
}
