//! The state of a store in a database, as the manifest has it for a data folder: see
//! [`crate::store`]. It is checked before anything is written.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bursar_engine::cut::{CutError, check_marks};
use bursar_journal::postgres::{PostgresOptions, PostgresStore};
use bursar_journal::{Journal, JournalError};

use crate::config::Config;
use crate::followers::checkpoint;
use crate::start::{CellJournals, StartError};

/// How often journals that do not fit together are read: a previous owner may have had appends in
/// progress during the first read.
const MAX_READS: u32 = 3;
/// How long to wait between two reads, so that those appends end.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Refuses a key that is not the one which signs the checkpoints of a database, also if there is none:
/// servers of one database have one key, and a new one would make outsiders doubt what the others sign.
pub(crate) fn check_signer(config: &Config, known: Option<&str>) -> Result<(), StartError> {
    let Some(known) = known else { return Ok(()) };
    // With a database it lies beside the root key.
    let file = checkpoint::key_file(config, Path::new(""));
    let read = checkpoint::read_key(&file);
    let key = read.map_err(|error| StartError::Io { what: file.display().to_string(), error })?;
    let found = match key.as_ref().map(checkpoint::public_key) {
        Some(found) if found == known => return Ok(()),
        None if config.new_checkpoint_key => return Ok(()),
        Some(found) => format!("its public key is {found}, and"),
        None => "the file is missing, and".to_owned(),
    };
    Err(StartError::Store(JournalError::Refused(format!(
        "{}: {found} the checkpoints of this store were signed under {known}. Nothing was changed. Put \
         back the file as it was, or copy it from another server of this store. If it is lost, see that \
         there is no such file and start once with --new-checkpoint-key: outsiders must be given the new \
         public key, and other servers the new file",
        file.display()
    ))))
}

/// Checks the signing key before a server asks for the lead: a server that cannot lead does not stand by either.
/// A database that holds no store has no key. Opening it reports what is wrong.
pub(crate) fn check_signer_at(
    config: &Config,
    options: &PostgresOptions,
) -> Result<(), StartError> {
    match PostgresStore::signer_at(options) {
        Ok(known) => check_signer(config, known.as_deref()),
        Err(_) => Ok(()),
    }
}

/// A database that this server leads.
pub(crate) struct Database {
    store: PostgresStore,
    holder: String,
}

impl Database {
    /// Opens a database and rejects an incomplete one. Writes nothing.
    pub(crate) fn look(options: PostgresOptions, holder: &str) -> Result<Database, StartError> {
        let store = PostgresStore::open(options).map_err(StartError::Store)?;
        Ok(Database { store, holder: holder.to_owned() })
    }

    /// Rejects journals of which one is older than another, unless the last server stopped cleanly.
    /// `followed` compares the states that followed the journals, if all of them did.
    pub(crate) fn check_marks(
        &self,
        ledgers: &[Arc<dyn Journal>],
        cells: &CellJournals,
        followed: impl FnOnce() -> Option<Result<(), CutError>>,
    ) -> Result<(), StartError> {
        if self.store.was_clean() {
            return Ok(());
        }
        let cells: Vec<_> =
            cells.iter().map(|(region, journal)| (region.as_str(), &**journal)).collect();
        let ledgers: Vec<_> = ledgers.iter().map(|ledger| &**ledger).collect();
        let mut outcome = followed().unwrap_or_else(|| check_marks(&ledgers, &cells));
        for _ in 1..MAX_READS {
            if !matches!(outcome, Err(CutError::Older { .. })) {
                break;
            }
            std::thread::sleep(RETRY_INTERVAL);
            outcome = check_marks(&ledgers, &cells);
        }
        outcome.map_err(|error| {
            StartError::Other(format!(
                "the database: {}. No record was written. Put back the tables as they were, or \
                 restore the last backup into an empty database: bursar admin restore BACKUP --store \
                 URL",
                error.describe("")
            ))
        })
    }

    /// Records that this server starts, or that it stopped cleanly. If that fails, the next start
    /// checks the journals again.
    pub(crate) fn note(&self, clean: bool) {
        if let Err(error) = self.store.note(&self.holder, clean) {
            tracing::warn!(%error, clean, "the manifest could not be written");
        }
    }

    /// Refuses a key that is not the one which signs its checkpoints.
    pub(crate) fn check_signer(&self, config: &Config) -> Result<(), StartError> {
        check_signer(config, self.store.signer())
    }

    /// Stores the key that signs checkpoints. A key that cannot be stored is not used: the next server would
    /// make its own.
    pub(crate) fn note_signer(&self, public_key: &str) -> Result<(), StartError> {
        if self.store.signer() == Some(public_key) {
            return Ok(());
        }
        if let Some(before) = self.store.signer() {
            tracing::error!(
                before,
                public_key,
                "a new key that signs checkpoints was made, as --new-checkpoint-key says: give \
                 outsiders its public key, and other servers of this store the file"
            );
        }
        self.store.note_signer(&self.holder, public_key).map_err(StartError::Store)
    }

    /// What the numbers of agents' starts are counted from.
    pub(crate) fn incarnation_base(&self) -> u32 {
        self.store.incarnation_base()
    }
}

/// Where history is. It is made from the journal, so it can be dropped and built again, which takes long.
pub(crate) struct HistoryFile {
    folder: PathBuf,
    /// Servers may share a folder; one of them has the files.
    _lock: Option<File>,
}

impl HistoryFile {
    /// History in a folder that only this process uses.
    pub(crate) fn in_folder(folder: &Path) -> HistoryFile {
        HistoryFile { folder: folder.to_owned(), _lock: None }
    }

    /// History in the folder of what outlives the process; in a temporary one if another process has it:
    /// a server that lost the lead goes on reading.
    pub(crate) fn in_state(state: &Path, temporary: &Path) -> HistoryFile {
        let place = state.join("history.lock");
        let mut options = OpenOptions::new();
        let opened = options.append(true).create(true).mode(0o600).open(&place);
        let locked = opened.map_err(TryLockError::Error).and_then(|file| {
            file.try_lock()?;
            Ok(file)
        });
        match locked {
            Ok(lock) => HistoryFile { _lock: Some(lock), ..HistoryFile::in_folder(state) },
            Err(error) => {
                tracing::warn!(
                    file = %place.display(), %error,
                    "history cannot be taken, or another process has it: it is built again in a \
                     temporary folder"
                );
                HistoryFile::in_folder(temporary)
            }
        }
    }

    /// The file.
    pub(crate) fn path(&self, shard: u16) -> PathBuf {
        match shard {
            0 => self.folder.join("history.db"),
            other => self.folder.join(format!("history-{other}.db")),
        }
    }
}

/// Names what a restore left beside the output of jobs when it was cut off after the database was there.
pub(crate) fn warn_of_cut_off_restore(logs: &Path) {
    let left = logs.with_extension("restoring");
    if left.exists() {
        tracing::warn!(
            left = %left.display(), logs = %logs.display(),
            "a restore was cut off before it gave the output of jobs its place. If this is the store \
             that it restored, stop the server, move what is in the first folder into the second and \
             remove the first; if not, remove it"
        );
    }
}
