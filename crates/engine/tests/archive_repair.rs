//! An archive that lacks what was forgotten by its age alone is completed, and loses nothing while the journal cannot be
//! read.

use crate::archive_steps::{Running, has};
use crate::support::{memory, wait_until};
use crate::traffic::World;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bursar_core::ledger::id::AccountNo;
use bursar_core::ledger::refusal::Resource;
use bursar_core::time::Timestamp;
use bursar_engine::ManualClock;
use bursar_engine::archiver::{Archiver, ClosedWindow, build_archive, must_build};
use bursar_journal::archive::{
    Archive, ArchiveContents, ArchiveEntry, ArchiveFamily, ArchiveMark, ArchiveTables, EachBlock,
    GroupPlace, MemoryTables, NewBlock, SealedRun,
};
use bursar_journal::record::ledger::object_key;
use bursar_journal::{
    Batch, BatchReader, Epoch, Head, Journal, JournalError, JournalId, Lease, LeaseError, Pending,
    Snapshot, SnapshotMark,
};

/// A journal whose segments can be away.
struct Movable {
    inner: Arc<dyn Journal>,
    is_away: AtomicBool,
}

impl Journal for Movable {
    fn id(&self) -> JournalId {
        self.inner.id()
    }

    fn head(&self) -> Result<Head, JournalError> {
        self.inner.head()
    }

    fn begin_append(&self, epoch: Epoch, expected: Head, batch: Batch) -> Pending {
        self.inner.begin_append(epoch, expected, batch)
    }

    fn read(&self, after: Head) -> Result<BatchReader, JournalError> {
        if self.is_away.load(Ordering::SeqCst) {
            return Err(JournalError::storage("reading", "the folder is not mounted"));
        }
        self.inner.read(after)
    }

    fn head_at(&self, sequence: u64) -> Result<Head, JournalError> {
        self.inner.head_at(sequence)
    }

    fn reopen(&self) -> Result<(), JournalError> {
        self.inner.reopen()
    }

    fn acquire_lease(&self, holder: &str, ttl: Duration) -> Result<Lease, LeaseError> {
        self.inner.acquire_lease(holder, ttl)
    }

    fn renew_lease(&self, lease: &Lease) -> Result<(), LeaseError> {
        self.inner.renew_lease(lease)
    }

    fn release_lease(&self, lease: &Lease) -> Result<(), LeaseError> {
        self.inner.release_lease(lease)
    }

    fn put_snapshot(&self, snapshot: &Snapshot) -> Result<(), JournalError> {
        self.inner.put_snapshot(snapshot)
    }

    fn list_snapshots(&self) -> Result<Vec<SnapshotMark>, JournalError> {
        self.inner.list_snapshots()
    }

    fn get_snapshot(&self, mark: SnapshotMark) -> Result<Snapshot, JournalError> {
        self.inner.get_snapshot(mark)
    }
}

/// Tables whose first blocks are damaged.
#[derive(Default)]
struct DamagedTables {
    tables: MemoryTables,
    /// The number of the first block that is not.
    whole_from: Arc<AtomicU32>,
    /// The number after the newest block.
    next: Arc<AtomicU32>,
}

impl ArchiveTables for DamagedTables {
    fn contents(&self) -> Result<ArchiveContents, JournalError> {
        self.tables.contents()
    }

    fn append(&self, blocks: &[NewBlock], mark: ArchiveMark) -> Result<(), JournalError> {
        if let Some(newest) = blocks.iter().map(|block| block.number).max() {
            self.next.store(newest + 1, Ordering::SeqCst);
        }
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
        let mut block = self.tables.block(family, number)?;
        if number < self.whole_from.load(Ordering::SeqCst) {
            block.iter_mut().flatten().for_each(|byte| *byte ^= 1);
        }
        Ok(block)
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
        self.tables.page(run, hash)
    }

    fn rows(&self, wanted: &[(u32, u32)]) -> Result<Vec<(u32, Vec<u8>)>, JournalError> {
        self.tables.rows(wanted)
    }

    fn clear(&self) -> Result<(), JournalError> {
        // What is written next is read as it was written.
        self.whole_from.store(0, Ordering::SeqCst);
        self.tables.clear()
    }
}

/// A ledger that earlier releases let forget jobs by their age.
fn aged() -> Running {
    let journal: Arc<dyn Journal> = Arc::new(memory(1));
    let world = World::after(1, 600);
    assert!(world.ledger.forgotten_by_age().is_some());
    world.write_to(&*journal, 20);
    Running::on(journal, Arc::new(ManualClock::new(world.clock)))
}

fn archiving(
    running: &Running,
    journal: Arc<dyn Journal>,
    archive: &Arc<Archive>,
    noted: impl Fn(bool) + Send + 'static,
) -> Archiver {
    let window = ClosedWindow { keep: 1 << 20, most: 100 };
    Archiver::watched(
        (journal, running.durable()),
        running.handle(),
        Arc::clone(archive),
        (window, Duration::from_millis(1)),
        || None,
        move |done| noted(done.is_ok()),
    )
}

#[test]
fn an_archive_that_lacks_jobs_alone_keeps_all_else_while_the_journal_cannot_be_read() {
    let running = aged();
    let archive = Arc::new(Archive::in_memory());
    let head = running.journal.head().expect("memory cannot fail");
    let key = object_key(Resource::Hold, AccountNo(0), "kept");
    let kept = ArchiveEntry { family: ArchiveFamily::Objects, key, value: vec![1], at: 1 };
    archive.put_marked(&[kept], head.position, Some(head)).expect("memory cannot fail");
    let before = archive.position();
    let inner = Arc::clone(&running.journal);
    let journal = Arc::new(Movable { inner, is_away: AtomicBool::new(true) });
    let failed = Arc::new(AtomicBool::new(false));
    let fails = Arc::clone(&failed);
    let noted = move |is_done: bool| {
        fails.fetch_or(!is_done, Ordering::SeqCst);
    };
    let archiver = archiving(&running, Arc::<Movable>::clone(&journal), &archive, noted);
    wait_until("a build has failed", || failed.load(Ordering::SeqCst));
    assert_eq!(archive.mark().position, before, "nothing was lost");
    assert_eq!(archive.position(), 0, "it is not used");
    journal.is_away.store(false, Ordering::SeqCst);
    wait_until("it is complete", || archive.position() > 0);
    archiver.stop();
    assert!(archive.position() > before, "nothing is added at a position that was looked up");
    assert!(has(&archive, "kept"));
    assert!(!must_build(&*running.journal, &running.handle(), &archive).expect("memory"));
}

#[test]
fn an_archive_whose_newest_block_is_damaged_is_used_again() {
    let running = aged();
    let tables = DamagedTables::default();
    let (whole_from, next) = (Arc::clone(&tables.whole_from), Arc::clone(&tables.next));
    let archive = Arc::new(Archive::new(Box::new(tables)).expect("memory cannot fail"));
    build_archive(&*running.journal, &archive, Timestamp::MIN).expect("memory cannot fail");
    let must = || must_build(&*running.journal, &running.handle(), &archive);
    assert!(!must().expect("it is whole"));
    whole_from.store(next.load(Ordering::SeqCst), Ordering::SeqCst);
    assert!(must().expect("damage is no reason to try the same again"));
    let archiver = archiving(&running, Arc::clone(&running.journal), &archive, |_| {});
    wait_until("it is written again", || archive.position() > 0);
    archiver.stop();
    assert!(!must().expect("the newest blocks are whole"));
}
