//! How much of an archive a look-up reads.

use crate::archive_steps::Running;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bursar_core::ledger::holds::archive::RecalledRecord;
use bursar_core::ledger::id::{AccountNo, Name};
use bursar_core::ledger::refusal::Resource;
use bursar_core::time::Timestamp;
use bursar_engine::archiver::build_archive;
use bursar_engine::recall::recall_with_keys;
use bursar_journal::JournalError;
use bursar_journal::archive::{
    Archive, ArchiveContents, ArchiveFamily, ArchiveMark, ArchiveSizes, ArchiveTables, EachBlock,
    GroupPlace, MemoryTables, NewBlock, SealedRun,
};

/// Tables that count what look-ups read.
#[derive(Default)]
struct CountedTables {
    tables: MemoryTables,
    /// Reads of pages and blocks, one after the other.
    read: Arc<AtomicU64>,
    /// Reads of rows of filters, each of all groups at once.
    filters: Arc<AtomicU64>,
}

impl ArchiveTables for CountedTables {
    fn contents(&self) -> Result<ArchiveContents, JournalError> {
        self.tables.contents()
    }

    fn append(&self, blocks: &[NewBlock], mark: ArchiveMark) -> Result<(), JournalError> {
        self.tables.append(blocks, mark)
    }

    fn seal(&self, run: &SealedRun, pages: &[(u64, Vec<u8>)]) -> Result<(), JournalError> {
        self.tables.seal(run, pages)
    }

    fn put_rows(&self, group: u32, rows: &[(u32, Vec<u8>)]) -> Result<(), JournalError> {
        self.tables.put_rows(group, rows)
    }

    fn group(&self, runs: &[(u32, GroupPlace)]) -> Result<(), JournalError> {
        self.tables.group(runs)
    }

    fn drop_run(&self, run: &SealedRun, emptied: Option<u32>) -> Result<(), JournalError> {
        self.tables.drop_run(run, emptied)
    }

    fn block(&self, family: ArchiveFamily, number: u32) -> Result<Option<Vec<u8>>, JournalError> {
        self.read.fetch_add(1, Ordering::Relaxed);
        self.tables.block(family, number)
    }

    fn each_block(
        &self,
        family: ArchiveFamily,
        from: u32,
        each: &mut EachBlock<'_>,
    ) -> Result<(), JournalError> {
        self.tables.each_block(family, from, each)
    }

    fn page(&self, run: u32, hash: u64) -> Result<Option<Vec<u8>>, JournalError> {
        self.read.fetch_add(1, Ordering::Relaxed);
        self.tables.page(run, hash)
    }

    fn rows(&self, wanted: &[(u32, u32)]) -> Result<Vec<(u32, Vec<u8>)>, JournalError> {
        self.filters.fetch_add(1, Ordering::Relaxed);
        self.tables.rows(wanted)
    }

    fn clear(&self) -> Result<(), JournalError> {
        self.tables.clear()
    }
}

/// Pairs that are archived, in 12 runs of holds and 6 of answers, most of them in groups.
const PAIRS: u64 = 12_000;
/// Pairs that are looked up.
const ASKED: u64 = 1_000;

#[test]
fn a_request_about_something_old_reads_two_places_for_each_thing_that_it_needs() {
    let running = Running::new();
    let counted = CountedTables::default();
    let (read, filters) = (Arc::clone(&counted.read), Arc::clone(&counted.filters));
    // The cache of rows is as good as absent.
    let sizes = ArchiveSizes { run_entries: 1_000, group_runs: 4, cached_rows: 1 };
    let archive = Archive::new(Box::new(counted)).expect("memory").with_sizes(sizes);
    build_archive(&*running.journal, &archive, Timestamp::MIN).expect("memory cannot fail");
    let key = |number: u64| u128::from(number) << 64 | 1;
    for number in 0..PAIRS {
        running.pair(&format!("h{number}"), (number % 2 == 0).then(|| key(number)));
        // Small steps, so that runs are as large as their filters are made for.
        while number % 64 == 63 && running.step(&archive) > 0 {}
    }
    while running.step(&archive) > 0 {}
    let costs = |names: &dyn Fn(u64) -> Name, keys: &dyn Fn(u64) -> u128, is_old: bool| {
        let before = [&read, &filters].map(|count| count.load(Ordering::Relaxed));
        for number in (0..2 * ASKED).step_by(2) {
            let names = [(Resource::Hold, AccountNo(0), names(number))];
            let found = recall_with_keys(&archive, &names, &[keys(number)]).expect("memory");
            assert_eq!(found[0].recalled.len(), usize::from(is_old));
            if found[1].answer.is_some() {
                let RecalledRecord::Hold(shown) = &found[1].recalled[0] else { panic!("a hold") };
                assert_eq!(shown.hold.id.as_str(), names[0].2);
            }
        }
        let after = [&read, &filters].map(|count| count.load(Ordering::Relaxed));
        [0, 1].map(|of| (after[of] - before[of]) as f64 / ASKED as f64)
    };
    let own: &dyn Fn(u64) -> Name = &|number| format!("h{number}").into();
    let (fresh, new) = (&|number| u128::from(number), &|number| Name::from(format!("n{number}")));
    // A page of an index and a block; rarely those of another run, whose filter has the same bits.
    let [settle, rows] = costs(own, fresh, true);
    assert!((2.0..2.5).contains(&settle) && rows <= 2.0, "{settle} reads, {rows} of filters");
    // The record that the name and the answer both mean is read once.
    let [repeat, rows] = costs(own, &key, true);
    assert!((4.0..4.5).contains(&repeat) && rows <= 2.0, "{repeat} reads, {rows} of filters");
    // An answer names what it shows.
    let found = recall_with_keys(&archive, &[], &[key(0)]).expect("memory");
    assert_eq!(found[1].recalled.len(), 1, "what the answer shows is looked up");
    let [unknown, rows] = costs(new, fresh, false);
    assert!(unknown < 0.5 && rows <= 2.0, "{unknown} reads, {rows} of filters");
}
