//! `bursar admin backup` and `restore` of a store in PostgreSQL. Backups have the same form as
//! those of a data folder, so each can be restored into the other.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bursar_audit::Report;
use bursar_core::ledger::Ledger;
use bursar_core::time::Timestamp;
use bursar_engine::cut::check_marks;
use bursar_engine::{DirectoryCodec, replay_from_genesis};
use bursar_journal::backup::import;
use bursar_journal::postgres::{PostgresJournal, PostgresOptions, PostgresStore};
use bursar_journal::{Head, Journal, JournalError};

use super::check::Heads;
use super::{BackupError, KEY, LOGS, SetBack, StagingFolder, Watch};
use crate::machines::ledgers::shard_named;
use crate::store::{DIRECTORY, LEDGER, Manifest, make_folder};

/// The options of a machine's journal in the database.
pub type OptionsOf<'a> = &'a dyn Fn(&str) -> PostgresOptions;

/// Copies the journals of a PostgreSQL store into a backup.
pub fn backup(
    options: OptionsOf<'_>,
    local: &LocalFiles<'_>,
    target: &Path,
    watch: &dyn Watch,
) -> Result<Report, BackupError> {
    let store = PostgresStore::open(options("store"))?;
    let making = StagingFolder::begin(target)?;
    if let Some(key) = local.key {
        super::copy_key(key, store.signer(), making.path())?;
    }
    // Before the journals, so that none is of an attempt behind the cut.
    if let Some(state) = local.state {
        let logs = state.join(LOGS);
        if !logs.is_dir() {
            let next = "give the folder of `bursar serve --state`";
            return Err(BackupError::new(logs.display(), "there is no such folder").with_next(next));
        }
        super::copy_all_logs(&logs, making.path())?;
    }
    let copy = |machine: &str| -> Result<(), BackupError> {
        let journal = PostgresJournal::open_to_read(options(machine))?;
        let file = Manifest::file(making.path(), machine);
        let batches = journal.read(Head::genesis(journal.id()))?;
        import(&file, journal.id(), batches)?;
        Ok(())
    };
    let known = machines_in(options)?;
    for machine in &known {
        copy(machine)?;
    }
    // Those that were opened meanwhile. What they know of later records is trimmed like any other's.
    for machine in machines(&super::open(making.path(), DIRECTORY)?)? {
        if !known.contains(&machine) {
            copy(&machine)?;
        }
    }
    let mut manifest = Manifest::new()?;
    manifest.incarnation_base = store.incarnation_base();
    manifest.signer = store.signer().map(str::to_owned);
    super::conclude(making, Some(manifest), watch)
}

/// The machines of a store in PostgreSQL, in the order in which they are copied.
pub(super) fn machines_in(options: OptionsOf<'_>) -> Result<Vec<String>, BackupError> {
    machines(&PostgresJournal::open_to_read(options(DIRECTORY))?)
}

fn machines(directory: &dyn Journal) -> Result<Vec<String>, BackupError> {
    let known = replay_from_genesis(directory, &DirectoryCodec)?.machine;
    // A shard that was just added has no machine yet.
    let ledgers = known.last_made_shard().saturating_add(1);
    Ok(super::in_order(ledgers, known.regions().map(ToString::to_string)))
}

/// Where the parts of a store are that a database does not keep.
pub struct LocalFiles<'a> {
    /// The file of the key that signs checkpoints.
    pub key: Option<&'a Path>,
    /// The folder of `bursar serve --state`.
    pub state: Option<&'a Path>,
}

/// Restores a backup into an empty database, as a new store that no agent knows yet.
pub fn restore(
    backup: &Path,
    options: OptionsOf<'_>,
    until: Option<Timestamp>,
    local: &LocalFiles<'_>,
    watch: &dyn Watch,
) -> Result<Report, BackupError> {
    let (manifest, known) = super::read_backup(backup)?;
    let (key, logs) = local.check(backup, watch)?;
    // The journals are verified in a copy, because opening one creates files beside it.
    let folder = tempfile::tempdir()?;
    super::copy_machines(backup, &known, folder.path())?;
    let SetBack { report, generation, heads, books } =
        super::set_back(folder.path(), until, manifest.incarnation_base, watch)?;
    let mut journals = Vec::new();
    for (machine, _, _) in &heads {
        journals.push((machine.as_str(), super::open(folder.path(), machine)?));
    }
    let journals: Vec<(&str, &dyn Journal)> =
        journals.iter().map(|(machine, journal)| (*machine, journal as &dyn Journal)).collect();
    // Before the database, which cannot be restored twice. A missing place or a full disk is found
    // by then, and these files are removed again if the database is not restored.
    let mut placed = Placed::default();
    if let Some((key, bytes)) = key {
        placed.write_key(key, &bytes)?;
    }
    let signer = match local.key {
        Some(_) => super::signer_of(&backup.join(KEY))?,
        None => None,
    };
    if let Some(logs) = &logs {
        placed.copy_logs(backup, logs, &books)?;
    }
    let store = options("store");
    if let Err(error) = PostgresStore::restore(&store, &journals, generation, signer.as_deref()) {
        let failure = BackupError::from(error.clone());
        return Err(if is_unknown(&error) { placed.leave(failure) } else { failure });
    }
    // From here on the database is restored, whatever is found when it is read again.
    placed.keep()?;
    read_again(options, &heads).map_err(|error| {
        let (Some(logs), Some(next)) = (&logs, error.next()) else { return error };
        let place = logs.display();
        let next = format!("{next}. Remove {place} before the backup is restored again");
        error.with_next(next)
    })?;
    Ok(report)
}

/// Whether it is unknown if the database was restored.
pub(super) fn is_unknown(error: &JournalError) -> bool {
    matches!(error, JournalError::Storage { doing: PostgresStore::ENDING, .. })
}

/// Files written beside a database that is being restored. Removed on drop unless they are kept.
#[derive(Default)]
pub(super) struct Placed {
    key: Option<PathBuf>,
    /// The temporary name of the folder, and its final one.
    logs: Option<(PathBuf, PathBuf)>,
}

impl Placed {
    pub(super) fn write_key(&mut self, place: &Path, bytes: &[u8]) -> Result<(), BackupError> {
        let failed = |error: std::io::Error| BackupError::new(place.display(), error.to_string());
        let mut options = OpenOptions::new();
        let mut file =
            options.write(true).create_new(true).mode(0o600).open(place).map_err(failed)?;
        self.key = Some(place.to_owned());
        file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed)
    }

    fn copy_logs(
        &mut self,
        backup: &Path,
        place: &Path,
        books: &[Ledger],
    ) -> Result<(), BackupError> {
        let meanwhile = place.with_extension("restoring");
        self.logs = Some((meanwhile.clone(), place.to_owned()));
        super::copy_logs(backup, &meanwhile, books)
    }

    /// The output of all jobs, also of those that ended long ago.
    pub(super) fn copy_every_log(&mut self, data: &Path, place: &Path) -> Result<(), BackupError> {
        let meanwhile = place.with_extension("restoring");
        self.logs = Some((meanwhile.clone(), place.to_owned()));
        super::copy_files(&data.join(LOGS), &meanwhile)
    }

    /// Leaves everything in place, because the database may have been restored.
    pub(super) fn leave(mut self, failure: BackupError) -> BackupError {
        self.key = None;
        match self.logs.take() {
            None => failure,
            Some((meanwhile, place)) => failure.with_next(format!(
                "if the database is restored, rename {} to {}; if not, restore again",
                meanwhile.display(),
                place.display()
            )),
        }
    }

    pub(super) fn keep(mut self) -> Result<(), BackupError> {
        self.key = None;
        let Some((meanwhile, place)) = self.logs.take() else { return Ok(()) };
        fs::rename(&meanwhile, &place).map_err(|error| {
            let next = format!(
                "all else is restored: rename {} to {}",
                meanwhile.display(),
                place.display()
            );
            BackupError::new(place.display(), error.to_string()).with_next(next)
        })
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        // If a file cannot be removed, the next restore names it.
        if let Some(key) = &self.key {
            let _ = fs::remove_file(key);
        }
        if let Some((meanwhile, _)) = &self.logs {
            let _ = fs::remove_dir_all(meanwhile);
        }
    }
}

/// Reads every stored batch and compares the result with what was verified.
pub(super) fn read_again(options: OptionsOf<'_>, heads: &Heads) -> Result<(), BackupError> {
    let wrong = |machine: &str, reason: String| {
        let reason = format!("the database does not hold what was restored: {reason}");
        BackupError::because(format!("{machine}: {reason}"))
            .with_next("drop the database, make an empty one and restore again")
    };
    let unread = |machine: &str, error: JournalError| match error {
        JournalError::Storage { .. } | JournalError::Full { .. } => {
            let reason = format!("{machine}: the database is restored and could not be read again");
            BackupError::new(reason, error).with_next("look at it: bursar audit verify --store URL")
        }
        other => wrong(machine, other.to_string()),
    };
    let (mut ledgers, mut cells) = (Vec::new(), Vec::new());
    for (machine, id, head) in heads {
        let failed = |error| unread(machine, error);
        let journal = PostgresJournal::open_to_read(options(machine)).map_err(failed)?;
        let mut batches = journal.read(Head::genesis(*id)).map_err(failed)?;
        for batch in batches.by_ref() {
            batch.map_err(failed)?;
        }
        if batches.head() != *head {
            return Err(wrong(machine, "it ends elsewhere".into()));
        }
        match machine.strip_prefix("cell-") {
            Some(region) => cells.push((region, journal)),
            None => ledgers.extend(shard_named(machine).map(|shard| (shard, journal))),
        }
    }
    let cells: Vec<(&str, &dyn Journal)> =
        cells.iter().map(|(region, journal)| (*region, journal as &dyn Journal)).collect();
    ledgers.sort_by_key(|(shard, _)| *shard);
    let ledgers: Vec<&dyn Journal> =
        ledgers.iter().map(|(_, journal)| journal as &dyn Journal).collect();
    if ledgers.is_empty() {
        return Err(wrong(LEDGER, "it is missing".into()));
    }
    check_marks(&ledgers, &cells).map_err(|error| wrong("store", error.describe("")))
}

/// A file to write, and its contents.
pub(super) type NewFile<'a> = (&'a Path, Vec<u8>);

impl LocalFiles<'_> {
    /// Checks, before anything is written, that everything has a place. Reports what is left out.
    pub(super) fn check(
        &self,
        backup: &Path,
        watch: &dyn Watch,
    ) -> Result<(Option<NewFile<'_>>, Option<PathBuf>), BackupError> {
        let mut key = None;
        if backup.join(KEY).is_file() {
            let bytes = fs::read(backup.join(KEY))?;
            match self.key {
                None => watch.note(
                    "the key that signs checkpoints is not restored: give --checkpoint-key FILE, the \
                     file beside the root key"
                ),
                Some(place) => match fs::read(place) {
                    Ok(there) if there == bytes => {}
                    Ok(_) => {
                        let next = "move it away, or leave --checkpoint-key out to keep it";
                        let reason = "there is another key in this file";
                        return Err(BackupError::new(place.display(), reason).with_next(next));
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                        key = Some((place, bytes));
                    }
                    Err(error) => {
                        let next = "give a file that can be read, or one that is not there yet";
                        let reason = error.to_string();
                        return Err(BackupError::new(place.display(), reason).with_next(next));
                    }
                },
            }
        }
        let mut logs = None;
        if backup.join(LOGS).is_dir() {
            match self.state {
                None => watch.note(
                    "what jobs printed is not restored: give --state DIR, the folder of `bursar serve \
                     --state`"
                ),
                Some(state) => {
                    let place = state.join(LOGS);
                    if place.exists() {
                        let next = "give an empty folder";
                        return Err(
                            BackupError::new(place.display(), "it is there already").with_next(next)
                        );
                    }
                    let left = place.with_extension("restoring");
                    if left.exists() {
                        let reason = "it is left of a restore that was cut off";
                        let next = format!(
                            "if the database was restored by it, rename it to {}; if not, remove it",
                            place.display()
                        );
                        return Err(BackupError::new(left.display(), reason).with_next(next));
                    }
                    make_folder(state)?;
                    logs = Some(place);
                }
            }
        }
        Ok((key, logs))
    }
}
