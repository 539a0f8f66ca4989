//! Check and export of a SQLite journal in use.

use crate::support;

use std::path::Path;

use bursar_audit::check::{check, export};
use bursar_audit::export::JournalKind;
use bursar_audit::{SqliteSource, verify};
use bursar_journal::backup::copy as back_up;
use bursar_journal::record::ledger::event_name;
use bursar_journal::sqlite::{SqliteJournal, SqliteOptions};
use support::TempDir;
use support::traffic::World;

fn open(path: &Path) -> SqliteJournal {
    SqliteJournal::open(path, SqliteOptions::default()).expect("no other process has it open")
}

#[test]
fn a_damaged_copy_and_a_damaged_journal_fail_the_check() {
    let directory = TempDir::new();
    let path = directory.path().join("journal.db");
    World::after(6, 200).write_to(&open(&path), 3);
    let copy = directory.path().join("copy.db");
    back_up(&path, &copy, |_| {}).expect("a copy");
    assert!(check(&copy, |_| {}).expect("a database").holds());
    let connection = rusqlite::Connection::open(&copy).expect("the test owns it");
    connection
        .execute("UPDATE batch SET payload = zeroblob(length(payload)) WHERE sequence = 17", [])
        .expect("the test owns it");
    drop(connection);
    let report = check(&copy, |_| {}).expect("still a database");
    assert_eq!(report.problem.expect("a damaged batch").sequence, 17);
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
    let written = export(&path, JournalKind::Ledger, &mut lines, |_| {}).expect("lines");
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
