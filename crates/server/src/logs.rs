//! The output of attempts, one file for each of their nodes. Bounded: the beginning is kept.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use bursar_core::ledger::id::is_valid_name;

/// The most that is kept of one attempt's output on one node.
const MOST: u64 = 16 << 20;
/// The most that is read at once.
const PIECE: u64 = 64 << 10;

/// What is kept of attempts beside the ledger: their output and their last words.
#[derive(Debug)]
pub struct LogStore {
    folder: PathBuf,
    /// One writer at a time: two reports of one attempt may come at once.
    writing: Mutex<()>,
}

impl LogStore {
    /// Keeps files in this folder, made when the first one is written.
    pub fn new(folder: PathBuf) -> LogStore {
        LogStore { folder, writing: Mutex::new(()) }
    }

    fn path(&self, attempt: &str, ending: &str) -> std::io::Result<PathBuf> {
        // Attempt ids are made here; what is not one must not name a file.
        if !is_valid_name(attempt) || !attempt.starts_with("att_") {
            return Err(std::io::Error::other("not the id of an attempt"));
        }
        Ok(self.folder.join(format!("{attempt}.{ending}")))
    }

    /// The file with the output of the node of a rank.
    fn output(&self, attempt: &str, rank: u32) -> std::io::Result<PathBuf> {
        match rank {
            0 => self.path(attempt, "log"),
            rank => self.path(attempt, &format!("{rank}.log")),
        }
    }

    /// Adds output that belongs at `offset`; what is there already is not written again. Says where
    /// the next piece belongs. What is beyond the bound is taken and dropped.
    pub fn append(
        &self,
        attempt: &str,
        rank: u32,
        offset: u64,
        data: &[u8],
    ) -> std::io::Result<u64> {
        let path = self.output(attempt, rank)?;
        let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        std::fs::create_dir_all(&self.folder)?;
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        let kept = file.metadata()?.len();
        let end = offset.saturating_add(data.len() as u64);
        if offset > kept && kept < MOST {
            return Ok(kept);
        }
        let skip = usize::try_from(kept.saturating_sub(offset)).unwrap_or(usize::MAX);
        let room = usize::try_from(MOST.saturating_sub(kept)).unwrap_or(usize::MAX);
        let fresh = data.get(skip..).unwrap_or_default();
        file.write_all(&fresh[..fresh.len().min(room)])?;
        Ok(end.max(kept))
    }

    /// How much output is kept.
    pub fn len(&self, attempt: &str, rank: u32) -> u64 {
        let length = self.output(attempt, rank).and_then(std::fs::metadata);
        length.map_or(0, |metadata| metadata.len())
    }

    /// A piece of the output from `offset` on; empty at its end.
    pub fn read(&self, attempt: &str, rank: u32, offset: u64) -> std::io::Result<Vec<u8>> {
        let mut file = match File::open(self.output(attempt, rank)?) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        file.seek(SeekFrom::Start(offset))?;
        let mut piece = Vec::new();
        file.take(PIECE).read_to_end(&mut piece)?;
        Ok(piece)
    }

    /// Keeps what an agent had to say about the end of an attempt; the first word counts.
    pub fn note(&self, attempt: &str, message: &str) -> std::io::Result<()> {
        let path = self.path(attempt, "message")?;
        let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if path.exists() {
            return Ok(());
        }
        std::fs::create_dir_all(&self.folder)?;
        std::fs::write(path, message)
    }

    /// What was noted.
    pub fn message(&self, attempt: &str) -> Option<String> {
        std::fs::read_to_string(self.path(attempt, "message").ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, LogStore) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = LogStore::new(folder.path().join("logs"));
        (folder, store)
    }

    #[test]
    fn a_piece_that_is_sent_twice_is_kept_once_and_a_gap_is_asked_for() {
        let (_folder, store) = store();
        assert_eq!(store.append("att_1", 0, 0, b"hello ").expect("written"), 6);
        assert_eq!(store.append("att_1", 0, 0, b"hello ").expect("written"), 6);
        assert_eq!(store.append("att_1", 0, 3, b"lo world").expect("written"), 11);
        assert_eq!(store.append("att_1", 0, 20, b"later").expect("answered"), 11);
        assert_eq!(store.read("att_1", 0, 0).expect("read"), b"hello world");
        assert_eq!(store.read("att_1", 0, 6).expect("read"), b"world");
        assert_eq!(store.read("att_2", 0, 0).expect("read"), b"");
    }

    #[test]
    fn each_node_of_a_gang_has_its_own_output() {
        let (_folder, store) = store();
        for (rank, said) in [(1, "one"), (0, "zero"), (12, "twelve")] {
            store.append("att_1", rank, 0, said.as_bytes()).expect("written");
        }
        for (rank, said) in [(0, "zero"), (1, "one"), (12, "twelve"), (2, "")] {
            assert_eq!(store.read("att_1", rank, 0).expect("read"), said.as_bytes());
        }
    }

    #[test]
    fn what_is_beyond_the_bound_is_taken_and_dropped() {
        let (_folder, store) = store();
        let most = usize::try_from(MOST).expect("fits");
        let large = vec![b'x'; most + 5];
        assert_eq!(store.append("att_1", 0, 0, &large).expect("written"), MOST + 5);
        assert_eq!(store.append("att_1", 0, MOST + 5, b"more").expect("taken"), MOST + 9);
        assert_eq!(store.len("att_1", 0), MOST);
    }

    #[test]
    fn only_an_attempt_names_a_file() {
        let (_folder, store) = store();
        for wrong in ["../att_1", "att_/x", "", "job_1"] {
            assert!(store.append(wrong, 0, 0, b"x").is_err(), "{wrong}");
        }
        store.note("att_1", "out of memory").expect("written");
        store.note("att_1", "another word").expect("ignored");
        assert_eq!(store.message("att_1").as_deref(), Some("out of memory"));
    }
}
