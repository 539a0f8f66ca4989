//! `bursar admin backup` and `restore`: a whole store, at one consistent cut, in one folder.

mod archive;
pub mod cells;
mod check;
mod cut;
mod error;
mod files;
pub mod migrate;
pub mod postgres;
mod set_back;

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bursar_audit::{Progress, Report};
use bursar_core::time::Timestamp;
use bursar_engine::cut::CellJournal;
use bursar_journal::archive::{copy_archive, fits};
use bursar_journal::sqlite::{self, SqliteJournal, SqliteOptions};
use bursar_journal::{Head, Journal, backup as copies};

use crate::machines::ledgers::{ledger_name, shard_named};
use crate::store::{DIRECTORY, MANIFEST, Manifest, archive_file, make_folder};
pub use archive::{archive, archive_database};
use cells::cell_files;
use check::{Checked, check};
pub use check::{check_directory, say_ledger};
use cut::{remove_beside, trim};
pub use error::BackupError;
use files::{copy_all_logs, copy_files, copy_key, copy_logs, signer_of, sync_all};
use set_back::{SetBack, check_end, set_back};

/// The file of the key that signs checkpoints.
const KEY: &str = "checkpoint.key";
/// The folder of the output of jobs.
const LOGS: &str = "logs";
/// Files that an open journal has beside its own and a backup does not need.
const OPEN_JOURNAL_SUFFIXES: [&str; 4] = ["-wal", "-shm", "-tail", ".lock"];

/// Receives the progress and the results of a backup or a restore.
pub trait Watch {
    /// Reports the progress of the verification.
    fn verified(&self, progress: Progress);

    /// Prints a line of the result.
    fn say(&self, line: &str) -> Result<(), BackupError>;

    /// Prints a line beside the result.
    fn note(&self, line: &str);
}

/// The ledger's journal in a data folder.
pub fn ledger_file(data: &Path) -> Result<PathBuf, BackupError> {
    let file = data.join("ledger-0.db");
    if file.is_file() {
        Ok(file)
    } else if data.join(MANIFEST).is_file() {
        let next = "put it back as it was, or restore the last backup into an empty folder: bursar \
                    admin restore BACKUP --data DIR";
        Err(BackupError::new(file.display(), "the file is missing").with_next(next))
    } else {
        let next = "give --data the folder that `bursar serve --data` was given";
        Err(BackupError::new(data.display(), "there is no ledger in this folder").with_next(next))
    }
}

/// Rejects a folder whose files differ from its manifest, as a server would. The check is repeated,
/// because a folder in use may change while it is read.
pub fn check_folder(data: &Path) -> Result<(), BackupError> {
    let Some(first) = Manifest::read(data)? else { return Ok(()) };
    let mut outcome = first.check(data);
    for _ in 0..MAX_TRIES {
        if outcome.is_ok() {
            break;
        }
        std::thread::sleep(RETRY_INTERVAL);
        outcome = first.check(data);
    }
    outcome?;
    Ok(())
}

/// How often a folder is checked again.
const MAX_TRIES: u32 = 20;
/// How long to wait before each repetition.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// A temporary folder inside the target in which everything is prepared. A failure before the end
/// leaves an empty target.
struct StagingFolder {
    folder: tempfile::TempDir,
    target: PathBuf,
}

impl StagingFolder {
    fn begin(target: &Path) -> Result<StagingFolder, BackupError> {
        if target.exists() && fs::read_dir(target).map_or(true, |mut all| all.next().is_some()) {
            return Err(BackupError::NotEmpty(target.to_owned()));
        }
        make_folder(target)?;
        // Readable by the owner only, and on the file system of the target.
        let folder = tempfile::Builder::new().prefix(".making-").tempdir_in(target)?;
        Ok(StagingFolder { folder, target: target.to_owned() })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Moves everything into the target, the manifest first: while a file that it names is missing,
    /// the folder is rejected.
    fn finish(self) -> Result<(), BackupError> {
        sync_all(self.path())?;
        fs::rename(self.path().join(MANIFEST), self.target.join(MANIFEST))?;
        File::open(&self.target)?.sync_all()?;
        for entry in fs::read_dir(self.path())? {
            let entry = entry?;
            fs::rename(entry.path(), self.target.join(entry.file_name()))?;
        }
        drop(self.folder);
        File::open(&self.target)?.sync_all()?;
        Ok(())
    }
}

/// Whether a place, which need not exist, lies in an existing folder.
fn is_inside(place: &Path, folder: &Path) -> Result<bool, BackupError> {
    let place = std::path::absolute(place)?;
    let existing = place.ancestors().find(|ancestor| ancestor.exists());
    let existing = existing.unwrap_or(Path::new("/"));
    Ok(fs::canonicalize(existing)?.starts_with(fs::canonicalize(folder)?))
}

/// Copies the store of a folder, also while a server has it open.
pub fn backup(
    data: &Path,
    target: &Path,
    logs: bool,
    watch: &dyn Watch,
) -> Result<Report, BackupError> {
    ledger_file(data)?;
    check_folder(data)?;
    if is_inside(target, data)? {
        let why = format!("{} lies in the folder that it would save", target.display());
        let next = "choose a place outside of it, best on another disk";
        return Err(BackupError::because(why).with_next(next));
    }
    let making = StagingFolder::begin(target)?;
    // First, so that there is no output of an attempt after the cut.
    if logs && data.join(LOGS).is_dir() {
        copy_all_logs(&data.join(LOGS), making.path())?;
    }
    // Before the journals, so that it has nothing of later records.
    copy_closed(data, making.path(), watch)?;
    for machine in machines(data)? {
        let copy = Manifest::file(making.path(), &machine);
        copies::copy(&Manifest::file(data, &machine), &copy, |_| {})?;
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o600))?;
    }
    let manifest = Manifest::read(data)?;
    let signer = manifest.as_ref().and_then(|manifest| manifest.signer.as_deref());
    copy_key(&data.join(KEY), signer, making.path())?;
    conclude(making, manifest, watch)
}

/// Copies the archive of what was closed. It can be built again, so a backup does not fail for it.
fn copy_closed(from: &Path, folder: &Path, watch: &dyn Watch) -> Result<(), BackupError> {
    for name in (0..ledgers(from)?).map(archive_file) {
        let (archive, copy) = (from.join(&name), folder.join(&name));
        if !archive.is_file() {
            continue;
        }
        if let Err(error) = copy_archive(&archive, &copy) {
            watch.note(&format!("{name} is left out, and built again from the journal: {error}"));
            remove_archive(&copy);
        }
    }
    Ok(())
}

/// Removes a copy of the archive that has more than the copy of the journal.
fn drop_unfit_archive(folder: &Path) -> Result<(), BackupError> {
    for shard in 0..ledgers(folder)? {
        let file = folder.join(archive_file(shard));
        if file.is_file() && !fits(&file, &open(folder, &ledger_name(shard))?).unwrap_or(false) {
            remove_archive(&file);
        }
        remove_beside(&file);
    }
    Ok(())
}

fn remove_archive(file: &Path) {
    // A missing file need not be removed.
    let _ = fs::remove_file(file);
    remove_beside(file);
}

/// Trims the copies to the largest consistent cut, checks them and moves them into the target.
fn conclude(
    making: StagingFolder,
    known: Option<Manifest>,
    watch: &dyn Watch,
) -> Result<Report, BackupError> {
    let folder = making.path();
    trim(folder)?;
    let Checked { report, heads, .. } = check(folder, watch)?;
    drop_unfit_archive(folder)?;
    for machine in machines(folder)? {
        let file = Manifest::file(folder, &machine);
        let head = heads.iter().find(|(name, _, _)| *name == machine).map(|(_, _, head)| *head);
        copies::truncate(&file, head.expect("every machine was checked"))?;
        remove_beside(&file);
    }
    let mut manifest = match known {
        Some(manifest) => manifest,
        None => Manifest::new()?,
    };
    if let Some(found) = signer_of(&folder.join(KEY))? {
        manifest.signer = Some(found);
    }
    manifest.machines.clear();
    manifest.clean = true;
    manifest.backup = true;
    manifest.set_moved(false);
    for (name, id, head) in &heads {
        manifest.note(name, *id, *head, None);
    }
    manifest.write(folder)?;
    making.finish()?;
    Ok(report)
}

/// Restores a backup into an empty folder, as a new store that no agent knows yet. `until`: without
/// later records.
pub fn restore(
    backup: &Path,
    data: &Path,
    until: Option<Timestamp>,
    watch: &dyn Watch,
) -> Result<Report, BackupError> {
    let (manifest, known) = read_backup(backup)?;
    let making = StagingFolder::begin(data)?;
    let mut restored = Manifest::new()?;
    copy_machines(backup, &known, making.path())?;
    restored.earlier_signers.clone_from(&manifest.earlier_signers);
    if backup.join(KEY).is_file() {
        copy_key(&backup.join(KEY), manifest.signer.as_deref(), making.path())?;
        restored.signer = signer_of(&backup.join(KEY))?;
    } else {
        // A server makes a new key. What the old one signed is still verified under it.
        restored.earlier_signers.extend(manifest.signer.clone());
    }
    for name in (0..ledgers(backup)?).map(archive_file) {
        if backup.join(&name).is_file() {
            let copy = making.path().join(&name);
            fs::copy(backup.join(&name), &copy)?;
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o600))?;
        }
    }
    let SetBack { report, generation, heads, books } =
        set_back(making.path(), until, manifest.incarnation_base, watch)?;
    drop_unfit_archive(making.path())?;
    if backup.join(LOGS).is_dir() {
        copy_logs(backup, &making.path().join(LOGS), &books)?;
    }
    restored.incarnation_base = generation;
    for (name, id, head) in &heads {
        let tail = sqlite::written_tail(&Manifest::file(making.path(), name), *id)?;
        restored.note(name, *id, *head, tail);
    }
    restored.clean = true;
    restored.write(making.path())?;
    making.finish()?;
    Ok(report)
}

/// The manifest of a backup, and the head of each of its journals.
fn read_backup(backup: &Path) -> Result<(Manifest, Vec<(String, Head)>), BackupError> {
    let Some(manifest) = Manifest::read(backup)? else {
        let reason = "it is not a backup: there is no manifest.json in it";
        let next = "give the folder that `bursar admin backup` made";
        return Err(BackupError::new(backup.display(), reason).with_next(next));
    };
    let known = manifest.check(backup)?;
    Ok((manifest, known))
}

/// Copies the journals of a backup into the folder in which they are prepared.
fn copy_machines(
    backup: &Path,
    known: &[(String, Head)],
    folder: &Path,
) -> Result<(), BackupError> {
    for machine in machines(backup)? {
        let copy = Manifest::file(folder, &machine);
        fs::copy(Manifest::file(backup, &machine), &copy)?;
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o600))?;
        copies::copy_segments(&Manifest::file(backup, &machine), &copy)?;
        let end = known.iter().find(|(name, _)| *name == machine).map(|(_, head)| *head);
        check_end(backup, &copy, end)?;
    }
    Ok(())
}

/// The machines of a folder in the order in which they are copied: the cells, the ledger, the
/// directory.
fn machines(folder: &Path) -> Result<Vec<String>, BackupError> {
    Ok(in_order(ledgers(folder)?, cell_files(folder)?.into_iter().map(|(region, _)| region)))
}

/// The number of ledgers whose journals are files of a folder; at least one.
pub fn ledgers(folder: &Path) -> Result<u16, BackupError> {
    let mut last = 0;
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let shard = name.to_str().and_then(|name| shard_named(name.strip_suffix(".db")?));
        last = last.max(shard.unwrap_or(0));
    }
    Ok(last.saturating_add(1))
}

/// The machines of a store in the order in which they are copied. The directory is the last: what the
/// others did by then they did under a directory that is no newer, and no key that was revoked before
/// comes back beside them.
fn in_order(ledgers: u16, regions: impl Iterator<Item = String>) -> Vec<String> {
    let mut names: Vec<String> = regions.map(|region| format!("cell-{region}")).collect();
    names.extend((0..ledgers).map(ledger_name));
    names.push(DIRECTORY.to_owned());
    names
}

fn open(folder: &Path, machine: &str) -> Result<SqliteJournal, BackupError> {
    Ok(SqliteJournal::open(&Manifest::file(folder, machine), SqliteOptions::default())?)
}

fn open_ledgers(folder: &Path) -> Result<Vec<SqliteJournal>, BackupError> {
    (0..ledgers(folder)?).map(|shard| open(folder, &ledger_name(shard))).collect()
}

fn as_journals(ledgers: &[SqliteJournal]) -> Vec<&dyn Journal> {
    ledgers.iter().map(|journal| journal as &dyn Journal).collect()
}

fn open_cells(folder: &Path) -> Result<Vec<(String, SqliteJournal)>, BackupError> {
    let files = cell_files(folder)?.into_iter();
    files
        .map(|(region, _)| {
            let journal = open(folder, &format!("cell-{region}"))?;
            Ok((region, journal))
        })
        .collect()
}

fn as_pairs(cells: &[(String, SqliteJournal)]) -> Vec<CellJournal<'_>> {
    cells.iter().map(|(region, journal)| (region.as_str(), journal as &dyn Journal)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_copied_last() {
        let regions = ["east", "west"].map(str::to_owned);
        let names = in_order(2, regions.into_iter());
        assert_eq!(names, ["cell-east", "cell-west", "ledger-0", "ledger-1", "directory"]);
    }
}
