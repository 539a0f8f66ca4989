//! The newest batches, in a separate file until they are in the database.

use crate::support;

use std::path::Path;
use std::time::Duration;

use bursar_core::time::Timestamp;
use bursar_journal::record::{BatchBuilder, RecordKind};
use bursar_journal::sqlite::{SqliteJournal, SqliteOptions, inspect};
use bursar_journal::{Batch, Epoch, Head, Journal, JournalError, MaintenanceUrgency};
use support::{TempDir, read_all, sample};

const FILES: [&str; 3] = ["journal.db", "journal.db-wal", "journal.db-tail"];

fn open(directory: &Path, tail_bytes: u64) -> Result<SqliteJournal, JournalError> {
    let options = SqliteOptions { tail_bytes, ..SqliteOptions::default() };
    SqliteJournal::open(&directory.join("journal.db"), options)
}

fn opened(directory: &Path) -> (SqliteJournal, Epoch) {
    let journal = open(directory, 1 << 20).expect("no other process has it open");
    let lease = journal.acquire_lease("test", Duration::from_secs(1)).expect("alone");
    (journal, lease.epoch)
}

fn append(journal: &SqliteJournal, epoch: Epoch, batches: u64) -> Head {
    let mut head = journal.head().expect("it is open");
    for _ in 0..batches {
        head = journal.append(epoch, head, sample(head.sequence)).expect("there is space");
    }
    head
}

/// A batch with one record of so many bytes.
fn batch_of(bytes: usize) -> Batch {
    let mut builder = BatchBuilder::new();
    let fill = |out: &mut Vec<u8>| out.extend(std::iter::repeat_n(7, bytes));
    builder.push(RecordKind::Decision, Timestamp::from_millis(1), fill);
    builder.finish().expect("one record was pushed")
}

/// The files as they would be if the process ended now.
fn copy(from: &Path, names: &[&str]) -> TempDir {
    let to = TempDir::new();
    for name in names {
        std::fs::copy(from.join(name), to.path().join(name)).expect("it is there");
    }
    to
}

fn rows(directory: &Path) -> u32 {
    let file = rusqlite::Connection::open(directory.join("journal.db")).expect("it is there");
    file.query_row("SELECT count(*) FROM batch", [], |row| row.get(0)).expect("a journal")
}

#[test]
fn batches_only_in_the_tail_are_read_and_survive() {
    let directory = TempDir::new();
    let (journal, epoch) = opened(directory.path());
    append(&journal, epoch, 10);
    journal.compact().expect("there is space");
    let head = append(&journal, epoch, 10);
    assert_eq!(rows(directory.path()), 10, "the others are not moved yet");
    assert_eq!(journal.maintenance_urgency(), MaintenanceUrgency::Soon);
    let genesis = Head::genesis(journal.id());
    let written = read_all(&journal, genesis);
    assert_eq!(written.len(), 20);
    for sequence in [0, 1, 9, 10, 11, 15, 20] {
        let at = journal.head_at(sequence).expect("it is there");
        assert_eq!(at.sequence, sequence);
        let rest = usize::try_from(20 - sequence).expect("small");
        assert_eq!(read_all(&journal, at), written[20 - rest..]);
    }
    assert!(journal.head_at(21).is_err());

    let crashed = copy(directory.path(), &FILES);
    let (again, epoch) = opened(crashed.path());
    assert_eq!(again.head(), Ok(head));
    assert_eq!(read_all(&again, genesis), written);
    assert_eq!(rows(crashed.path()), 20, "the start has moved them");
    append(&again, epoch, 1);
}

#[test]
fn after_a_clean_stop_the_tail_is_not_needed() {
    let directory = TempDir::new();
    let (journal, epoch) = opened(directory.path());
    let head = append(&journal, epoch, 10);
    drop(journal);
    let copied = copy(directory.path(), &FILES[..2]);
    assert_eq!(
        open(copied.path(), 1 << 20).expect("no other process has it open").head(),
        Ok(head)
    );
}

#[test]
fn a_full_tail_and_a_batch_larger_than_the_tail_are_handled() {
    let directory = TempDir::new();
    let journal = open(directory.path(), 4 * 4096).expect("a new file");
    let epoch = journal.acquire_lease("test", Duration::from_secs(1)).expect("alone").epoch;
    append(&journal, epoch, 30);
    assert!(rows(directory.path()) >= 26, "appends have made room");
    let large = batch_of(40_000);
    let head = journal.head().expect("it is open");
    journal.append(epoch, head, large).expect("there is space");
    assert_eq!(rows(directory.path()), 31);
    let head = append(&journal, epoch, 5);
    let genesis = Head::genesis(journal.id());
    assert_eq!(read_all(&journal, genesis).len(), 36);
    let length = std::fs::metadata(directory.path().join(FILES[2])).expect("it is there").len();
    assert!(length <= 4 * 4096, "{length} bytes");
    drop(journal);
    assert_eq!(
        open(directory.path(), 1 << 20).expect("no other process has it open").head(),
        Ok(head)
    );
}

#[test]
fn a_journal_that_is_older_than_its_tail_is_refused() {
    let directory = TempDir::new();
    let (journal, epoch) = opened(directory.path());
    append(&journal, epoch, 10);
    journal.compact().expect("there is space");
    let older = copy(directory.path(), &FILES[..2]);
    append(&journal, epoch, 10);
    journal.compact().expect("there is space");
    append(&journal, epoch, 3);
    std::fs::copy(directory.path().join(FILES[2]), older.path().join(FILES[2])).expect("there");
    let refused = open(older.path(), 1 << 20).map(|_| ()).expect_err("batches are missing");
    assert!(matches!(refused, JournalError::Corrupt { sequence: 11, .. }), "{refused}");
    assert!(refused.to_string().contains("tail"), "{refused}");
}

#[test]
fn a_tail_that_is_older_than_its_journal_is_refused() {
    let directory = TempDir::new();
    let (journal, epoch) = opened(directory.path());
    append(&journal, epoch, 10);
    let older = copy(directory.path(), &FILES[2..]);
    append(&journal, epoch, 10);
    journal.compact().expect("there is space");
    append(&journal, epoch, 3);
    let crashed = copy(directory.path(), &FILES[..2]);
    std::fs::copy(older.path().join(FILES[2]), crashed.path().join(FILES[2])).expect("there");
    let path = crashed.path().join(FILES[0]);
    for refused in [
        inspect(&path, None).map(|_| ()).expect_err("three batches are missing"),
        open(crashed.path(), 1 << 20).map(|_| ()).expect_err("three batches are missing"),
    ] {
        let said = refused.to_string();
        assert!(said.contains("journal.db-tail: it ends with batch 10"), "{said}");
        assert!(said.contains("admin restore"), "{said}");
    }
}

/// Batches that are in the database are not needed in the tail, but its newest frame is: a write
/// that a power loss tears must not make the tail look older than the database.
#[test]
fn a_torn_append_never_makes_a_tail_look_older_than_its_journal() {
    let directory = TempDir::new();
    let (journal, epoch) = opened(directory.path());
    for round in 0..20_u64 {
        append(&journal, epoch, 1 + round % 3);
        journal.compact().expect("there is space");
        let before = std::fs::read(directory.path().join(FILES[2])).expect("it is there");
        let stopped = copy(directory.path(), &FILES[..2]);
        let head = journal.head().expect("it is open");
        let large = batch_of(30_000);
        let next = journal.append(epoch, head, large).expect("there is space");
        let after = std::fs::read(directory.path().join(FILES[2])).expect("it is there");
        // Of the pages that changed, all but the first are lost; every other one; the others.
        for (first, step) in [(1, 1), (0, 2), (1, 2)] {
            let mut torn = after.clone();
            let pages = torn.chunks_mut(4096).zip(before.chunks(4096));
            let changed = pages.filter(|(after, before)| after != before);
            for (page, before) in changed.skip(first).step_by(step) {
                page.copy_from_slice(before);
            }
            let crashed = copy(stopped.path(), &FILES[..2]);
            std::fs::write(crashed.path().join(FILES[2]), &torn).expect("it is ours");
            let again = open(crashed.path(), 1 << 20).expect("at most the last append is torn");
            assert!([head, next].contains(&again.head().expect("it is open")));
        }
        journal.compact().expect("there is space");
    }
}

#[test]
fn a_stale_epoch_and_a_stale_head_are_fenced() {
    let directory = TempDir::new();
    let (journal, old) = opened(directory.path());
    let head = append(&journal, old, 2);
    let new = journal.acquire_lease("other", Duration::from_secs(1)).expect("alone").epoch;
    assert!(journal.append(old, head, sample(3)).is_err());
    let next = journal.append(new, head, sample(3)).expect("the owner");
    assert!(journal.append(new, head, sample(4)).is_err());
    assert_eq!(journal.head(), Ok(next));
    journal.reopen().expect("it was closed cleanly");
    assert_eq!(journal.head(), Ok(next));
    journal.append(new, next, sample(4)).expect("the owner");
}

#[test]
fn a_journal_without_a_tail_is_upgraded_and_then_refused_by_older_builds() {
    let directory = TempDir::new();
    let (journal, epoch) = opened(directory.path());
    let head = append(&journal, epoch, 3);
    drop(journal);
    std::fs::remove_file(directory.path().join(FILES[2])).expect("it is not needed");
    let version = |set: Option<u32>| -> u32 {
        let file = rusqlite::Connection::open(directory.path().join(FILES[0])).expect("there");
        if let Some(version) = set {
            file.pragma_update(None, "user_version", version).expect("the test owns it");
        }
        file.pragma_query_value(None, "user_version", |row| row.get(0)).expect("a number")
    };
    assert_eq!(version(Some(1)), 1);
    let (journal, _) = opened(directory.path());
    assert_eq!(journal.head(), Ok(head));
    assert_eq!(version(None), 2);
}
