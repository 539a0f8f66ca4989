//! The persistent state of an agent. A folder has one agent.
//!
//! ```text
//! owner.json                the owner: a store and a node
//! others/STORE_NODE         the folders of other owners
//! lock                      held by the agent
//! lease.json                until when attempts may run without an answer of the server
//! wake                      a pipe: supervisors notify the agent of changes
//! attempts/ID/launch.json   what to start; the folder's existence is the decision to start it
//! attempts/ID/record.json   its state, written only by its supervisor
//! attempts/ID/control       a pipe: stop and kill
//! attempts/ID/output.N      its output, from the N-th byte
//! forgotten/ID              attempts that ended here and are never started again
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::isolation::guard;

/// The most ids of forgotten attempts that are kept.
const MAX_FORGOTTEN_IDS: usize = 4096;

/// The longest id of an attempt.
const MAX_ATTEMPT_ID: usize = 100;

/// The longest id of a store.
const MAX_STORE_ID: usize = 64;

/// The most folders of other owners that are kept: each restore of a store creates another owner.
const MAX_OTHERS: usize = 64;

/// The owner of a folder's state. Attempts of different stores may have the same ids.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The id of the store that its attempts belong to.
    pub store: String,
    /// The node.
    pub node: String,
}

/// The folder of an agent.
#[derive(Clone, Debug)]
pub struct StateFolder {
    root: PathBuf,
}

impl StateFolder {
    /// Creates the folder and its contents, accessible only to its user.
    pub fn open(root: &Path) -> io::Result<StateFolder> {
        let folder = StateFolder { root: std::path::absolute(root)? };
        for path in [folder.attempts(), folder.root.join("forgotten")] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
            guard::close_folder(&path)?;
        }
        guard::close_folder(&folder.root)?;
        make_pipe(&folder.wake())?;
        Ok(folder)
    }

    /// Locks the folder for one agent until the returned file is dropped.
    pub fn lock(&self) -> io::Result<File> {
        let file = private().create(true).truncate(false).open(self.root.join("lock"))?;
        file.try_lock().map_err(|_| {
            io::Error::other(format!("another agent works in {}", self.root.display()))
        })?;
        Ok(file)
    }

    /// The folder of an owner: this one if it belongs to that owner or to none; otherwise one below
    /// it. State of other owners is neither read nor renewed: their attempts
    /// run until their lease runs out, unless their agent comes back.
    pub fn of_owner(&self, owner: &Owner) -> io::Result<StateFolder> {
        let file = self.root.join("owner.json");
        match read_json::<Owner>(&file) {
            Ok(known) if known == *owner => return Ok(self.clone()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                write_json(&file, owner)?;
                return Ok(self.clone());
            }
            Err(error) => return Err(error),
        }
        let others = self.root.join("others");
        let place = others.join(file_name(&format!("{}_{}", owner.store, owner.node)));
        if !place.exists() {
            make_room(&others)?;
        }
        StateFolder::open(&place)?.of_owner(owner)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// The pipe on which supervisors notify the agent of changes.
    pub fn wake(&self) -> PathBuf {
        self.root.join("wake")
    }

    /// The file of the lease.
    pub fn lease(&self) -> PathBuf {
        self.root.join("lease.json")
    }

    fn attempts(&self) -> PathBuf {
        self.root.join("attempts")
    }

    /// The folder of an attempt, which may not exist.
    pub fn attempt(&self, id: &str) -> AttemptFolder {
        AttemptFolder { root: self.attempts().join(file_name(id)) }
    }

    /// All attempts with their folders, ordered by id.
    pub fn all_attempts(&self) -> io::Result<Vec<(String, AttemptFolder)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.attempts())? {
            let entry = entry?;
            // Folders that were not complete when the agent ended start with a dot.
            if let Some(id) = entry.file_name().to_str().filter(|name| !name.starts_with('.')) {
                found.push((id.to_owned(), AttemptFolder { root: entry.path() }));
            }
        }
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(found)
    }

    /// Creates the folder of an attempt with the contents from `fill`, atomically.
    pub fn create(
        &self,
        id: &str,
        fill: impl FnOnce(&AttemptFolder) -> io::Result<()>,
    ) -> io::Result<AttemptFolder> {
        let draft = self.attempts().join(format!(".{}", file_name(id)));
        match fs::remove_dir_all(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        fs::DirBuilder::new().mode(0o700).create(&draft)?;
        let draft = AttemptFolder { root: draft };
        fill(&draft)?;
        make_pipe(&draft.control())?;
        let place = self.attempt(id);
        fs::rename(&draft.root, &place.root)?;
        Ok(place)
    }

    /// Removes an attempt and keeps its id.
    pub fn forget(&self, id: &str) -> io::Result<()> {
        private().create(true).truncate(true).open(self.forgotten(id))?;
        fs::remove_dir_all(self.attempt(id).root)?;
        self.prune()
    }

    /// Whether an attempt was forgotten here.
    pub fn is_forgotten(&self, id: &str) -> bool {
        self.forgotten(id).exists()
    }

    fn forgotten(&self, id: &str) -> PathBuf {
        self.root.join("forgotten").join(file_name(id))
    }

    /// Removes the oldest ids beyond the limit.
    fn prune(&self) -> io::Result<()> {
        let entries = fs::read_dir(self.root.join("forgotten"))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            names.push((entry.metadata()?.modified()?, entry.path()));
        }
        names.sort();
        for (_, path) in names.iter().rev().skip(MAX_FORGOTTEN_IDS) {
            fs::remove_file(path)?;
        }
        Ok(())
    }
}

/// The folder of one attempt.
#[derive(Clone, Debug)]
pub struct AttemptFolder {
    root: PathBuf,
}

impl AttemptFolder {
    /// The folder at a path.
    pub fn at(root: PathBuf) -> AttemptFolder {
        AttemptFolder { root }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// What to start.
    pub fn launch(&self) -> PathBuf {
        self.root.join("launch.json")
    }

    /// The file of its record.
    pub fn record(&self) -> PathBuf {
        self.root.join("record.json")
    }

    /// The pipe for stop and kill.
    pub fn control(&self) -> PathBuf {
        self.root.join("control")
    }

    /// The folder of the agent.
    pub fn state(&self) -> StateFolder {
        let root = self.root.ancestors().nth(2).unwrap_or(&self.root);
        StateFolder { root: root.to_owned() }
    }
}

/// Removes the least recently used folder of another owner if there are too many and it has no
/// attempts.
fn make_room(others: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(others) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    let mut kept = Vec::new();
    for entry in entries {
        let entry = entry?;
        kept.push((entry.metadata()?.modified()?, entry.path()));
    }
    if kept.len() < MAX_OTHERS {
        return Ok(());
    }
    kept.sort();
    let is_empty = |path: &Path| match fs::read_dir(path.join("attempts")) {
        Ok(mut attempts) => attempts.next().is_none(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    match kept.iter().find(|(_, path)| is_empty(path)) {
        Some((_, path)) => fs::remove_dir_all(path),
        None => Err(io::Error::other(format!(
            "{} has attempts of {} owners; remove those that are gone",
            others.display(),
            kept.len()
        ))),
    }
}

/// Whether a store id is valid. It becomes part of the names of folders and groups.
pub fn is_store_id(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=MAX_STORE_ID).contains(&id.len()) && !id.starts_with('.') && id.bytes().all(plain)
}

/// Whether an attempt id is valid: usable as the name of a folder, unchanged.
pub fn is_attempt_id(id: &str) -> bool {
    (1..=MAX_ATTEMPT_ID).contains(&id.len()) && id == file_name(id)
}

/// A file name that cannot escape its folder, whatever the id.
fn file_name(id: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    id.chars().map(|c| if plain(c) { c } else { '_' }).collect()
}

/// Options for files that only their owner may read.
pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

/// Options for files that are opened only if they are not symbolic links.
pub(crate) fn no_link() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(OFlag::O_NOFOLLOW.bits());
    options
}

fn make_pipe(path: &Path) -> io::Result<()> {
    match mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR) {
        Ok(()) | Err(nix::Error::EEXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Reads a file that [`write_json`] wrote.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    let mut text = Vec::new();
    no_link().read(true).open(path)?.read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(|error| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display()))
    })
}

/// Replaces a file atomically: a reader sees the old or the new text, even after a power cut.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let draft = draft(path, value)?;
    fs::rename(draft, path)
}

/// Writes a file that must not exist yet: of several writers, one succeeds.
pub(crate) fn claim_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let draft = draft(path, value)?;
    let claimed = fs::hard_link(&draft, path);
    fs::remove_file(draft)?;
    claimed
}

/// A complete copy next to the file. Its name is unique to the process.
fn draft(path: &Path, value: &impl Serialize) -> io::Result<PathBuf> {
    let draft = path.with_extension(format!("{}.tmp", std::process::id()));
    let written = private().create(true).truncate(true).open(&draft).and_then(|mut file| {
        file.write_all(&serde_json::to_vec(value)?)?;
        file.sync_data()
    });
    if let Err(error) = written {
        // An incomplete copy wastes space on a full disk.
        let _ = fs::remove_file(&draft);
        return Err(error);
    }
    Ok(draft)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_has_one_agent() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = StateFolder::open(place.path()).expect("it can be made");
        let lock = folder.lock().expect("no other agent has it");
        let refused = folder.lock().expect_err("taken");
        assert!(refused.to_string().contains("another agent"), "{refused}");
        drop(lock);
        folder.lock().expect("free again");
    }

    #[test]
    fn state_of_another_store_or_node_is_separate() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = StateFolder::open(place.path()).expect("it can be made");
        let owner = |store: &str, node: &str| Owner { store: store.into(), node: node.into() };
        let of = |owner: &Owner| folder.of_owner(owner).expect("it can be made").root;
        let first = owner("a", "n1");
        assert_eq!(of(&first), folder.root);
        let others = [owner("b", "n1"), owner("a", "n2"), owner("a", "n.2"), owner("a", "n_2")];
        let mut all: Vec<PathBuf> = others.iter().map(&of).collect();
        assert_eq!(all, others.iter().map(&of).collect::<Vec<_>>(), "each finds its own again");
        all.push(of(&first));
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 5, "{all:?}");
    }

    #[test]
    fn a_name_cannot_escape_its_folder() {
        assert_eq!(file_name("att_01.2"), "att_01_2");
        assert_eq!(file_name("../../etc/passwd"), "______etc_passwd");
        assert!(is_attempt_id("att_01h-9"));
        for strange in ["", ".", "..", "a.b", "a/b", "a\0", "ä", &"a".repeat(101)] {
            assert!(!is_attempt_id(strange), "{strange}");
        }
    }

    #[test]
    fn the_id_of_a_store_cannot_escape_a_folder() {
        for plain in ["0123456789abcdef0123456789abcdef-3", "store", "a.b_c-D"] {
            assert!(is_store_id(plain), "{plain}");
        }
        let long = "a".repeat(65);
        for strange in ["", ".", "..", ".a", "a/../b", "/", "a b", "a\0", "a\n", "ä", "a:b", &long]
        {
            assert!(!is_store_id(strange), "{strange}");
        }
    }

    #[test]
    fn folders_of_other_owners_are_bounded_and_those_with_attempts_stay() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = StateFolder::open(place.path()).expect("it can be made");
        let of = |number: usize| {
            folder.of_owner(&Owner { store: format!("s{number}"), node: "n".into() })
        };
        let count = || fs::read_dir(place.path().join("others")).expect("there").count();
        of(0).expect("the folder itself");
        let busy = of(1).expect("made");
        busy.create("att_1", |_| Ok(())).expect("made");
        for number in 2..MAX_OTHERS * 2 {
            of(number).expect("made");
        }
        assert_eq!(count(), MAX_OTHERS);
        assert_eq!(busy.all_attempts().expect("it is still there").len(), 1);
        for entry in fs::read_dir(place.path().join("others")).expect("there") {
            fs::create_dir_all(entry.expect("readable").path().join("attempts/att_1"))
                .expect("made");
        }
        let refused = of(MAX_OTHERS * 2).expect_err("all of them have attempts");
        assert!(refused.to_string().contains("others"), "{refused}");
        assert_eq!(count(), MAX_OTHERS);
        of(1).expect("one that is there is found");
    }

    #[test]
    fn a_folder_that_other_users_can_read_is_closed() {
        let place = tempfile::tempdir().expect("a folder");
        let root = place.path().join("state");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        for name in ["attempts", "forgotten"] {
            fs::create_dir_all(root.join(name)).expect("made");
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o755)).expect("ours");
        }
        fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).expect("ours");
        StateFolder::open(&root).expect("it is ours");
        for path in [root.clone(), root.join("attempts"), root.join("forgotten")] {
            assert_eq!(mode(&path), 0o700, "{}", path.display());
        }
    }

    #[test]
    fn the_folder_of_an_attempt_is_created_atomically() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = StateFolder::open(place.path()).expect("it can be made");
        let broken = folder.create("att_1", |_| Err(io::Error::other("full")));
        assert!(broken.is_err());
        assert_eq!(folder.all_attempts().expect("readable").len(), 0);
        let made = folder.create("att_1", |new| write_json(&new.launch(), &7)).expect("made");
        assert_eq!(read_json::<u32>(&made.launch()).expect("there"), 7);
        assert_eq!(folder.all_attempts().expect("readable")[0].0, "att_1");
        assert!(folder.create("att_1", |_| Ok(())).is_err());
    }

    #[test]
    fn a_forgotten_attempt_leaves_its_id() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = StateFolder::open(place.path()).expect("it can be made");
        folder.create("att_1", |_| Ok(())).expect("made");
        assert!(!folder.is_forgotten("att_1"));
        folder.forget("att_1").expect("it ended");
        assert!(folder.is_forgotten("att_1"));
        assert_eq!(folder.all_attempts().expect("readable").len(), 0);
    }

    #[test]
    fn the_first_of_several_claims_succeeds() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("record.json");
        claim_json(&path, &1).expect("nothing there");
        let second = claim_json(&path, &2).expect_err("taken");
        assert_eq!(second.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(read_json::<u32>(&path).expect("there"), 1);
        assert_eq!(fs::read_dir(place.path()).expect("readable").count(), 1);
    }
}
