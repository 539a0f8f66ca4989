//! The archive: what was put is found, the newest of each key, whatever its store, also after it is opened again.

use crate::support;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bursar_journal::archive::{
    Archive, ArchiveEntry, ArchiveFamily, ArchiveSizes, HashFilter, copy_archive,
};
use bursar_journal::postgres::{PostgresJournal, PostgresOptions};
use bursar_journal::{Epoch, Journal, JournalError, JournalId};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use support::TempDir;
use support::postgres::TestPostgres;

const ID: JournalId = JournalId([7; 16]);
const FAMILIES: [ArchiveFamily; 2] = [ArchiveFamily::Objects, ArchiveFamily::Answers];

/// Small enough that a test has several groups of filters, most rows of which are not in memory.
const SIZES: ArchiveSizes = ArchiveSizes { run_entries: 300, group_runs: 3, cached_rows: 4 };

/// An archive that a test can open again.
trait Store {
    fn open(&self) -> Archive;

    /// Whether what was put is there after it is opened again.
    fn is_durable(&self) -> bool {
        true
    }
}

struct InMemory;

impl Store for InMemory {
    fn open(&self) -> Archive {
        Archive::in_memory().with_sizes(SIZES)
    }

    fn is_durable(&self) -> bool {
        false
    }
}

struct InSqlite(TempDir);

impl InSqlite {
    fn new() -> InSqlite {
        InSqlite(TempDir::in_memory())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("archive.db")
    }
}

impl Store for InSqlite {
    fn open(&self) -> Archive {
        Archive::open(&self.path(), ID).expect("the file is whole").with_sizes(SIZES)
    }
}

struct InPostgres<'a> {
    server: &'a TestPostgres,
    machine: String,
}

impl InPostgres<'_> {
    fn options(&self) -> PostgresOptions {
        let mut options = PostgresOptions::new(self.server.url(), self.machine.clone());
        options.unsafe_single = true;
        options
    }

    /// Takes over the journal.
    fn epoch(&self) -> Epoch {
        let journal = PostgresJournal::open(self.options()).expect("the server is up");
        journal.acquire_lease("test", Duration::from_secs(60)).expect("the same holder").epoch
    }

    fn opened(&self) -> Archive {
        Archive::open_postgres(self.options()).expect("the server is up").with_sizes(SIZES)
    }
}

impl Store for InPostgres<'_> {
    fn open(&self) -> Archive {
        let epoch = self.epoch();
        let archive = self.opened();
        archive.own(epoch).expect("it is the newest epoch");
        archive
    }
}

fn entry(family: ArchiveFamily, key: &str, value: &str, at: i64) -> ArchiveEntry {
    ArchiveEntry { family, key: key.into(), value: value.into(), at }
}

fn found(archive: &Archive, family: ArchiveFamily, key: &str) -> Option<String> {
    let (found, _) = archive.get(family, key.as_bytes()).expect("it can be read");
    found.map(|bytes| String::from_utf8(bytes).expect("text was put"))
}

fn the_newest_entry_of_every_key_is_found(store: &dyn Store) {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut archive = store.open();
    let mut expected: BTreeMap<(bool, String), String> = BTreeMap::new();
    for position in 1..60u64 {
        let entries: Vec<ArchiveEntry> = (0..random.next_u32() % 120)
            .map(|_| {
                let is_answer = random.next_u32() % 3 == 0;
                let key = format!("key{}", random.next_u32() % 3000);
                let value =
                    format!("{key} {position} {}", "x".repeat(random.next_u32() as usize % 300));
                expected.insert((is_answer, key.clone()), value.clone());
                let family = FAMILIES[usize::from(is_answer)];
                entry(family, &key, &value, i64::try_from(position).expect("small"))
            })
            .collect();
        archive.put(&entries, position).expect("the store works");
        assert_eq!(archive.position(), position);
        if position % 10 == 0 && store.is_durable() {
            archive = store.open();
            assert_eq!(archive.position(), position);
        }
    }
    let mut excluded = [0; 2];
    for number in 0..4000 {
        for (is_answer, family) in [false, true].into_iter().zip(FAMILIES) {
            let key = format!("key{number}");
            let wanted = expected.get(&(is_answer, key.clone()));
            assert_eq!(found(&archive, family, &key).as_ref(), wanted, "{key} {family:?}");
            // Its rows are in memory now, but for those that share a slot.
            let excludes = archive.excludes(family, key.as_bytes());
            assert!(excludes.is_none() || wanted.is_none(), "{key} is there");
            excluded[usize::from(is_answer)] += usize::from(excludes == Some(59));
        }
    }
    assert!(excluded.into_iter().all(|excluded| excluded > 100), "{excluded:?} are excluded");
}

fn an_archive_that_is_not_built_says_nothing(store: &dyn Store) {
    let archive = store.open();
    archive.put(&[entry(ArchiveFamily::Objects, "a", "1", 0)], 0).expect("the store works");
    assert_eq!(archive.excludes(ArchiveFamily::Objects, b"b"), None, "anything may be missing");
    assert!(archive.get(ArchiveFamily::Objects, b"b").is_err());
    archive.put(&[], 5).expect("the store works");
    assert_eq!(archive.excludes(ArchiveFamily::Objects, b"b"), Some(5));
    let refused = archive.put(&[], 4).expect_err("it would go back").to_string();
    assert!(refused.contains("another server"), "{refused}");
    archive.put(&[entry(ArchiveFamily::Objects, "c", "2", 0)], 6).expect("it goes on");
    assert_eq!(found(&archive, ArchiveFamily::Objects, "c").as_deref(), Some("2"));
    archive.clear().expect("the store works");
    assert_eq!((archive.position(), archive.excludes(ArchiveFamily::Objects, b"b")), (0, None));
}

/// Numbers of blocks, runs and filters are used again after an archive was cleared.
fn an_archive_that_was_cleared_has_only_what_was_put_since(store: &dyn Store) {
    let archive = store.open();
    for generation in 0..3u64 {
        let keys: Vec<String> = (0..2000).map(|number| format!("{generation}/{number}")).collect();
        for (some, position) in keys.chunks(250).zip(1..) {
            let entries: Vec<ArchiveEntry> =
                some.iter().map(|key| entry(ArchiveFamily::Objects, key, key, 0)).collect();
            archive.put(&entries, position).expect("the store works");
        }
        for key in &keys {
            assert_eq!(found(&archive, ArchiveFamily::Objects, key).as_ref(), Some(key));
        }
        for number in 0..500 {
            let key = format!("{}/{number}", generation + 1);
            assert_eq!(found(&archive, ArchiveFamily::Objects, &key), None);
        }
        archive.clear().expect("the store works");
        assert!(archive.get(ArchiveFamily::Objects, b"0/1").is_err(), "it must be built");
    }
}

fn runs_of_answers_that_are_no_longer_promised_are_dropped(store: &dyn Store) {
    let mut archive = store.open();
    for at in 0..10i64 {
        let keys = (0..300).map(|number| format!("{at}-{number}"));
        let entries: Vec<ArchiveEntry> =
            keys.flat_map(|key| FAMILIES.map(|family| entry(family, &key, "v", at))).collect();
        archive.put(&entries, at.cast_unsigned() + 1).expect("the store works");
    }
    // A part of a group of filters, then all of it and a part of the next.
    for before in [2, 4, 10] {
        archive.drop_answers_before(before).expect("the store works");
        if store.is_durable() {
            archive = store.open();
        }
        for at in 0..10 {
            let key = format!("{at}-7");
            let answer = found(&archive, ArchiveFamily::Answers, &key);
            assert_eq!(answer.is_some(), at >= before, "{key}");
            assert!(found(&archive, ArchiveFamily::Objects, &key).is_some(), "objects stay: {key}");
        }
    }
    let entries = [entry(ArchiveFamily::Answers, "new", "v", 20)];
    archive.put(&entries, 20).expect("the store works");
    assert_eq!(found(&archive, ArchiveFamily::Answers, "new").as_deref(), Some("v"));
}

type Law = (&'static str, fn(&dyn Store));

const LAWS: &[Law] = &[
    ("the newest entry of every key is found", the_newest_entry_of_every_key_is_found),
    ("an archive that is not built says nothing", an_archive_that_is_not_built_says_nothing),
    (
        "a cleared archive has what was put since",
        an_archive_that_was_cleared_has_only_what_was_put_since,
    ),
    ("unpromised answers are dropped", runs_of_answers_that_are_no_longer_promised_are_dropped),
];

#[test]
fn the_archive_in_memory_obeys_every_law() {
    for (name, law) in LAWS {
        println!("{name}");
        law(&InMemory);
    }
}

#[test]
fn the_archive_in_sqlite_obeys_every_law() {
    for (name, law) in LAWS {
        println!("{name}");
        law(&InSqlite::new());
    }
}

#[test]
fn the_archive_in_postgres_obeys_every_law() {
    let server = TestPostgres::start();
    for (number, (name, law)) in LAWS.iter().enumerate() {
        println!("{name}");
        law(&InPostgres { server: &server, machine: format!("ledger-{number}") });
    }
}

#[test]
fn only_the_owner_of_the_newest_epoch_writes_to_postgres() {
    let server = TestPostgres::start();
    let store = InPostgres { server: &server, machine: "ledger-0".into() };
    let put = |archive: &Archive, key: &str, position| {
        archive.put(&[entry(ArchiveFamily::Objects, key, key, 0)], position)
    };
    let epoch = store.epoch();
    let first = store.opened();
    put(&first, "unowned", 1).expect_err("it is not owned yet");
    first.own(epoch).expect("it is the newest epoch");
    put(&first, "a", 1).expect("it is owned");
    // Another server takes over the journal. It has not opened the archive yet.
    let later = store.epoch();
    let refused = put(&first, "b", 2).expect_err("the lease is gone").to_string();
    assert!(refused.contains("another server owns"), "{refused}");
    assert!(first.own(epoch).is_err(), "nor is it owned again under the old epoch");
    let second = store.opened();
    second.own(later).expect("it is the newest epoch");
    put(&second, "c", 2).expect("it is owned");
    assert_eq!(server.sql("SELECT position, epoch FROM bursar_archive"), format!("2|{}", later.0));
    // Even if the lease were given back: the archive itself remembers its owner.
    server.sql(&format!("UPDATE bursar_lease SET epoch = {}", epoch.0));
    for refused in [put(&first, "d", 3), first.clear(), first.own(epoch)] {
        assert!(refused.is_err());
    }
    server.sql(&format!("UPDATE bursar_lease SET epoch = {}", later.0));
    put(&second, "e", 3).expect("nothing was written by the first");
    for (key, is_there) in [("a", true), ("b", false), ("c", true), ("d", false), ("e", true)] {
        assert_eq!(found(&second, ArchiveFamily::Objects, key).is_some(), is_there, "{key}");
    }
}

/// The outcome of a write may be unknown: what is stored is then read again.
#[test]
fn a_write_to_postgres_that_broke_off_is_repeated() {
    let mut server = TestPostgres::start();
    let open = |server: &TestPostgres| InPostgres { server, machine: "ledger-0".into() }.open();
    let archive = open(&server);
    let entries = |number: u64| {
        let keys = (0..200).map(move |key| format!("{number}-{key}"));
        keys.map(|key| entry(ArchiveFamily::Objects, &key, "v", 0)).collect::<Vec<_>>()
    };
    let end = "SELECT count(pg_terminate_backend(pid)) > 0 FROM pg_stat_activity
               WHERE usename = 'bursar'";
    for number in 1..12 {
        match number % 6 {
            0 => assert_eq!(server.sql(end), "t"),
            3 => {
                server.crash();
                server.start_again();
            }
            _ => {}
        }
        let mut tries = 0;
        while let Err(error) = archive.put(&entries(number), number) {
            tries += 1;
            assert!(tries < 20, "{error}");
        }
    }
    for archive in [archive, open(&server)] {
        for number in 1..12 {
            let key = format!("{number}-77");
            assert_eq!(found(&archive, ArchiveFamily::Objects, &key).as_deref(), Some("v"));
        }
        assert_eq!(found(&archive, ArchiveFamily::Objects, "12-77"), None);
    }
}

#[test]
fn an_altered_block_is_refused_and_a_foreign_file_is_not_opened() {
    let store = InSqlite::new();
    let (path, archive) = (store.path(), store.open());
    archive.put(&[entry(ArchiveFamily::Objects, "a", "captured 5", 0)], 1).expect("the disk works");
    assert_eq!(found(&archive, ArchiveFamily::Objects, "a").as_deref(), Some("captured 5"));
    let file = rusqlite::Connection::open(&path).expect("a SQLite file");
    let body: Vec<u8> =
        file.query_row("SELECT body FROM block", [], |row| row.get(0)).expect("one block");
    let at = body.windows(10).position(|part| part == b"captured 5").expect("the record is there");
    let mut altered = body;
    altered[at + 9] = b'6';
    let changed = file.execute("UPDATE block SET body = ?1", [altered]).expect("it is a table");
    assert_eq!(changed, 1);
    let refused = archive.get(ArchiveFamily::Objects, b"a");
    assert!(
        matches!(&refused, Err(JournalError::Storage { reason, .. }) if reason.contains("digest"))
    );
    drop(archive);
    assert!(Archive::open(&path, ID).is_err(), "it is read when it is opened");
    let other = store.0.path().join("other.db");
    drop(Archive::open(&other, JournalId([8; 16])).expect("a new file"));
    assert!(matches!(Archive::open(&other, ID), Err(JournalError::Refused(_))));
}

/// A filter that lost a bit would let a name be used twice.
#[test]
fn an_altered_or_missing_row_of_filters_is_refused() {
    let store = InSqlite::new();
    let archive = store.open();
    for position in 1..6u64 {
        let keys = (0..300).map(|number| format!("{position}-{number}"));
        let entries: Vec<_> = keys.map(|key| entry(ArchiveFamily::Objects, &key, "v", 0)).collect();
        archive.put(&entries, position).expect("the disk works");
    }
    let file = rusqlite::Connection::open(store.path()).expect("a SQLite file");
    let rows: u32 =
        file.query_row("SELECT count(*) FROM filters", [], |row| row.get(0)).expect("a table");
    assert_eq!(rows, HashFilter::cells_for(SIZES.run_entries), "one group of three runs");
    let refusals = |sql: &str| {
        file.execute_batch("BEGIN").expect("it is ours");
        assert!(file.execute(sql, []).expect("it is a table") > 0);
        file.execute_batch("COMMIT").expect("it is ours");
        let archive = store.open();
        let refused = (0..200).filter_map(|number| {
            archive.get(ArchiveFamily::Objects, format!("new-{number}").as_bytes()).err()
        });
        refused.map(|error| error.to_string()).collect::<Vec<_>>()
    };
    assert!(refusals("UPDATE filters SET body = body").is_empty());
    let zeroed = "UPDATE filters SET body = CAST(zeroblob(3840) || substr(body, 3841) AS BLOB) WHERE place % 2 = 0";
    let refused = refusals(zeroed);
    assert!(refused.len() > 50 && refused[0].contains("a row of its filters"), "{refused:?}");
    let refused = refusals("DELETE FROM filters WHERE place % 2 = 0");
    assert!(refused.len() > 50 && refused[0].contains("is missing"), "{refused:?}");
}

/// A name whose entry is lost would be new again.
#[test]
fn a_missing_page_block_or_run_is_noticed() {
    let filled = || {
        let store = InSqlite::new();
        let archive = store.open();
        for position in 1..3u64 {
            // The second run stays open.
            let count = if position == 1 { 1_000 } else { 100 };
            let keys = (0..count).map(|number| format!("{position}-{number}"));
            let entries: Vec<_> =
                keys.map(|key| entry(ArchiveFamily::Objects, &key, "v", 0)).collect();
            archive.put(&entries, position).expect("the disk works");
        }
        drop(archive);
        let file = rusqlite::Connection::open(store.path()).expect("a SQLite file");
        (store, file)
    };
    let (store, file) = filled();
    let pages = |sql: &str| file.execute(sql, []).expect("it is a table");
    for page in ["max(first)", "min(first)"] {
        let gone = format!("DELETE FROM page WHERE first = (SELECT {page} FROM page)");
        assert_eq!(pages(&gone), 1);
        let archive = store.open();
        let known = (0..1_000).map(|number| format!("1-{number}"));
        let outcomes = known.map(|key| archive.get(ArchiveFamily::Objects, key.as_bytes()));
        let (found, refused): (Vec<_>, Vec<_>) = outcomes.partition(Result::is_ok);
        assert!(found.into_iter().all(|found| found.is_ok_and(|(found, _)| found.is_some())));
        assert!(refused.len() > 100, "{} of the lost ones are refused", refused.len());
    }
    for table in ["block", "run"] {
        let (store, file) = filled();
        let last = format!("DELETE FROM {table} WHERE number = (SELECT max(number) FROM {table})");
        assert_eq!(file.execute(&last, []).expect("it is a table"), 1);
        let opened = Archive::open(&store.path(), ID);
        let refused = opened.map(drop).expect_err("it is not whole").to_string();
        assert!(refused.contains("some are missing"), "{table}: {refused}");
    }
}

#[test]
fn a_copy_of_a_file_in_use_has_what_was_put_before() {
    let store = InSqlite::new();
    let archive = store.open();
    archive.put(&[entry(ArchiveFamily::Objects, "a", "v", 0)], 7).expect("the disk works");
    let copy = store.0.path().join("copy.db");
    copy_archive(&store.path(), &copy).expect("the disk works");
    archive.put(&[entry(ArchiveFamily::Objects, "b", "v", 0)], 8).expect("the disk works");
    assert!(copy_archive(&store.path(), &copy).is_err(), "nothing is overwritten");
    let copied = Archive::open(&copy, ID).expect("it is whole");
    assert_eq!(copied.position(), 7);
    assert_eq!(found(&copied, ArchiveFamily::Objects, "a").as_deref(), Some("v"));
    assert_eq!(found(&copied, ArchiveFamily::Objects, "b"), None);
}
