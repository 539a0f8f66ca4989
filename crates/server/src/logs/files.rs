//! The files: `ATTEMPT.RANK.NODE.log` for output, `ATTEMPT.message` for last words.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::time::SystemTime;

use bursar_core::ledger::id::is_valid_name;

use super::{LogLimits, NodeTag, Output};

/// The most that is read at once.
const PIECE: u64 = 64 << 10;

/// Bytes that are kept of each node.
pub(super) type Totals = BTreeMap<NodeTag, u64>;

/// The folder.
#[derive(Debug)]
pub(super) struct Files {
    folder: PathBuf,
}

impl Files {
    pub(super) fn new(folder: PathBuf) -> Files {
        Files { folder }
    }

    fn path(&self, attempt: &str, ending: &str) -> std::io::Result<PathBuf> {
        // Ids of attempts are made here; what is not one must not name a file.
        let plain = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !is_valid_name(attempt) || !attempt.strip_prefix("att_").is_some_and(plain) {
            return Err(std::io::Error::other("not the id of an attempt"));
        }
        Ok(self.folder.join(format!("{attempt}.{ending}")))
    }

    /// The file of an output. Earlier versions left the node out; such a file stays what it is.
    fn output(&self, output: &Output) -> std::io::Result<PathBuf> {
        let Output { attempt, rank, node } = output;
        let earlier = match rank {
            0 => self.path(attempt, "log")?,
            rank => self.path(attempt, &format!("{rank}.log"))?,
        };
        if earlier.exists() {
            return Ok(earlier);
        }
        self.path(attempt, &format!("{rank}.{}.log", node.0))
    }

    /// Adds to an output: see [`super::LogStore::append`].
    pub(super) fn append(
        &self,
        output: &Output,
        offset: u64,
        data: &[u8],
        limits: &LogLimits,
        totals: &mut Option<Totals>,
    ) -> std::io::Result<u64> {
        let path = self.output(output)?;
        let kept = self.len(output);
        let end = offset.saturating_add(data.len() as u64);
        if offset > kept && kept < limits.attempt_bytes {
            return Ok(kept);
        }
        let skip = usize::try_from(kept.saturating_sub(offset)).unwrap_or(usize::MAX);
        let room = usize::try_from(limits.attempt_bytes.saturating_sub(kept)).unwrap_or(usize::MAX);
        let fresh = data.get(skip..).unwrap_or_default();
        let fresh = &fresh[..fresh.len().min(room)];
        if !fresh.is_empty() {
            std::fs::create_dir_all(&self.folder)?;
            let totals = match totals {
                Some(totals) => totals,
                None => totals.insert(self.totals()?),
            };
            OpenOptions::new().create(true).append(true).open(&path)?.write_all(fresh)?;
            let total = totals.entry(output.node.clone()).or_default();
            *total += fresh.len() as u64;
            if *total > limits.node_bytes {
                *total = self.shed(&output.node, &path, limits.node_bytes)?;
            }
        }
        Ok(end.max(kept))
    }

    /// Files of nodes: the node, the path, the length and the last change.
    fn all(&self) -> std::io::Result<Vec<(NodeTag, PathBuf, u64, SystemTime)>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let parts = name.to_str().and_then(|name| name.strip_suffix(".log"));
            let tag = parts.and_then(|parts| parts.splitn(3, '.').nth(2));
            if let Some(tag) = tag {
                let about = entry.metadata()?;
                let changed = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                found.push((NodeTag(tag.to_owned()), entry.path(), about.len(), changed));
            }
        }
        Ok(found)
    }

    /// What is kept of each node, when the first piece is written.
    fn totals(&self) -> std::io::Result<Totals> {
        let mut totals = Totals::new();
        for (node, _, length, _) in self.all()? {
            *totals.entry(node).or_default() += length;
        }
        Ok(totals)
    }

    /// Removes the oldest files of a node, but not the one that is being written, until an eighth of
    /// the bound is free. Says what is left.
    fn shed(&self, node: &NodeTag, current: &PathBuf, bound: u64) -> std::io::Result<u64> {
        let mut files = self.all()?;
        files.retain(|(of, ..)| of == node);
        files.sort_by(|a, b| (a.3, &a.1).cmp(&(b.3, &b.1)));
        let mut total: u64 = files.iter().map(|(_, _, length, _)| length).sum();
        let target = bound - bound / 8;
        for (_, path, length, _) in files.iter().filter(|(_, path, ..)| path != current) {
            if total <= target {
                break;
            }
            std::fs::remove_file(path)?;
            total -= length;
        }
        Ok(total)
    }

    /// How much output is kept.
    pub(super) fn len(&self, output: &Output) -> u64 {
        let length = self.output(output).and_then(std::fs::metadata);
        length.map_or(0, |metadata| metadata.len())
    }

    pub(super) fn read(&self, output: &Output, offset: u64) -> std::io::Result<Vec<u8>> {
        let mut file = match File::open(self.output(output)?) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        file.seek(SeekFrom::Start(offset))?;
        let mut piece = Vec::new();
        file.take(PIECE).read_to_end(&mut piece)?;
        Ok(piece)
    }

    pub(super) fn note(&self, attempt: &str, message: &str) -> std::io::Result<()> {
        let path = self.path(attempt, "message")?;
        std::fs::create_dir_all(&self.folder)?;
        match OpenOptions::new().create_new(true).write(true).open(path) {
            Ok(mut file) => file.write_all(message.as_bytes()),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(super) fn message(&self, attempt: &str) -> Option<String> {
        std::fs::read_to_string(self.path(attempt, "message").ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use bursar_core::cell::NodeKey;

    use super::*;

    fn output(attempt: usize, node: &str) -> Output {
        let node = NodeTag::of("eu", &NodeKey::from(node));
        Output { attempt: format!("att_{attempt:04}"), rank: 0, node }
    }

    #[test]
    fn a_node_keeps_so_much_and_its_oldest_files_go_first() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let files = Files::new(folder.path().join("logs"));
        let limits = LogLimits { node_bytes: 1000, ..LogLimits::default() };
        let kept = |node: &str| -> u64 {
            let all = (0..40).map(|attempt| output(attempt, node));
            all.map(|output| files.len(&output)).sum()
        };
        let mut totals = None;
        for attempt in 0..20 {
            for node in ["n1", "n2"] {
                let written =
                    files.append(&output(attempt, node), 0, &[b'x'; 100], &limits, &mut totals);
                written.expect("written");
                assert!(kept(node) <= 1000, "{attempt}");
            }
            // As after a new start of the server.
            if attempt % 7 == 0 {
                totals = None;
            }
        }
        for node in ["n1", "n2"] {
            assert!(kept(node) >= 700);
            assert_eq!(files.len(&output(19, node)), 100, "the newest is there");
            assert_eq!(files.len(&output(0, node)), 0, "the oldest is gone");
        }
    }

    #[test]
    fn the_file_of_an_earlier_version_goes_on() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let files = Files::new(folder.path().to_owned());
        std::fs::write(folder.path().join("att_0001.log"), "before ").expect("written");
        let own = output(1, "n1");
        let end = files.append(&own, 7, b"and after", &LogLimits::default(), &mut None);
        assert_eq!(end.expect("written"), 16);
        assert_eq!(files.read(&own, 0).expect("read"), b"before and after");
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }
}
