//! How the SQLite journal handles existing files.

use crate::support;

use std::time::Duration;

use bursar_journal::backup::import;
use bursar_journal::sqlite::{SqliteJournal, SqliteOptions};
use bursar_journal::{Head, Journal, JournalError, MaintenanceUrgency, StoredBatch};
use support::{TempDir, read_all, sample};

fn open(path: &std::path::Path) -> Result<SqliteJournal, JournalError> {
    SqliteJournal::open(path, SqliteOptions::default())
}

#[test]
fn a_second_opener_is_refused_with_the_name_of_the_holder() {
    let directory = TempDir::new();
    let path = directory.path().join("journal.db");
    let first = open(&path).expect("no other process has it open");
    let refused = open(&path).map(|_| ()).expect_err("it is in use");
    assert!(matches!(refused, JournalError::Locked { .. }));
    assert!(refused.to_string().contains(&format!("process {}", std::process::id())), "{refused}");
    drop(first);
    open(&path).expect("the lock was released");
}

#[test]
fn a_foreign_database_and_a_newer_schema_are_refused() {
    let directory = TempDir::new();
    let foreign = directory.path().join("foreign.db");
    let connection = rusqlite::Connection::open(&foreign).expect("a new file");
    connection.execute_batch("CREATE TABLE t (x)").expect("a new file");
    drop(connection);
    let refused = open(&foreign).map(|_| ()).expect_err("not a journal");
    assert!(refused.to_string().contains("not a Bursar journal"), "{refused}");

    let newer = directory.path().join("newer.db");
    drop(open(&newer).expect("a new file"));
    let connection = rusqlite::Connection::open(&newer).expect("it exists");
    connection.pragma_update(None, "user_version", 4).expect("the test owns it");
    drop(connection);
    let refused = open(&newer).map(|_| ()).expect_err("schema 4 does not exist");
    assert!(refused.to_string().contains("schema version 4"), "{refused}");
}

#[test]
fn a_file_that_is_not_a_database_is_refused_and_unchanged() {
    let directory = TempDir::new();
    let path = directory.path().join("journal.db");
    let content = b"these are not the bytes of a database ".repeat(100);
    std::fs::write(&path, &content).expect("the directory is writable");
    let refused = open(&path).map(|_| ()).expect_err("no database");
    assert!(matches!(refused, JournalError::Damaged { .. }), "{refused}");
    assert_eq!(std::fs::read(&path).expect("still there"), content);
}

#[test]
fn a_file_with_the_small_pages_of_earlier_builds_keeps_them_and_its_log_is_checked() {
    let directory = TempDir::in_memory();
    let path = directory.path().join("journal.db");
    let connection = rusqlite::Connection::open(&path).expect("a new file");
    let begin = "PRAGMA page_size = 4096; PRAGMA journal_mode = WAL;";
    connection.execute_batch(begin).expect("a new file");
    drop(connection);
    let journal = open(&path).expect("nothing is in it");
    let epoch = journal.acquire_lease("test", Duration::from_secs(1)).expect("alone").epoch;
    let genesis = journal.head().expect("the head can be read");
    let mut head = genesis;
    for number in 1..=20 {
        head = journal.append(epoch, head, sample(number)).expect("there is space");
        journal.compact().expect("the disk works");
    }
    let names = ["journal.db", "journal.db-wal", "journal.db-tail"];
    let files = names.map(|name| std::fs::read(directory.path().join(name)).expect("it exists"));
    assert_eq!(files[0][16..18], 4096u16.to_be_bytes(), "the page size in SQLite's header");
    drop(journal);
    let open_copy = |damaged: Option<usize>| {
        let copy = TempDir::in_memory();
        for (number, (name, content)) in names.iter().zip(&files).enumerate() {
            let mut content = content.clone();
            if let Some(at) = damaged.filter(|_| number == 1) {
                content[at] ^= 1;
            }
            std::fs::write(copy.path().join(name), content).expect("there is space");
        }
        open(&copy.path().join("journal.db")).map(|journal| read_all(&journal, genesis).len())
    };
    assert_eq!(open_copy(None).expect("nothing is wrong"), 20);
    // In the log's own header, and in its first page: SQLite would treat all of it as unfinished.
    for at in [9, 100] {
        let refused = open_copy(Some(at)).expect_err("it lost transactions");
        assert!(refused.to_string().contains("lie behind a damaged frame"), "{refused}");
    }
}

#[test]
fn the_log_does_not_grow_without_bound() {
    let directory = TempDir::in_memory();
    let path = directory.path().join("journal.db");
    let journal = open(&path).expect("a new file");
    let epoch = journal.acquire_lease("test", Duration::from_secs(1)).expect("alone").epoch;
    let mut head = journal.head().expect("the head can be read");
    for number in 1..=3_000 {
        head = journal.append(epoch, head, sample(number)).expect("there is space");
        journal.compact().expect("the disk works");
    }
    let log = std::fs::metadata(directory.path().join("journal.db-wal")).expect("it exists").len();
    assert!(log < 8 << 20, "{log} bytes");
}

#[test]
fn the_log_restarts_while_batches_are_appended_continuously() {
    const ROUNDS: u32 = 30;
    let directory = TempDir::in_memory();
    let path = directory.path().join("journal.db");
    let options = SqliteOptions { checkpoint_pages: 100, ..SqliteOptions::default() };
    let journal = SqliteJournal::open(&path, options).expect("a new file");
    let epoch = journal.acquire_lease("test", Duration::from_secs(1)).expect("alone").epoch;
    let genesis = journal.head().expect("the head can be read");
    let mut head = genesis;
    std::thread::scope(|scope| {
        let tidier = scope.spawn(|| {
            for _ in 0..ROUNDS {
                while journal.maintenance_urgency() == MaintenanceUrgency::None {
                    std::thread::yield_now();
                }
                journal.compact().expect("the disk works");
            }
        });
        while !tidier.is_finished() {
            head = journal.append(epoch, head, sample(head.sequence)).expect("there is space");
        }
    });
    let log = std::fs::metadata(directory.path().join("journal.db-wal")).expect("it exists").len();
    // Every batch writes at least two pages into the log.
    let appended = head.sequence * 2 * 4096;
    assert!(log < appended / 2, "{log} bytes of log for {appended} that were appended");
    drop(journal);
    let journal = open(&path).expect("no other process has it open");
    let stored = read_all(&journal, genesis);
    assert_eq!(stored.last().map(StoredBatch::head), Some(head), "all batches are stored");
}

#[test]
fn a_damaged_snapshot_is_refused_and_the_older_one_is_still_there() {
    let directory = TempDir::new();
    let path = directory.path().join("journal.db");
    let journal = open(&path).expect("a new file");
    let epoch = journal.acquire_lease("test", Duration::from_secs(1)).expect("alone").epoch;
    let mut head = journal.head().expect("the head can be read");
    for number in 1..=2 {
        head = journal.append(epoch, head, sample(number)).expect("there is space");
        let snapshot = bursar_journal::Snapshot { head, state: vec![number.to_le_bytes()[0]; 9] };
        journal.put_snapshot(&snapshot).expect("there is space");
    }
    let newest = directory.path().join(format!("journal.db.snapshot-{:020}", 2));
    let mut bytes = std::fs::read(&newest).expect("just written");
    bytes[85] ^= 1;
    std::fs::write(&newest, bytes).expect("the test owns it");
    let marks = journal.list_snapshots().expect("listed");
    assert!(matches!(
        journal.get_snapshot(marks[0]),
        Err(JournalError::Damaged { part: "snapshot", .. })
    ));
    assert_eq!(journal.get_snapshot(marks[1]).expect("whole").state, [1; 9]);
}

#[test]
fn a_copy_continues_after_the_epochs_of_its_source() {
    let folder = TempDir::new();
    let source = open(&folder.path().join("source.db")).expect("it is new");
    let ttl = Duration::from_secs(1);
    for number in 1..=5 {
        let lease = source.acquire_lease("owner", ttl).expect("the test owns it");
        let head = source.head().expect("it is open");
        source.append(lease.epoch, head, sample(number)).expect("there is space");
    }
    let copy = folder.path().join("copy.db");
    let genesis = Head::genesis(source.id());
    let batches = source.read(genesis).expect("it is open");
    let head = import(&copy, source.id(), batches).expect("there is space");
    let copy = open(&copy).expect("it is whole");
    let lease = copy.acquire_lease("next", ttl).expect("the test owns it");
    copy.append(lease.epoch, head, sample(6)).expect("there is space");
    let read = read_all(&copy, genesis);
    assert_eq!(read.len(), 6, "the copy and the appended batch are read");
    assert!(read[5].epoch > read[4].epoch);
}
