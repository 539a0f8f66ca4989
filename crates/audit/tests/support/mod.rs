//! Helpers shared by the tests of this crate.
#![allow(dead_code, unreachable_pub, reason = "every test binary uses another part")]

#[path = "../../../journal/tests/support/traffic.rs"]
pub mod traffic;

#[path = "../../../journal/tests/support/jobs.rs"]
pub mod jobs;

use std::path::{Path, PathBuf};

use bursar_audit::{Batches, RawBatch, RawHead};
use bursar_journal::memory::MemoryJournal;
use bursar_journal::{Journal, JournalId};
use traffic::World;

pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new() -> TempDir {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).expect("the system gives random bytes");
        let name = format!("bursar-audit-{:016x}", u64::from_le_bytes(bytes));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("the temporary directory is writable");
        TempDir(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // A leftover directory is harmless.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The journal of generated traffic, as rows.
pub fn rows_of(world: &World, records_each: usize) -> Batches {
    let journal = MemoryJournal::new(JournalId([9; 16]));
    let head = world.write_to(&journal, records_each);
    let genesis = journal.head_at(0).expect("the genesis");
    let batches: Vec<RawBatch> = journal
        .read(genesis)
        .expect("the journal can be read")
        .map(|batch| batch.expect("the journal is whole").into())
        .collect();
    Batches {
        journal: [9; 16],
        head: RawHead { sequence: head.sequence, position: head.position, hash: head.hash.0 },
        batches,
    }
}
