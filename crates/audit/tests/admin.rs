//! Backup, restore, check and export of a SQLite journal that is in use.

mod support;

use std::path::Path;
use std::time::Duration;

use bursar_audit::admin::{AdminError, Step, backup, check, export, restore};
use bursar_audit::export::Of;
use bursar_audit::{SqliteSource, verify};
use bursar_journal::Journal;
use bursar_journal::record::ledger::event_name;
use bursar_journal::sqlite::{SqliteJournal, SqliteOptions};
use support::TempDir;
use support::traffic::World;

fn open(path: &Path) -> SqliteJournal {
    SqliteJournal::open(path, SqliteOptions::default()).expect("nobody else has it")
}

#[test]
fn a_journal_is_backed_up_while_it_grows_and_restored_elsewhere() {
    let directory = TempDir::new();
    let path = directory.path().join("journal.db");
    let journal = open(&path);
    let world = World::after(6, 500);
    let batches = world.batches(2);
    let lease = journal.acquire_lease("test", Duration::from_secs(60)).expect("it is ours");
    let mut head = journal.head().expect("it is open");
    let mut rest = batches.into_iter();
    for batch in rest.by_ref().take(120) {
        head = journal.append(lease.epoch, head, batch).expect("the journal takes it");
    }
    let copied_at = head;
    let copy = directory.path().join("copy.db");
    let mut copied = 0;
    let report = backup(&path, &copy, |step| {
        if let Step::Copied { .. } = step {
            copied += 1;
            // The journal goes on in the middle of the copy.
            for batch in rest.by_ref().take(3) {
                head = journal.append(lease.epoch, head, batch).expect("the journal takes it");
            }
        }
    })
    .expect("a copy");
    assert!(copied > 0 && head.sequence > copied_at.sequence);
    assert_eq!((report.records, report.head), (copied_at.position, copied_at.hash.0));

    let elsewhere = directory.path().join("elsewhere");
    let restored = restore(&copy, &elsewhere, "journal.db", |_| {}).expect("an empty directory");
    assert_eq!(restored, report);
    let again = open(&elsewhere.join("journal.db"));
    assert_eq!(again.head().expect("a head"), copied_at);
    assert_eq!(again.id(), journal.id());
    let lease = again.acquire_lease("test", Duration::from_secs(60)).expect("it is ours");
    let batch = world.batches(1).remove(0);
    again.append(lease.epoch, copied_at, batch).expect("it goes on as a journal of its own");
}

#[test]
fn nothing_is_overwritten() {
    let directory = TempDir::new();
    let path = directory.path().join("journal.db");
    World::after(6, 30).write_to(&open(&path), 2);
    let copy = directory.path().join("copy.db");
    backup(&path, &copy, |_| {}).expect("a copy");
    let refused = backup(&path, &copy, |_| {}).expect_err("there is one");
    assert!(matches!(refused, AdminError::NotEmpty(_)), "{refused}");
    let refused = restore(&copy, directory.path(), "other.db", |_| {}).expect_err("not empty");
    assert!(matches!(refused, AdminError::NotEmpty(_)), "{refused}");
    assert!(!directory.path().join("other.db").exists());
}

#[test]
fn a_damaged_backup_is_not_restored_and_a_damaged_journal_does_not_pass() {
    let directory = TempDir::new();
    let path = directory.path().join("journal.db");
    World::after(6, 200).write_to(&open(&path), 3);
    let copy = directory.path().join("copy.db");
    backup(&path, &copy, |_| {}).expect("a copy");
    assert!(check(&copy, |_| {}).expect("a database").holds());
    let connection = rusqlite::Connection::open(&copy).expect("it is ours");
    connection
        .execute("UPDATE batch SET payload = zeroblob(length(payload)) WHERE sequence = 17", [])
        .expect("it is ours");
    drop(connection);
    let report = check(&copy, |_| {}).expect("still a database");
    assert_eq!(report.problem.expect("a damaged batch").sequence, 17);
    let elsewhere = directory.path().join("elsewhere");
    let refused = restore(&copy, &elsewhere, "journal.db", |_| {}).expect_err("damaged");
    assert!(refused.to_string().contains("batch 17"), "{refused}");
    assert_eq!(std::fs::read_dir(&elsewhere).expect("it was made").count(), 0);

    std::fs::write(directory.path().join("junk"), b"not a database".repeat(99)).expect("a file");
    assert!(check(&directory.path().join("junk"), |_| {}).is_err());
    assert!(check(&directory.path().join("absent"), |_| {}).is_err());
}

#[test]
fn every_record_is_exported_as_a_line_that_names_its_events() {
    let directory = TempDir::new();
    let path = directory.path().join("journal.db");
    let world = World::after(6, 300);
    let journal = open(&path);
    world.write_to(&journal, 3);
    let mut lines = Vec::new();
    let written = export(&path, Of::Ledger, &mut lines, |_| {}).expect("lines");
    let text = String::from_utf8(lines).expect("JSON is text");
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    assert_eq!((written, lines.len()), (world.decided.len() as u64 + 1, world.decided.len() + 1));
    assert_eq!(lines[0]["kind"], "barrier");
    for (line, decided) in lines[1..].iter().zip(&world.decided) {
        assert_eq!(line["at"], decided.at.to_string());
        for (item, (header, events)) in decided.bodies.iter().enumerate() {
            let decision = &line["decisions"][item];
            for (place, event) in events.iter().enumerate() {
                assert_eq!(decision["events"][place]["type"], event_name(event));
            }
            let Some(header) = header else { continue };
            assert_eq!(decision["actor"], header.actor.as_str());
            assert_eq!(decision["command"], header.command.name());
        }
    }
    let source = SqliteSource::open(&path).expect("beside the writer");
    assert!(verify(&source, None, |_| {}).holds());
}
