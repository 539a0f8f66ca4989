//! `bursar admin backup` and `restore`: a whole store, at one consistent cut, in one folder.

mod archive;
pub mod cells;
mod error;
mod files;
pub mod postgres;

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bursar_api::words::counted;
use bursar_audit::{Progress, Report, SqliteSource, verify, verify_chain, verify_links};
use bursar_core::cell::Origin;
use bursar_core::ledger::Ledger;
use bursar_core::time::Timestamp;
use bursar_engine::cut::{CellJournal, check_marks, largest_cut};
use bursar_engine::{
    CellCodec, DirectoryCodec, Engine, EngineOptions, LedgerCodec, ManualClock, replay_from_genesis,
};
use bursar_journal::archive::{copy_archive, fits};
use bursar_journal::sqlite::{self, SqliteJournal, SqliteOptions};
use bursar_journal::{Head, Journal, JournalId, backup as copies};

use crate::store::{ARCHIVE, DIRECTORY, GENERATIONS_FROM, LEDGER, MANIFEST, Manifest, make_folder};
pub use archive::archive;
use cells::cell_files;
pub use error::BackupError;
use files::{copy_all_logs, copy_key, copy_logs, signer_of, sync_all};

/// The file of the key that signs checkpoints.
const KEY: &str = "checkpoint.key";
/// The folder of the output of jobs.
const LOGS: &str = "logs";
/// Files that an open journal has beside its own and a backup does not need.
const BESIDE: [&str; 4] = ["-wal", "-shm", "-tail", ".lock"];
/// The largest generation; above it are numbers for the incarnations of agents.
const MAX_GENERATION: u32 = u32::MAX - (1 << 24);

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
    for _ in 0..TRIES {
        if outcome.is_ok() {
            break;
        }
        std::thread::sleep(PAUSE);
        outcome = first.check(data);
    }
    outcome?;
    Ok(())
}

/// How often a folder is checked again.
const TRIES: u32 = 20;
/// How long to wait before each repetition.
const PAUSE: Duration = Duration::from_millis(20);

/// A temporary folder inside the target in which everything is prepared. A failure before the end
/// leaves an empty target.
struct Making {
    folder: tempfile::TempDir,
    target: PathBuf,
}

impl Making {
    fn begin(target: &Path) -> Result<Making, BackupError> {
        if target.exists() && fs::read_dir(target).map_or(true, |mut all| all.next().is_some()) {
            return Err(BackupError::NotEmpty(target.to_owned()));
        }
        make_folder(target)?;
        // Readable by the owner only, and on the file system of the target.
        let folder = tempfile::Builder::new().prefix(".making-").tempdir_in(target)?;
        Ok(Making { folder, target: target.to_owned() })
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
    let making = Making::begin(target)?;
    // First, so that there is no output of an attempt after the cut.
    if logs && data.join(LOGS).is_dir() {
        copy_all_logs(&data.join(LOGS), making.path())?;
    }
    // Before the journals, so that it has nothing of later records.
    copy_closed(data, making.path(), watch);
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
fn copy_closed(from: &Path, folder: &Path, watch: &dyn Watch) {
    let (archive, copy) = (from.join(ARCHIVE), folder.join(ARCHIVE));
    if !archive.is_file() {
        return;
    }
    if let Err(error) = copy_archive(&archive, &copy) {
        watch.note(&format!("{ARCHIVE} is left out, and built again from the journal: {error}"));
        remove_archive(&copy);
    }
}

/// Removes a copy of the archive that has more than the copy of the journal.
fn drop_unfit_archive(folder: &Path) -> Result<(), BackupError> {
    let file = folder.join(ARCHIVE);
    if file.is_file() && !fits(&file, &open(folder, LEDGER)?).unwrap_or(false) {
        remove_archive(&file);
    }
    remove_beside(&file);
    Ok(())
}

fn remove_archive(file: &Path) {
    // A missing file need not be removed.
    let _ = fs::remove_file(file);
    remove_beside(file);
}

/// Trims the copies to the largest consistent cut, checks them and moves them into the target.
fn conclude(
    making: Making,
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
    let making = Making::begin(data)?;
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
    if backup.join(ARCHIVE).is_file() {
        let copy = making.path().join(ARCHIVE);
        fs::copy(backup.join(ARCHIVE), &copy)?;
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o600))?;
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

/// Copies that are ready to be a store of another generation.
struct SetBack {
    report: Report,
    generation: u32,
    heads: Heads,
    /// The state of the ledger at the cut.
    books: Ledger,
}

/// Removes records after an instant, if one is given, from the copies, verifies them, and journals
/// the restore in every cell. `last` is a generation that agents may have received.
fn set_back(
    folder: &Path,
    until: Option<Timestamp>,
    last: u32,
    watch: &dyn Watch,
) -> Result<SetBack, BackupError> {
    if let Some(until) = until {
        cut_at(folder, until)?;
    }
    let Checked { report, cells, books, .. } = check(folder, watch)?;
    let known = cells.iter().map(|cell| cell.generation).max().unwrap_or_default();
    let generation = next_generation(known.max(last))?;
    for cell in &cells {
        rewind(folder, cell, generation)?;
    }
    Ok(SetBack { report, generation, heads: heads(folder)?, books })
}

/// Rejects a copy that lacks records from files beside the original. A backup has no such files.
fn check_end(backup: &Path, copy: &Path, end: Option<Head>) -> Result<(), BackupError> {
    if sqlite::inspect(copy, None).is_ok_and(|copied| Some(copied.head) == end) {
        return Ok(());
    }
    let file = copy.file_name().unwrap_or_default().to_string_lossy();
    let reason = format!(
        "it is not a backup as it was made: {file} has records beside it (-wal, -tail), which a \
         restore would lose. Nothing was restored"
    );
    let next = "if it is the folder of a store, make a backup of it first: bursar admin backup \
                --data DIR BACKUP";
    Err(BackupError::new(backup.display(), reason).with_next(next))
}

/// The machines of a folder in the order in which they are copied: the cells, the ledger, the
/// directory.
fn machines(folder: &Path) -> Result<Vec<String>, BackupError> {
    Ok(in_order(cell_files(folder)?.into_iter().map(|(region, _)| region)))
}

/// The machines of a store in the order in which they are copied. The directory is the last: what the
/// others did by then they did under a directory that is no newer, and no key that was revoked before
/// comes back beside them.
fn in_order(regions: impl Iterator<Item = String>) -> Vec<String> {
    let mut names: Vec<String> = regions.map(|region| format!("cell-{region}")).collect();
    names.extend([LEDGER.to_owned(), DIRECTORY.to_owned()]);
    names
}

fn open(folder: &Path, machine: &str) -> Result<SqliteJournal, BackupError> {
    Ok(SqliteJournal::open(&Manifest::file(folder, machine), SqliteOptions::default())?)
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

/// The generation of a restored store: above every one that an agent may have received.
fn next_generation(last: u32) -> Result<u32, BackupError> {
    let next = last.checked_add(1).filter(|next| *next <= MAX_GENERATION);
    let Some(next) = next else {
        let reason =
            format!("its generation is {last}, and the highest possible one is {MAX_GENERATION}");
        return Err(BackupError::new(MANIFEST, reason).with_next(
            "use a backup that was made before; generations count seconds, so one so high was written \
             while a clock was wrong",
        ));
    };
    Ok(seconds_since_2020().clamp(next, MAX_GENERATION))
}

/// Journals the restore in a cell, so that no report of an agent is accepted before the agent
/// registers again. The cell's time stands still meanwhile.
fn rewind(folder: &Path, cell: &CheckedCell, generation: u32) -> Result<(), BackupError> {
    let name = format!("cell-{}", cell.region);
    let journal: Arc<dyn Journal> = Arc::new(open(folder, &name)?);
    let clock = Arc::new(ManualClock::new(cell.now));
    let options = EngineOptions { holder: "restore".to_owned(), ..EngineOptions::default() };
    let engine = Engine::start(journal, Arc::new(CellCodec), clock, options);
    let command = bursar_core::cell::Command::Rewind { generation, served: false };
    let failed = |reason: String| BackupError::because(format!("{name}.db: {reason}"));
    let done = engine.handle().execute(Origin::component("restore"), command);
    done.map_err(|error| failed(error.to_string()))?
        .value
        .map_err(|refusal| failed(refusal.to_string()))?;
    engine.stop();
    Ok(())
}

/// The heads of all machines of a folder.
fn heads(folder: &Path) -> Result<Heads, BackupError> {
    let mut heads = Vec::new();
    for machine in machines(folder)? {
        let journal = open(folder, &machine)?;
        heads.push((machine, journal.id(), journal.head()?));
    }
    Ok(heads)
}

/// Removes from each copy the records after an instant, and then those after the largest consistent
/// cut. A region that did not exist yet is left out.
fn cut_at(folder: &Path, until: Timestamp) -> Result<(), BackupError> {
    for machine in machines(folder)? {
        let journal = open(folder, &machine)?;
        let (head, mut end) = (journal.head()?, Head::genesis(journal.id()));
        for batch in journal.read(end)? {
            let batch = batch?;
            let mut is_late = false;
            for record in batch.frames() {
                is_late |= record?.time > until;
            }
            if is_late {
                break;
            }
            end = batch.head();
        }
        drop(journal);
        if end.sequence > 0 {
            cut_off(folder, &machine, head, end)?;
        } else if machine.starts_with("cell-") {
            let file = Manifest::file(folder, &machine);
            fs::remove_file(&file)?;
            remove_beside(&file);
            remove_segments(&file)?;
        } else {
            let reason = format!("{machine}.db has no record that is so old");
            return Err(BackupError::because(format!("--until: {reason}")).into_misuse());
        }
    }
    trim(folder)
}

/// Removes the files that an open journal has beside its own.
fn remove_beside(file: &Path) {
    for end in BESIDE {
        let mut name = file.as_os_str().to_owned();
        name.push(end);
        // A missing file need not be removed.
        let _ = fs::remove_file(name);
    }
}

/// Removes the segments of a copy that is removed.
fn remove_segments(file: &Path) -> Result<(), BackupError> {
    let mut folder = file.as_os_str().to_owned();
    folder.push(".segments");
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => Ok(removed?),
    }
}

/// Removes from a copy the records after `end`.
fn cut_off(folder: &Path, machine: &str, head: Head, end: Head) -> Result<(), BackupError> {
    if head != end {
        let file = Manifest::file(folder, machine);
        let mut tail = file.as_os_str().to_owned();
        tail.push("-tail");
        // The tail holds a copy of the removed records.
        let _ = fs::remove_file(tail);
        copies::truncate(&file, end)?;
    }
    Ok(())
}

/// Removes from each copy the records after the largest consistent cut.
fn trim(folder: &Path) -> Result<(), BackupError> {
    let (ledger, cells) = (open(folder, LEDGER)?, open_cells(folder)?);
    let cut = largest_cut(&ledger, &as_pairs(&cells))?;
    let mut ends = vec![(LEDGER.to_owned(), ledger.head()?, cut.ledger)];
    for ((region, journal), end) in cells.iter().zip(cut.cells) {
        ends.push((format!("cell-{region}"), journal.head()?, end));
    }
    drop((ledger, cells));
    ends.into_iter().try_for_each(|(machine, head, end)| cut_off(folder, &machine, head, end))
}

/// The heads of all machines.
type Heads = Vec<(String, JournalId, Head)>;

/// A verified cell.
struct CheckedCell {
    region: String,
    now: Timestamp,
    generation: u32,
}

/// The result of verifying a folder.
struct Checked {
    report: Report,
    heads: Heads,
    cells: Vec<CheckedCell>,
    books: Ledger,
}

/// Verifies every journal, that they fit together, and that a server could start with them.
fn check(folder: &Path, watch: &dyn Watch) -> Result<Checked, BackupError> {
    let source = |machine: &str| {
        let file = Manifest::file(folder, machine);
        SqliteSource::open(&file).map_err(|reason| BackupError::new(file.display(), reason))
    };
    let mut heads = Vec::new();
    for machine in machines(folder)? {
        if let Some(region) = machine.strip_prefix("cell-") {
            cells::say(region, &verify_chain(&source(&machine)?, |_| {}), watch)?;
        } else if machine == DIRECTORY {
            let report = verify_links(&source(&machine)?);
            if let Some(problem) = &report.problem {
                return Err(BackupError::Bad(format!("directory.db: {problem}")));
            }
            watch.say(&format!(
                "directory: {}, the chain holds",
                counted(report.records, "record")
            ))?;
        }
    }
    let report = verify(&source(LEDGER)?, None, |progress| watch.verified(progress));
    if let Some(problem) = &report.problem {
        return Err(BackupError::Bad(problem.to_string()));
    }
    let (ledger, cells) = (open(folder, LEDGER)?, open_cells(folder)?);
    let directory = open(folder, DIRECTORY)?;
    check_marks(&ledger, &as_pairs(&cells))
        .map_err(|error| BackupError::because(error.to_string()))?;
    replay_from_genesis(&directory, &DirectoryCodec)?;
    let books = replay_from_genesis(&ledger, &LedgerCodec)?.machine;
    let mut checked = Vec::new();
    for (region, journal) in &cells {
        let (now, generation) = cells::check(region, journal, &books, watch)?;
        checked.push(CheckedCell { region: region.clone(), now, generation });
        heads.push((format!("cell-{region}"), journal.id(), journal.head()?));
    }
    heads.push((LEDGER.to_owned(), ledger.id(), ledger.head()?));
    heads.push((DIRECTORY.to_owned(), directory.id(), directory.head()?));
    Ok(Checked { report, heads, cells: checked, books })
}

#[expect(clippy::disallowed_methods, reason = "no server runs whose time could be asked")]
fn seconds_since_2020() -> u32 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seconds = since.map_or(0, |since| since.as_secs()).saturating_sub(GENERATIONS_FROM);
    u32::try_from(seconds).unwrap_or(u32::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_copied_last() {
        let regions = ["east", "west"].map(str::to_owned);
        let names = in_order(regions.into_iter());
        assert_eq!(names, ["cell-east", "cell-west", "ledger-0", "directory"]);
    }
}
