//! Data folders in the states in which a server may find them.

use std::time::Duration;

use bursar_core::time::Timestamp;
use bursar_journal::Journal;
use bursar_journal::record::{BatchBuilder, RecordKind};
use bursar_journal::sqlite::{SqliteJournal, SqliteOptions, tail_file};

use super::*;

/// A journal with one batch of `bytes` bytes and a tail of 16 KiB.
fn write(folder: &Path, machine: &str, bytes: usize) -> (String, JournalId, Head) {
    let options = SqliteOptions { tail_bytes: 16 << 10, ..SqliteOptions::default() };
    let journal = SqliteJournal::open(&Manifest::file(folder, machine), options).expect("alone");
    let epoch = journal.acquire_lease("test", Duration::from_secs(1)).expect("alone").epoch;
    let mut batch = BatchBuilder::new();
    let body = |out: &mut Vec<u8>| out.resize(out.len() + bytes, 7);
    batch.push(RecordKind::Decision, Timestamp::from_millis(1), body);
    let batch = batch.finish().expect("it has a record");
    let before = journal.head().expect("it is open");
    let head = journal.append(epoch, before, batch).expect("there is space");
    (machine.to_owned(), journal.id(), head)
}

/// A folder with these machines, each with a batch of so many bytes, and their heads in the
/// manifest.
fn noted(machines: &[(&str, usize)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = Store::open(folder.path()).expect("it is empty");
    let mut heads = Vec::new();
    for (machine, bytes) in machines {
        store.begin(machine).expect("there is space");
        heads.push(write(folder.path(), machine, *bytes));
    }
    store.note(&heads, false).expect("there is space");
    folder
}

fn reason(folder: &Path) -> String {
    Store::open(folder).err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn a_region_may_have_the_ending_of_a_file_in_its_name() {
    let names = ["cell-eu.db", "cell-eu.db1", "cell-eu.db-tail"];
    let folder = noted(&names.map(|name| (name, 10)));
    assert_eq!(reason(folder.path()), "");
    fs::write(folder.path().join("cell-eu.db2.db-tail"), b"").expect("it is ours");
    let said = reason(folder.path());
    assert!(said.contains("cell-eu.db2.db: it is not a file of this store"), "{said}");
}

#[test]
fn a_tail_is_needed_once_it_holds_a_frame() {
    let folder = noted(&[(LEDGER, 10), (DIRECTORY, 40_000)]);
    assert_eq!(reason(folder.path()), "", "what is larger than a tail was never in it");
    let tail = |machine| tail_file(&Manifest::file(folder.path(), machine));
    fs::write(tail(DIRECTORY), b"").expect("it is ours");
    assert_eq!(reason(folder.path()), "");
    fs::write(tail(LEDGER), b"").expect("it is ours");
    let said = reason(folder.path());
    assert!(said.contains("ledger-0.db-tail: it was emptied"), "{said}");
}

#[test]
fn a_tail_that_was_emptied_while_a_server_ran_is_still_needed() {
    let folder = noted(&[(LEDGER, 10)]);
    let store = Store::open(folder.path()).expect("it is whole");
    let file = Manifest::file(folder.path(), LEDGER);
    let inspected = inspect(&file, None).expect("it is whole");
    fs::write(tail_file(&file), b"").expect("it is ours");
    store.note(&[(LEDGER.to_owned(), inspected.id, inspected.head)], true).expect("it is written");
    drop(store);
    let said = reason(folder.path());
    assert!(said.contains("ledger-0.db-tail: it was emptied"), "{said}");
}

#[test]
fn a_backup_is_not_served() {
    let folder = noted(&[(LEDGER, 10)]);
    let mut manifest = Manifest::read(folder.path()).expect("it can be read").expect("it is there");
    manifest.backup = true;
    manifest.write(folder.path()).expect("there is space");
    let said = reason(folder.path());
    assert!(said.contains("it is a backup") && said.contains("bursar admin restore"), "{said}");
    manifest.check(folder.path()).expect("others may read it");
}

#[test]
fn a_moved_store_is_not_served_and_earlier_builds_refuse_its_manifest() {
    let folder = noted(&[(LEDGER, 10)]);
    let store = Store::open(folder.path()).expect("it is whole");
    store.mark_moved(true).expect("there is space");
    assert!(adopt_not_moved(folder.path()).is_err(), "it is in use");
    drop(store);
    let said = reason(folder.path());
    assert!(said.contains("moved") && said.contains("--not-moved"), "{said}");
    let read = || Manifest::read(folder.path()).expect("it can be read").expect("it is there");
    assert_eq!(read().format, 2, "builds before the mark read formats up to 1");
    read().check(folder.path()).expect("others may read it");
    adopt_not_moved(folder.path()).expect("there is space");
    assert_eq!((reason(folder.path()).as_str(), read().format), ("", 1));
    assert!(adopt_not_moved(folder.path()).is_err(), "there is no mark");
}

#[test]
fn a_manifest_without_a_backup_mark_is_of_a_store() {
    let text = r#"{"format":1,"store":"s","incarnation_base":0,"clean":true,"machines":[]}"#;
    let manifest: Manifest = serde_json::from_str(text).expect("it is one");
    assert!(!manifest.backup);
}

#[test]
fn a_shortened_tail_is_refused_and_a_longer_one_is_not() {
    let folder = noted(&[(LEDGER, 10)]);
    let tail = tail_file(&Manifest::file(folder.path(), LEDGER));
    let whole = fs::read(&tail).expect("it is there");
    fs::write(&tail, &whole[..whole.len() / 2]).expect("it is ours");
    let said = reason(folder.path());
    assert!(said.contains("ledger-0.db-tail: it was cut"), "{said}");
    fs::write(&tail, [&whole[..], &[0; 4096]].concat()).expect("it is ours");
    assert_eq!(reason(folder.path()), "");
}

#[test]
fn a_manifest_without_tail_lengths_is_read() {
    let text = r#"{"name":"ledger-0","journal":null,"tail":true,"head":null}"#;
    let machine: StoredMachine = serde_json::from_str(text).expect("it is one");
    assert_eq!((machine.tail, machine.tail_bytes), (true, 0));
}
