//! The files: `ATTEMPT.RANK.NODE.TENANT.log` for output, the same with `.cut` for the reason why it
//! is incomplete, and `ATTEMPT.TENANT.message` for the agent's final message.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bursar_core::name::is_valid_name;

use super::index::Owner;
use super::{NodeTag, Output, TenantTag};

/// The most bytes of one read.
const MAX_READ_BYTES: u64 = 64 << 10;

/// An existing file.
#[derive(Debug)]
pub(super) struct LogFile {
    pub(super) name: String,
    pub(super) owner: Owner,
    pub(super) bytes: u64,
    pub(super) changed: SystemTime,
}

/// The folder.
#[derive(Debug)]
pub(super) struct Files {
    folder: PathBuf,
}

fn read_tag(digits: &str) -> Option<u64> {
    (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

/// The owner of a file, from its name; `None` if the file is not one of this store.
fn owner(name: &str) -> Option<Owner> {
    let mut parts = name.split('.');
    parts.next().filter(|attempt| attempt.starts_with("att_"))?;
    let parts: Vec<&str> = parts.collect();
    let (kind, parts) = parts.split_last()?;
    let (tenant, node) = match (*kind, parts) {
        ("log" | "cut", [_, node, tenant]) => (Some(*tenant), Some(*node)),
        // Earlier versions had no tenant in the name, and before that no node.
        ("log", [_, node]) => (None, Some(*node)),
        ("message", [tenant]) => (Some(*tenant), None),
        ("log", [] | [_]) | ("message", []) => (None, None),
        _ => return None,
    };
    let tenant = tenant.and_then(read_tag).map(TenantTag);
    Some(Owner { tenant, node: node.and_then(read_tag).map(NodeTag) })
}

impl Files {
    pub(super) fn new(folder: PathBuf) -> Files {
        Files { folder }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn name(attempt: &str, ending: &str) -> std::io::Result<String> {
        // Ids of attempts are made by this server; any other text must not become a file name.
        let plain = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !is_valid_name(attempt) || !attempt.strip_prefix("att_").is_some_and(plain) {
            return Err(std::io::Error::other("not the id of an attempt"));
        }
        Ok(format!("{attempt}.{ending}"))
    }

    /// The file of an output. Names of earlier versions had no tenant, and before that no node; an
    /// existing file keeps its name.
    pub(super) fn output(&self, output: &Output) -> std::io::Result<String> {
        let Output { attempt, rank, node: NodeTag(node), tenant: TenantTag(tenant) } = output;
        let first = match rank {
            0 => Files::name(attempt, "log")?,
            rank => Files::name(attempt, &format!("{rank}.log"))?,
        };
        let second = Files::name(attempt, &format!("{rank}.{node:016x}.log"))?;
        for earlier in [first, second] {
            if self.path(&earlier).exists() {
                return Ok(earlier);
            }
        }
        Files::name(attempt, &format!("{rank}.{node:016x}.{tenant:016x}.log"))
    }

    /// The file with the reason why an output is incomplete.
    pub(super) fn note_of(output: &Output) -> std::io::Result<String> {
        let Output { attempt, rank, node: NodeTag(node), tenant: TenantTag(tenant) } = output;
        Files::name(attempt, &format!("{rank}.{node:016x}.{tenant:016x}.cut"))
    }

    /// The file with the final message of an attempt.
    pub(super) fn message_of(
        attempt: &str,
        TenantTag(tenant): TenantTag,
    ) -> std::io::Result<String> {
        Files::name(attempt, &format!("{tenant:016x}.message"))
    }

    /// All files, the most recently changed last.
    pub(super) fn all(&self) -> std::io::Result<Vec<LogFile>> {
        let entries = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let Some(owner) = owner(&name) else { continue };
            let about = entry.metadata()?;
            let changed = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            found.push(LogFile { name, owner, bytes: about.len(), changed });
        }
        found.sort_by(|a, b| (a.changed, &a.name).cmp(&(b.changed, &b.name)));
        Ok(found)
    }

    /// Appends to a file.
    pub(super) fn append(&self, name: &str, data: &[u8]) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        OpenOptions::new().create(true).append(true).open(self.path(name))?.write_all(data)
    }

    /// Writes a file unless it exists. Returns whether it was written.
    pub(super) fn create(&self, name: &str, text: &str) -> std::io::Result<bool> {
        std::fs::create_dir_all(&self.folder)?;
        match OpenOptions::new().create_new(true).write(true).open(self.path(name)) {
            Ok(mut file) => file.write_all(text.as_bytes()).map(|()| true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes a file, if it exists.
    pub(super) fn remove(&self, name: &str) -> std::io::Result<()> {
        match std::fs::remove_file(self.path(name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// The length of a file; 0 if it does not exist.
    pub(super) fn len(&self, name: &str) -> u64 {
        std::fs::metadata(self.path(name)).map_or(0, |metadata| metadata.len())
    }

    pub(super) fn read(&self, output: &Output, offset: u64) -> std::io::Result<Vec<u8>> {
        let mut file = match File::open(self.path(&self.output(output)?)) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        file.seek(SeekFrom::Start(offset))?;
        let mut piece = Vec::new();
        file.take(MAX_READ_BYTES).read_to_end(&mut piece)?;
        Ok(piece)
    }

    pub(super) fn cut(&self, output: &Output) -> Option<String> {
        std::fs::read_to_string(self.path(&Files::note_of(output).ok()?)).ok()
    }

    pub(super) fn message(&self, attempt: &str, tenant: TenantTag) -> Option<String> {
        let name = Files::message_of(attempt, tenant).ok()?;
        let earlier = || Files::name(attempt, "message").ok();
        let read = |name: String| std::fs::read_to_string(self.path(&name)).ok();
        read(name).or_else(|| read(earlier()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_name_contains_its_owner() {
        let of = |tenant, node| {
            Some(Owner { tenant: Option::map(tenant, TenantTag), node: Option::map(node, NodeTag) })
        };
        for (name, expected) in [
            ("att_1.0.000000000000000a.000000000000000b.log", of(Some(11), Some(10))),
            ("att_1.0.000000000000000a.000000000000000b.cut", of(Some(11), Some(10))),
            ("att_1.000000000000000b.message", of(Some(11), None)),
            ("att_1.2.000000000000000a.log", of(None, Some(10))),
            ("att_1.2.log", of(None, None)),
            ("att_1.log", of(None, None)),
            ("att_1.message", of(None, None)),
            ("notes.txt", None),
            ("att_1", None),
            ("att_1.tmp", None),
        ] {
            assert_eq!(owner(name), expected, "{name}");
        }
    }
}
