//! Helpers shared by the tests of this crate.
#![allow(dead_code, unreachable_pub, reason = "every test binary uses another part")]

pub mod postgres;

use std::path::{Path, PathBuf};

use bursar_core::time::Timestamp;
use bursar_journal::{Batch, BatchBuilder, Head, Journal, RecordKind, StoredBatch};

/// A directory that is removed when dropped.
pub struct TempDir(PathBuf);

impl TempDir {
    /// A new directory in the system's temporary one.
    pub fn new() -> TempDir {
        TempDir::under(&std::env::temp_dir())
    }

    /// A new directory in memory where the system has one: syncs are free there.
    pub fn in_memory() -> TempDir {
        let shared_memory = Path::new("/dev/shm");
        if shared_memory.is_dir() { TempDir::under(shared_memory) } else { TempDir::new() }
    }

    fn under(parent: &Path) -> TempDir {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).expect("the system gives random bytes");
        let path = parent.join(format!("bursar-test-{:016x}", u64::from_le_bytes(bytes)));
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

/// A batch whose content is determined by `number`: several records of odd sizes.
pub fn sample(number: u64) -> Batch {
    let mut builder = BatchBuilder::new();
    for record in 0..=number % 3 {
        let time =
            Timestamp::from_millis(1_577_836_800_000 + i64::try_from(number).expect("small"));
        builder.push(RecordKind::Decision, time, |out| {
            let length = (number * 131 + record * 17) % 700;
            out.extend((0..length).map(|i| (number * 7 + record + i).to_le_bytes()[0]));
        });
    }
    builder.finish().expect("at least one record was pushed")
}

/// All batches after `after`.
pub fn read_all(journal: &dyn Journal, after: Head) -> Vec<StoredBatch> {
    let reader = journal.read(after).expect("the journal can be read");
    reader.map(|batch| batch.expect("the journal is whole")).collect()
}
