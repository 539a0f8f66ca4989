//! Data folders. A manifest has the identity of the store, its machines and the head of each
//! journal. It is checked before anything in the folder is written.

mod adopt;
pub(crate) mod database;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bursar_core::digest::Digest;
use bursar_core::time::Timestamp;
use bursar_journal::sqlite::{Expected, REMEDY, inspect, is_begun, written_tail};
use bursar_journal::{Head, JournalError, JournalId, is_full};
use serde::{Deserialize, Serialize};

pub use adopt::{adopt, adopt_not_moved};

/// The file name of the manifest.
pub const MANIFEST: &str = "manifest.json";
/// The manifest format of a store in use.
const FORMAT: u32 = 1;
/// The manifest format of a store that was moved away, and the newest that this build reads. Builds that do not know the
/// mark refuse it.
const MOVED_FORMAT: u32 = 2;
/// The machine name of the ledger.
pub const LEDGER: &str = "ledger-0";
/// The machine name of the directory.
pub const DIRECTORY: &str = "directory";
/// 2020-01-01T00:00:00Z in seconds since 1970. The generation of a store is the time of its restore
/// in seconds since then, so each restore has a higher one.
pub const GENERATIONS_FROM: u64 = 1_577_836_800;

/// The file of the archive of what the ledger of a shard has closed. It is derived from the journal.
pub fn archive_file(shard: u16) -> String {
    format!("archive-{shard}.db")
}

/// The earliest time of the restore that began a generation.
pub(crate) fn restored_at(generation: u32) -> Timestamp {
    let seconds = GENERATIONS_FROM.saturating_add(generation.into());
    Timestamp::from_millis(i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000))
}

/// A batch that a machine's journal is known to have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownBatch {
    sequence: u64,
    position: u64,
    hash: String,
}

/// One machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredMachine {
    /// The name of the machine, and of its file.
    pub name: String,
    /// The id of its journal; absent while it is being created.
    pub journal: Option<String>,
    /// Whether the tail beside the file holds a frame. If so, an empty tail was emptied by mistake.
    pub tail: bool,
    /// The minimum length of the tail.
    #[serde(default)]
    pub tail_bytes: u64,
    /// A batch that its journal has.
    pub head: Option<KnownBatch>,
}

/// The contents of a data folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The format of this file.
    pub format: u32,
    /// The id of the store; a restored one has another.
    pub store: String,
    /// The number that agents' incarnations are counted from. It is higher after each restore, so
    /// that agents of the discarded journal are not taken for agents of this store.
    pub incarnation_base: u32,
    /// Whether the server stopped cleanly. If so, the heads are where the journals end.
    pub clean: bool,
    /// Whether this is a backup. A backup is restored and never served, or agents of the discarded
    /// journal would be taken for agents of this store.
    #[serde(default)]
    pub backup: bool,
    /// Whether it was moved into a database, or may have been. It goes on there and nowhere else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub moved: bool,
    /// The public key that verifies its checkpoints, in hex, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signer: Option<String>,
    /// The public keys that it had before, oldest first: they signed older segments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_signers: Vec<String>,
    /// The machines, by name.
    pub machines: Vec<StoredMachine>,
}

impl KnownBatch {
    fn of(head: Head) -> KnownBatch {
        let Head { sequence, position, hash } = head;
        KnownBatch { sequence, position, hash: hash.to_string() }
    }

    fn head(&self) -> Option<Head> {
        let hash = Digest(unhex(&self.hash)?);
        Some(Head { sequence: self.sequence, position: self.position, hash })
    }
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    for (byte, place) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[place..place + 2], 16).ok()?;
    }
    Some(bytes)
}

fn refuse<T>(file: &Path, reason: &str) -> Result<T, JournalError> {
    Err(JournalError::Refused(format!("{}: {reason}. {REMEDY}", file.display())))
}

impl Manifest {
    /// The manifest of a new store.
    pub fn new() -> Result<Manifest, JournalError> {
        let store = JournalId::random()?.to_string();
        Ok(Manifest {
            format: FORMAT,
            store,
            incarnation_base: 0,
            clean: false,
            backup: false,
            moved: false,
            signer: None,
            earlier_signers: Vec::new(),
            machines: Vec::new(),
        })
    }

    /// Reads the manifest of a folder, if it has one.
    pub fn read(folder: &Path) -> Result<Option<Manifest>, JournalError> {
        let path = folder.join(MANIFEST);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(JournalError::io("reading the manifest", error)),
        };
        match serde_json::from_slice::<Manifest>(&text) {
            Ok(manifest) if manifest.format <= MOVED_FORMAT => Ok(Some(manifest)),
            Ok(manifest) => Err(JournalError::Refused(format!(
                "{}: it has format {}; this build knows format {MOVED_FORMAT}. Use a newer build",
                path.display(),
                manifest.format
            ))),
            Err(error) => refuse(&path, &format!("it is no manifest: {error}")),
        }
    }

    /// The public keys that signed its checkpoints, the present one first.
    pub fn signers(&self) -> Vec<String> {
        self.signer.iter().chain(self.earlier_signers.iter().rev()).cloned().collect()
    }

    /// Writes the manifest atomically and durably.
    pub fn write(&self, folder: &Path) -> Result<(), JournalError> {
        let text = serde_json::to_vec_pretty(self).expect("it has only plain fields");
        let path = folder.join(MANIFEST);
        let temporary = folder.join("manifest.json.tmp");
        let write = || {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            let mut file = options.open(&temporary)?;
            file.write_all(&text)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            File::open(folder)?.sync_all()
        };
        write().map_err(|error| JournalError::io("writing the manifest", error))
    }

    /// Marks a store that goes on in a database, or removes the mark.
    pub(crate) fn set_moved(&mut self, moved: bool) {
        self.moved = moved;
        self.format = if moved { MOVED_FORMAT } else { FORMAT };
    }

    /// The file of a machine.
    pub fn file(folder: &Path, machine: &str) -> PathBuf {
        folder.join(format!("{machine}.db"))
    }

    /// Adds a machine, or updates the head of a listed one. `tail`: the length of its tail, if it
    /// holds a frame.
    pub fn note(&mut self, name: &str, id: JournalId, head: Head, tail: Option<u64>) {
        let (name, journal, head) =
            (name.to_owned(), Some(id.to_string()), Some(KnownBatch::of(head)));
        let (tail, tail_bytes) = (tail.is_some(), tail.unwrap_or_default());
        let machine = StoredMachine { name, journal, tail, tail_bytes, head };
        let name = machine.name.as_str();
        match self.machines.binary_search_by(|known| known.name.as_str().cmp(name)) {
            Ok(place) => self.machines[place] = machine,
            Err(place) => self.machines.insert(place, machine),
        }
    }

    /// Adds a machine that is about to be created.
    fn create(&mut self, name: &str) {
        if let Err(place) = self.machines.binary_search_by(|known| known.name.as_str().cmp(name)) {
            let (name, journal, head) = (name.to_owned(), None, None);
            let machine = StoredMachine { name, journal, tail: false, tail_bytes: 0, head };
            self.machines.insert(place, machine);
        }
    }

    /// Rejects a folder in which a file is missing, emptied, foreign or older than before. Returns
    /// the head of each machine's journal. Writes nothing.
    pub fn check(&self, folder: &Path) -> Result<Vec<(String, Head)>, JournalError> {
        if let Some(unlisted) = journal_files(folder)?.into_iter().find(|name| !self.lists(name)) {
            let reason = "it is not a file of this store: the manifest does not name it";
            return refuse(&Manifest::file(folder, &unlisted), reason);
        }
        let mut heads = Vec::new();
        for machine in &self.machines {
            let file = Manifest::file(folder, &machine.name);
            let Some(journal) = &machine.journal else {
                // It was being created when the server ended: its file is complete, or has nothing.
                continue;
            };
            let bound = machine.head.as_ref().and_then(KnownBatch::head);
            let (Some(id), Some(bound)) = (unhex(journal).map(JournalId), bound) else {
                let reason = format!("what it says of {} cannot be read", machine.name);
                return refuse(&folder.join(MANIFEST), &reason);
            };
            let tail = machine.tail.then_some(machine.tail_bytes);
            let inspected = inspect(&file, Some(&Expected { id, bound, tail }))
                .map_err(|error| named(&file, error))?;
            heads.push((machine.name.clone(), inspected.head));
        }
        Ok(heads)
    }

    /// Whether these are the heads in the manifest.
    fn ends_at(&self, heads: &[(String, Head)]) -> bool {
        let known =
            self.machines.iter().map(|machine| machine.head.as_ref().and_then(KnownBatch::head));
        known.eq(heads.iter().map(|(_, head)| Some(*head)))
    }

    /// The minimum length of a machine's tail, if it holds a frame. A tail never gets shorter.
    fn needed_tail(&self, name: &str) -> Option<u64> {
        let machine = self.machines.iter().find(|machine| machine.name == name)?;
        machine.tail.then_some(machine.tail_bytes)
    }

    fn lists(&self, name: &str) -> bool {
        self.machines.iter().any(|machine| machine.name == name)
    }
}

/// Adds the file's name to an error, if it has none.
fn named(file: &Path, error: JournalError) -> JournalError {
    match error {
        known @ (JournalError::Refused(_) | JournalError::Full { .. }) => known,
        other => JournalError::Refused(format!("{}: {other}. {REMEDY}", file.display())),
    }
}

/// The names of the machines that have files in a folder, complete or not.
fn journal_files(folder: &Path) -> Result<Vec<String>, JournalError> {
    let failed = |error: std::io::Error| JournalError::io("reading the data folder", error);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        // The last occurrence: the name of a region may contain `.db` as well.
        let Some((machine, rest)) = name.to_str().and_then(|name| name.rsplit_once(".db")) else {
            continue;
        };
        let is_ours = machine.starts_with("ledger-")
            || machine.starts_with("cell-")
            || machine == DIRECTORY
            || machine == "history";
        // A lock file does not show that anything was stored.
        if is_ours && rest != ".lock" {
            names.push(if machine == "history" { LEDGER.to_owned() } else { machine.to_owned() });
        }
    }
    names.sort();
    names.dedup();
    Ok(names)
}

/// A data folder in use by one server.
pub struct Store {
    folder: PathBuf,
    manifest: Mutex<Manifest>,
    /// Whether the last server stopped cleanly, so that the journals are known to fit together.
    pub was_clean: bool,
    /// The folder itself is locked, so there is no lock file to delete.
    _lock: File,
}

impl Store {
    /// Locks the folder and checks its contents before anything is written. Journals without a
    /// manifest are refused: [`adopt`] makes one.
    pub fn open(folder: &Path) -> Result<Store, JournalError> {
        make_folder(folder)?;
        let lock = lock(folder)?;
        let (manifest, was_clean) = match Manifest::read(folder)? {
            Some(manifest) if manifest.backup => {
                let folder = folder.display();
                return Err(JournalError::Refused(format!(
                    "{folder}: it is a backup, which is not served. Nothing was changed. Restore it \
                     first: bursar admin restore {folder} --data DIR"
                )));
            }
            Some(manifest) if manifest.moved => {
                let folder = folder.display();
                return Err(JournalError::Refused(format!(
                    "{folder}: bursar admin migrate moved this store into a PostgreSQL database, and two \
                     servers would go on from the same records. Nothing was changed. Start the server on \
                     the database: bursar serve --store URL. Only if the move failed and no server will \
                     ever use that database: bursar admin adopt --not-moved --data {folder}"
                )));
            }
            Some(manifest) => {
                let heads = manifest.check(folder)?;
                let was_clean = manifest.clean && manifest.ends_at(&heads);
                (manifest, was_clean)
            }
            None if has_records(folder)? => {
                let reason = format!(
                    "it is missing, and the folder has journals. {REMEDY}. If it is lost, or the store \
                     is of a build that wrote none, make one from the files as they are: bursar admin \
                     adopt --data {}",
                    folder.display()
                );
                let file = folder.join(MANIFEST);
                return Err(JournalError::Refused(format!("{}: {reason}", file.display())));
            }
            None => (Manifest::new()?, false),
        };
        let (folder, manifest) = (folder.to_owned(), Mutex::new(manifest));
        Ok(Store { folder, manifest, was_clean, _lock: lock })
    }

    fn change(&self, change: impl FnOnce(&mut Manifest)) -> Result<(), JournalError> {
        let mut manifest = self.manifest.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = manifest.clone();
        change(&mut changed);
        if changed != *manifest || !self.folder.join(MANIFEST).exists() {
            changed.write(&self.folder)?;
            *manifest = changed;
        }
        Ok(())
    }

    /// Marks the folder durably as moved into a database, or removes the mark.
    pub(crate) fn mark_moved(&self, moved: bool) -> Result<(), JournalError> {
        self.change(|manifest| manifest.set_moved(moved))
    }

    /// Adds a machine before its file exists.
    pub fn begin(&self, machine: &str) -> Result<(), JournalError> {
        self.change(|manifest| manifest.create(machine))
    }

    /// Records the heads of machines as lower bounds. `clean`: the journals end there.
    pub fn note(
        &self,
        heads: &[(String, JournalId, Head)],
        clean: bool,
    ) -> Result<(), JournalError> {
        let mut tails = Vec::new();
        for (name, id, _) in heads {
            tails.push(written_tail(&Manifest::file(&self.folder, name), *id)?);
        }
        self.change(|manifest| {
            manifest.clean = clean;
            for ((name, id, head), written) in heads.iter().zip(tails) {
                let tail = written.max(manifest.needed_tail(name));
                manifest.note(name, *id, *head, tail);
            }
        })
    }

    /// Rejects a key other than the one that signs the checkpoints of this store, and a missing one.
    pub fn check_signer(&self, file: &Path, public_key: Option<&str>) -> Result<(), JournalError> {
        let Some(known) = self.signer() else { return Ok(()) };
        let found = match public_key {
            Some(found) if found == known => return Ok(()),
            Some(found) => format!("its public key is {found}, and"),
            None => "the file is missing, and".to_owned(),
        };
        Err(JournalError::Refused(format!(
            "{}: {found} the checkpoints of this store were signed under {known}. Nothing was changed. \
             Put back the file as it was. If it is lost, see that there is no such file and start once \
             with --new-checkpoint-key: outsiders must be given the new public key",
            file.display()
        )))
    }

    /// The public key that verifies the store's checkpoints, if it is known.
    pub fn signer(&self) -> Option<String> {
        self.manifest.lock().unwrap_or_else(PoisonError::into_inner).signer.clone()
    }

    /// Records the public key that verifies the store's checkpoints.
    pub fn note_signer(&self, public_key: &str) -> Result<(), JournalError> {
        self.change(|manifest| {
            let before = manifest.signer.replace(public_key.to_owned());
            manifest.earlier_signers.extend(before.filter(|before| before != public_key));
        })
    }

    /// The number that agents' incarnations are counted from.
    pub fn incarnation_base(&self) -> u32 {
        self.manifest.lock().unwrap_or_else(PoisonError::into_inner).incarnation_base
    }
}

/// Creates a folder that only its owner can read, if there is none.
pub fn make_folder(folder: &Path) -> Result<(), JournalError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| {
        if is_full(&error) {
            return JournalError::io("making the data folder", error);
        }
        JournalError::Refused(format!(
            "{}: the data folder cannot be made: {error}",
            folder.display()
        ))
    })
}

fn lock(folder: &Path) -> Result<File, JournalError> {
    let failed = |error| JournalError::io("locking the data folder", error);
    let file = File::open(folder).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let holder = "it has the folder".to_owned();
            Err(JournalError::Locked { journal: folder.display().to_string(), holder })
        }
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Whether a folder has journals with content. An interrupted first start may have left files
/// without a record.
fn has_records(folder: &Path) -> Result<bool, JournalError> {
    let is_empty = |file: &Path| file.metadata().is_ok_and(|file| file.len() == 0);
    let mut files = journal_files(folder)?.into_iter().map(|name| Manifest::file(folder, &name));
    Ok(files.any(|file| is_begun(&file) || !is_empty(&file)))
}

#[cfg(test)]
mod tests;
