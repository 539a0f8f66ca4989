//! Helpers shared by the tests of this crate.
#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "every test binary uses another part"
)]

#[path = "../../../journal/tests/support/traffic.rs"]
pub mod traffic;

#[path = "../../../journal/tests/support/jobs.rs"]
pub mod jobs;

#[path = "../../../journal/tests/support/temp_dir.rs"]
mod temp_dir;

use bursar_audit::{Batches, RawBatch, RawHead};
use bursar_journal::memory::MemoryJournal;
use bursar_journal::{Journal, JournalId};
pub use temp_dir::TempDir;
use traffic::World;

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
