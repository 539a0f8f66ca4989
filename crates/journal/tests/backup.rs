//! Copies of a SQLite journal in use.

use crate::support;
use crate::traffic;

use std::path::Path;
use std::time::Duration;

use bursar_journal::Journal;
use bursar_journal::backup::{CopyError, copy};
use bursar_journal::sqlite::{SqliteJournal, SqliteOptions};
use support::TempDir;
use traffic::World;

fn open(path: &Path) -> SqliteJournal {
    SqliteJournal::open(path, SqliteOptions::default()).expect("no other process has it open")
}

#[test]
fn a_journal_is_copied_while_it_grows_and_the_copy_can_be_appended_to() {
    let directory = TempDir::new();
    let path = directory.path().join("journal.db");
    let journal = open(&path);
    let world = World::after(6, 500);
    let batches = world.batches(2);
    let lease = journal.acquire_lease("test", Duration::from_secs(60)).expect("the test owns it");
    let mut head = journal.head().expect("it is open");
    let mut rest = batches.into_iter();
    for batch in rest.by_ref().take(120) {
        head = journal.append(lease.epoch, head, batch).expect("the journal accepts it");
    }
    let copied_at = head;
    let target = directory.path().join("copy.db");
    let mut copied = 0;
    copy(&path, &target, |_| {
        copied += 1;
        // The journal is appended to in the middle of the copy.
        for batch in rest.by_ref().take(3) {
            head = journal.append(lease.epoch, head, batch).expect("the journal accepts it");
        }
    })
    .expect("a copy");
    assert!(copied > 0 && head.sequence > copied_at.sequence);

    let again = open(&target);
    assert_eq!(again.head().expect("a head"), copied_at);
    assert_eq!(again.id(), journal.id());
    let lease = again.acquire_lease("test", Duration::from_secs(60)).expect("the test owns it");
    let batch = world.batches(1).remove(0);
    again.append(lease.epoch, copied_at, batch).expect("the copy is a journal of its own");
}

#[test]
fn nothing_is_overwritten() {
    let directory = TempDir::new();
    let path = directory.path().join("journal.db");
    World::after(6, 30).write_to(&open(&path), 2);
    let target = directory.path().join("copy.db");
    copy(&path, &target, |_| {}).expect("a copy");
    let refused = copy(&path, &target, |_| {}).expect_err("the target exists");
    assert!(matches!(refused, CopyError::NotEmpty(_)), "{refused}");
}
