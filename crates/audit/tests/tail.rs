//! Journals whose newest batches are still in the tail, read while they are written.

use crate::support;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bursar_audit::check::check;
use bursar_audit::{Source, SqliteSource, verify_chain};
use bursar_core::time::Timestamp;
use bursar_journal::Journal;
use bursar_journal::backup::copy;
use bursar_journal::record::{BatchBuilder, RecordKind};
use bursar_journal::sqlite::{SqliteJournal, SqliteOptions};
use support::TempDir;
use support::traffic::World;

/// Small, so that it is overwritten often.
const OPTIONS: SqliteOptions =
    SqliteOptions { tail_bytes: 16 * 4096, checkpoint_pages: 40, unsafe_normal_sync: false };

fn open(directory: &Path) -> SqliteJournal {
    SqliteJournal::open(&directory.join("journal.db"), OPTIONS)
        .expect("no other process has it open")
}

#[test]
fn all_acknowledged_batches_are_read_while_others_are_appended_and_moved() {
    let directory = TempDir::new();
    let journal = open(directory.path());
    let epoch = journal.acquire_lease("test", Duration::from_secs(60)).expect("ours").epoch;
    let (acknowledged, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut head = journal.head().expect("it is open");
            while !done.load(Ordering::SeqCst) {
                let mut builder = BatchBuilder::new();
                // One to three pages.
                for _ in 0..=(head.sequence * 37) % 700 {
                    builder.push(RecordKind::Barrier, Timestamp::from_millis(1), |_| {});
                }
                let batch = builder.finish().expect("a record was pushed");
                head = journal.append(epoch, head, batch).expect("there is space");
                acknowledged.store(head.sequence, Ordering::SeqCst);
            }
        });
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                journal.compact().expect("there is space");
            }
        });
        // Also after a failed check.
        let _end = End(&done);
        let mut read = 0;
        while read < 60 {
            let before = acknowledged.load(Ordering::SeqCst);
            let source = SqliteSource::open(&directory.path().join("journal.db"));
            let source = source.expect("beside the writer");
            assert!(source.head().sequence >= before, "an acknowledged batch was not seen");
            let report = verify_chain(&source, |_| {});
            assert!(report.holds(), "{report}");
            read += u32::from(before > 0);
        }
    });
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_batch_only_in_the_tail_is_copied_and_a_flipped_bit_in_it_is_found() {
    let directory = TempDir::new();
    let journal =
        SqliteJournal::open(&directory.path().join("journal.db"), SqliteOptions::default())
            .expect("no other process has it open");
    World::after(6, 200).write_to(&journal, 3);
    let head = journal.head().expect("it is open");
    // As after a crash: none of it is in the database.
    let crashed = TempDir::new();
    for name in ["journal.db", "journal.db-wal", "journal.db-tail"] {
        let to = crashed.path().join(name);
        std::fs::copy(directory.path().join(name), to).expect("it is there");
    }
    let file = crashed.path().join("journal.db");
    let copied = crashed.path().join("copy.db");
    copy(&file, &copied, |_| {}).expect("a copy");
    let report = check(&copied, |_| {}).expect("a database");
    assert!(report.holds());
    assert_eq!((report.records, report.head), (head.position, head.hash.0));

    let tail = crashed.path().join("journal.db-tail");
    let mut bytes = std::fs::read(&tail).expect("it is there");
    // The first page of the third batch, which fits into one page.
    let pages: Vec<usize> = (0..bytes.len() / 4096)
        .filter(|page| bytes[page * 4096..].starts_with(b"\xffbursar tail v1\xff"))
        .collect();
    bytes[pages[2] * 4096 + 150] ^= 4;
    std::fs::write(&tail, bytes).expect("the test owns it");
    let report = check(&file, |_| {}).expect("a database");
    assert_eq!(report.problem.expect("a damaged batch").sequence, 3);
}
