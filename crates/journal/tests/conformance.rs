//! The laws of all journals, whatever their store.

use crate::support;

use std::sync::{Arc, Barrier};
use std::time::Duration;

use bursar_core::time::Timestamp;
use bursar_journal::memory::MemoryJournal;
use bursar_journal::postgres::{PostgresJournal, PostgresOptions};
use bursar_journal::sqlite::{SqliteJournal, SqliteOptions};
use bursar_journal::{
    AppendError, Batch, BatchBuilder, Epoch, Head, Journal, JournalError, JournalId, LeaseError,
    Recent, RecordKind, Snapshot, SnapshotMark,
};
use support::postgres::TestPostgres;
use support::{TempDir, read_all, sample};

const LEASE_TTL: Duration = Duration::from_secs(60);

/// A change made to the stored rows by hand.
#[derive(Copy, Clone, Debug)]
enum Damage {
    FlipBit,
    Delete,
    SwapWithNext,
}

/// A store of journals. Every law gets an empty one.
trait Store {
    /// Opens the journal as a new process would.
    fn open(&self) -> Arc<dyn Journal>;
    fn damage(&self, sequence: u64, damage: Damage);
    /// Expires the lease.
    fn expire_lease(&self);
    /// Whether a second owner has to wait for the lease of the first.
    fn shared_by_processes(&self) -> bool {
        true
    }
}

type Law = (&'static str, fn(&dyn Store));

const LAWS: &[Law] = &[
    ("an empty journal starts at its own genesis", an_empty_journal_starts_at_its_own_genesis),
    ("batches are read in order, also after a restart", batches_come_back_in_order),
    ("a batch after another head is fenced and leaves no trace", another_head_is_fenced),
    ("an older epoch is fenced as soon as there is a newer one", an_older_epoch_is_fenced),
    ("of two appends after the same head one wins", of_two_appends_one_wins),
    ("concurrent appends are written in order", appends_under_way_land_in_order),
    ("nothing follows an append that was fenced", nothing_follows_a_fenced_append),
    ("reading starts anywhere and ends at the head", reading_starts_anywhere),
    ("a large batch is one batch", a_large_batch_is_one_batch),
    ("any damage is found and the first bad batch is named", any_damage_is_found),
    ("the newest two snapshots are kept and checked", two_snapshots_are_kept),
    ("a lease is kept by renewing and lost to the next owner", a_lease_is_kept_by_renewing),
    ("a journal continues after it was reopened", a_journal_goes_on_after_reopen),
];

fn obeys_every_law<S: Store>(mut empty: impl FnMut() -> S) {
    for (name, law) in LAWS {
        println!("{name}");
        law(&empty());
    }
}

fn owned(journal: &dyn Journal) -> Epoch {
    journal.acquire_lease("owner", LEASE_TTL).expect("no other owner has it").epoch
}

/// Appends `sample(first)`, `sample(first + 1)` … and returns all heads, the start's first.
fn fill(journal: &dyn Journal, epoch: Epoch, count: u64) -> Vec<Head> {
    let mut heads = vec![journal.head().expect("the head can be read")];
    for _ in 0..count {
        let head = *heads.last().expect("there is one");
        let next = journal.append(epoch, head, sample(head.sequence + 1));
        heads.push(next.expect("the append succeeds"));
    }
    heads
}

fn an_empty_journal_starts_at_its_own_genesis(store: &dyn Store) {
    let journal = store.open();
    let head = journal.head().expect("the head can be read");
    assert_eq!(head, Head::genesis(journal.id()));
    assert_eq!(journal.head_at(0), Ok(head));
    assert_eq!(read_all(&*journal, head), []);
    assert_eq!(journal.list_snapshots(), Ok(vec![]));
}

fn batches_come_back_in_order(store: &dyn Store) {
    let journal = store.open();
    let genesis = journal.head().expect("the head can be read");
    let epoch = owned(&*journal);
    let heads = fill(&*journal, epoch, 70);
    let id = journal.id();
    drop(journal);
    let journal = store.open();
    assert_eq!(journal.id(), id);
    assert_eq!(journal.head(), Ok(heads[70]));
    let batches = read_all(&*journal, genesis);
    assert_eq!(batches.len(), 70);
    for (batch, number) in batches.iter().zip(1..) {
        let expected = heads[usize::try_from(number).expect("small") - 1];
        assert_eq!(*batch, expected.followed_by(epoch, sample(number)));
        batch.check_records().expect("records are whole");
    }
}

fn another_head_is_fenced(store: &dyn Store) {
    let journal = store.open();
    let epoch = owned(&*journal);
    let heads = fill(&*journal, epoch, 3);
    let fenced = Err(AppendError::Fenced { epoch });
    assert_eq!(journal.append(epoch, heads[2], sample(9)), fenced, "an older head");
    let mut forged = heads[3];
    forged.hash.0[0] ^= 1;
    assert_eq!(journal.append(epoch, forged, sample(9)), fenced, "another history");
    forged = Head { sequence: 4, ..heads[3] };
    assert_eq!(journal.append(epoch, forged, sample(9)), fenced, "a gap");
    assert_eq!(journal.head(), Ok(heads[3]));
    assert_eq!(read_all(&*journal, heads[0]).len(), 3);
    assert!(journal.append(epoch, heads[3], sample(4)).is_ok());
}

fn an_older_epoch_is_fenced(store: &dyn Store) {
    let journal = store.open();
    let old = owned(&*journal);
    let heads = fill(&*journal, old, 2);
    let new = owned(&*journal);
    assert!(new > old);
    assert_eq!(journal.append(old, heads[2], sample(3)), Err(AppendError::Fenced { epoch: old }));
    let never = Epoch(new.0 + 1);
    assert_eq!(
        journal.append(never, heads[2], sample(3)),
        Err(AppendError::Fenced { epoch: never })
    );
    assert!(journal.append(new, heads[2], sample(3)).is_ok());
    let epochs: Vec<_> = read_all(&*journal, heads[0]).iter().map(|batch| batch.epoch).collect();
    assert_eq!(epochs, [old, old, new]);
}

fn of_two_appends_one_wins(store: &dyn Store) {
    let journal = store.open();
    let epoch = owned(&*journal);
    let mut head = journal.head().expect("the head can be read");
    for round in 0..10 {
        let start = Barrier::new(2);
        let race = |number: u64| {
            start.wait();
            journal.append(epoch, head, sample(number))
        };
        let (left, right) = std::thread::scope(|scope| {
            let left = scope.spawn(|| race(2 * round));
            let right = scope.spawn(|| race(2 * round + 1));
            (left.join().expect("no panic"), right.join().expect("no panic"))
        });
        let fenced = Err(AppendError::Fenced { epoch });
        assert!((left == fenced) != (right == fenced), "{left:?} {right:?}");
        head = left.or(right).expect("one of them won");
    }
    assert_eq!(journal.head(), Ok(head));
    assert_eq!(head.sequence, 10);
}

fn appends_under_way_land_in_order(store: &dyn Store) {
    let journal = store.open();
    let epoch = owned(&*journal);
    let mut expected = journal.head().expect("the head can be read");
    let mut under_way = Vec::new();
    for number in 1..=40 {
        let batch = sample(number);
        let next = expected.after(epoch, &batch);
        under_way.push((next, journal.begin_append(epoch, expected, batch)));
        expected = next;
        if under_way.len() >= journal.pipeline_depth() {
            let (head, pending) = under_way.remove(0);
            assert_eq!(pending.wait(), Ok(head));
        }
    }
    for (head, pending) in under_way {
        assert_eq!(pending.wait(), Ok(head));
    }
    assert_eq!(journal.head(), Ok(expected));
    assert_eq!(read_all(&*journal, Head::genesis(journal.id())).len(), 40);
}

fn nothing_follows_a_fenced_append(store: &dyn Store) {
    let journal = store.open();
    let epoch = owned(&*journal);
    let head = fill(&*journal, epoch, 1)[1];
    let mut wrong = head;
    wrong.hash.0[5] ^= 4;
    let first = journal.begin_append(epoch, wrong, sample(2));
    let second = journal.begin_append(epoch, wrong.after(epoch, &sample(2)), sample(3));
    assert_eq!(first.wait(), Err(AppendError::Fenced { epoch }));
    assert_eq!(second.wait(), Err(AppendError::Fenced { epoch }));
    assert_eq!(journal.head(), Ok(head));
}

fn reading_starts_anywhere(store: &dyn Store) {
    let journal = store.open();
    let epoch = owned(&*journal);
    let heads = fill(&*journal, epoch, 40);
    for (sequence, head) in (0..).zip(&heads) {
        assert_eq!(journal.head_at(sequence), Ok(*head));
    }
    assert!(journal.head_at(41).is_err());
    let tail = read_all(&*journal, heads[37]);
    assert_eq!(tail.iter().map(|batch| batch.sequence).collect::<Vec<_>>(), [38, 39, 40]);
    let mut reader = journal.read(heads[38]).expect("the journal can be read");
    assert_eq!(reader.next().expect("batch 39").expect("whole").sequence, 39);
    fill(&*journal, epoch, 5);
    assert_eq!(reader.next().expect("batch 40").expect("whole").sequence, 40);
    assert!(reader.next().is_none(), "later batches are for the next reader");
    let foreign = Head { hash: Head::genesis(JournalId([0; 16])).hash, ..heads[38] };
    let refused = journal.read(foreign).expect("opens").next().expect("yields");
    assert!(matches!(refused, Err(JournalError::Corrupt { sequence: 39, .. })));
}

fn a_large_batch_is_one_batch(store: &dyn Store) {
    let journal = store.open();
    let epoch = owned(&*journal);
    let genesis = journal.head().expect("the head can be read");
    let mut builder = BatchBuilder::new();
    for record in 0..20_000_u32 {
        builder.push(RecordKind::Decision, Timestamp::from_millis(1), |out| {
            out.extend(record.to_le_bytes().iter().cycle().take(200));
        });
    }
    let batch: Batch = builder.finish().expect("20 000 records");
    let head = journal.append(epoch, genesis, batch.clone()).expect("it fits");
    assert_eq!((head.sequence, head.position), (1, 20_000));
    assert_eq!(read_all(&*journal, genesis), [genesis.followed_by(epoch, batch)]);
}

fn any_damage_is_found(store: &dyn Store) {
    let journal = store.open();
    let epoch = owned(&*journal);
    let genesis = Head::genesis(journal.id());
    fill(&*journal, epoch, 40);
    journal.compact().expect("there is space");
    // From the last to the first, so that each is the first bad one when it is made.
    for (sequence, damage) in [
        (40, Damage::Delete),
        (38, Damage::FlipBit),
        (34, Damage::SwapWithNext),
        (20, Damage::Delete),
        (1, Damage::FlipBit),
    ] {
        store.damage(sequence, damage);
        let found = journal
            .read(genesis)
            .and_then(|reader| reader.collect::<Result<Vec<_>, _>>())
            .expect_err("damage is never served");
        let JournalError::Corrupt { sequence: named, .. } = found else {
            panic!("{damage:?} of {sequence}: {found}");
        };
        assert_eq!(named, sequence, "{damage:?}: {found}");
    }
}

fn two_snapshots_are_kept(store: &dyn Store) {
    let journal = store.open();
    let epoch = owned(&*journal);
    let heads = fill(&*journal, epoch, 4);
    let snapshot = |index: usize| Snapshot { head: heads[index], state: vec![7; index << 20] };
    for index in [0, 1, 3, 3] {
        journal.put_snapshot(&snapshot(index)).expect("there is space");
    }
    let marks = journal.list_snapshots().expect("listed");
    assert_eq!(marks, [SnapshotMark { sequence: 3 }, SnapshotMark { sequence: 1 }]);
    drop(journal);
    let journal = store.open();
    assert_eq!(journal.get_snapshot(marks[0]), Ok(snapshot(3)));
    assert_eq!(journal.get_snapshot(marks[1]), Ok(snapshot(1)));
    let gone = journal.get_snapshot(SnapshotMark { sequence: 0 });
    assert!(matches!(gone, Err(JournalError::Damaged { part: "snapshot", .. })));
}

fn a_lease_is_kept_by_renewing(store: &dyn Store) {
    let journal = store.open();
    let first = journal.acquire_lease("first", LEASE_TTL).expect("it is free");
    journal.renew_lease(&first).expect("the test owns it");
    if store.shared_by_processes() {
        let held = journal.acquire_lease("second", LEASE_TTL).expect_err("it is held");
        assert!(matches!(held, LeaseError::Held { holder, .. } if holder == "first"));
        store.expire_lease();
    }
    let second = journal.acquire_lease("second", LEASE_TTL).expect("it expired");
    assert!(second.epoch > first.epoch);
    assert_eq!(journal.renew_lease(&first), Err(LeaseError::Lost { epoch: first.epoch }));
    assert_eq!(journal.release_lease(&first), Err(LeaseError::Lost { epoch: first.epoch }));
    journal.renew_lease(&second).expect("the test owns it");
    journal.release_lease(&second).expect("the test owns it");
    journal.acquire_lease("first", LEASE_TTL).expect("it was released");
}

fn a_journal_goes_on_after_reopen(store: &dyn Store) {
    let journal = store.open();
    let epoch = owned(&*journal);
    let heads = fill(&*journal, epoch, 2);
    journal.reopen().expect("the store is there");
    assert_eq!(journal.head(), Ok(heads[2]));
    fill(&*journal, epoch, 2);
    assert_eq!(read_all(&*journal, heads[0]).len(), 4);
}

struct InMemory(MemoryJournal);

impl Store for InMemory {
    fn open(&self) -> Arc<dyn Journal> {
        self.0.reopen().expect("memory is there");
        Arc::new(self.0.clone())
    }

    fn damage(&self, sequence: u64, damage: Damage) {
        self.0.tamper(|rows| {
            let index = rows.iter().position(|row| row.sequence == sequence).expect("it exists");
            match damage {
                Damage::FlipBit => rows[index].payload[0] ^= 1,
                Damage::Delete => drop(rows.remove(index)),
                Damage::SwapWithNext => rows.swap(index, index + 1),
            }
        });
    }

    fn expire_lease(&self) {
        self.0.expire_lease();
    }
}

struct InSqlite(TempDir);

impl InSqlite {
    fn sql(&self, sql: &str) {
        let file = rusqlite::Connection::open(self.0.path().join("journal.db")).expect("opens");
        file.execute_batch(sql).expect(sql);
    }
}

/// The damage in SQL, given the expression that flips a bit of the payload and the condition that
/// selects the rows.
fn damage_sql(table: &str, sequence: u64, rows: &str, flipped: &str, damage: Damage) -> String {
    let next = sequence + 1;
    match damage {
        Damage::FlipBit => {
            format!("UPDATE {table} SET payload = {flipped} WHERE sequence = {sequence}{rows}")
        }
        Damage::Delete => format!("DELETE FROM {table} WHERE sequence = {sequence}{rows}"),
        Damage::SwapWithNext => format!(
            "UPDATE {table} SET sequence = -1 WHERE sequence = {sequence}{rows};
             UPDATE {table} SET sequence = {sequence} WHERE sequence = {next}{rows};
             UPDATE {table} SET sequence = {next} WHERE sequence = -1{rows}"
        ),
    }
}

impl Store for InSqlite {
    fn open(&self) -> Arc<dyn Journal> {
        let path = self.0.path().join("journal.db");
        let journal = SqliteJournal::open(&path, SqliteOptions::default());
        Arc::new(journal.expect("no other process has it open"))
    }

    fn damage(&self, sequence: u64, damage: Damage) {
        let flipped = "CAST(X'FF' || substr(payload, 2) AS BLOB)";
        self.sql(&damage_sql("batch", sequence, "", flipped, damage));
    }

    fn expire_lease(&self) {}

    fn shared_by_processes(&self) -> bool {
        false
    }
}

struct InPostgres<'a> {
    server: &'a TestPostgres,
    machine: String,
}

impl Store for InPostgres<'_> {
    fn open(&self) -> Arc<dyn Journal> {
        let mut options = PostgresOptions::new(self.server.url(), self.machine.clone());
        options.unsafe_single = true;
        Arc::new(PostgresJournal::open(options).expect("the server is up"))
    }

    fn damage(&self, sequence: u64, damage: Damage) {
        let rows = format!(" AND machine = '{}'", self.machine);
        let flipped = "set_byte(payload, 0, 255 - get_byte(payload, 0))";
        self.server.sql(&damage_sql("bursar_batch", sequence, &rows, flipped, damage));
    }

    fn expire_lease(&self) {
        self.server.sql(&format!(
            "UPDATE bursar_lease SET until = now() - interval '1 s' WHERE machine = '{}'",
            self.machine
        ));
    }
}

#[test]
fn the_memory_journal_obeys_every_law() {
    obeys_every_law(|| InMemory(MemoryJournal::new(JournalId([5; 16]))));
}

/// A store behind a cache of the last appends.
struct Remembered<S>(S);

impl<S: Store> Store for Remembered<S> {
    fn open(&self) -> Arc<dyn Journal> {
        Arc::new(Recent::new(self.0.open()))
    }

    fn damage(&self, sequence: u64, damage: Damage) {
        self.0.damage(sequence, damage);
    }

    fn expire_lease(&self) {
        self.0.expire_lease();
    }

    fn shared_by_processes(&self) -> bool {
        self.0.shared_by_processes()
    }
}

/// Cached batches are not read from the store, so this damage is found only by readers of the
/// store. The next test shows when the store is read.
const DAMAGE: &str = "any damage is found and the first bad batch is named";

#[test]
fn a_caching_journal_obeys_every_law_except_that_of_damage() {
    let others: Vec<&Law> = LAWS.iter().filter(|(name, _)| *name != DAMAGE).collect();
    assert_eq!(others.len() + 1, LAWS.len());
    for (name, law) in others {
        println!("{name}");
        law(&Remembered(InMemory(MemoryJournal::new(JournalId([5; 16])))));
        law(&Remembered(InSqlite(TempDir::new())));
    }
}

#[test]
fn the_last_appends_are_read_from_memory_until_an_error() {
    let store = MemoryJournal::new(JournalId([5; 16]));
    let journal = Recent::new(Arc::new(store.clone()));
    let epoch = owned(&journal);
    let heads = fill(&journal, epoch, 5);
    let appended = read_all(&store, heads[0]);
    store.tamper(|rows| rows.iter_mut().for_each(|row| row.payload[0] ^= 1));
    let found = |after: Head| -> Vec<_> {
        let reader = journal.read(after).expect("there is something to read");
        reader.collect()
    };
    for (place, head) in heads.iter().enumerate() {
        let expected: Vec<_> = appended[place..].iter().cloned().map(Ok).collect();
        assert_eq!(found(*head), expected, "the batches after batch {place}");
    }
    let stranger = Head { hash: heads[1].hash, ..heads[2] };
    assert!(matches!(found(stranger)[0], Err(JournalError::Corrupt { .. })));
    journal.append(epoch, heads[2], sample(9)).expect_err("it is not the head");
    assert!(matches!(found(heads[2])[0], Err(JournalError::Corrupt { .. })));
}

#[test]
fn the_cache_of_the_last_appends_is_bounded() {
    let store = MemoryJournal::new(JournalId([5; 16]));
    let journal = Recent::new(Arc::new(store.clone()));
    let epoch = owned(&journal);
    let mut heads = vec![journal.head().expect("the head can be read")];
    for _ in 0..6 {
        let mut builder = BatchBuilder::new();
        let time = Timestamp::from_millis(1);
        builder.push(RecordKind::Decision, time, |body| body.resize(1 << 20, 7));
        let batch = builder.finish().expect("one record was pushed");
        let head = *heads.last().expect("there is one");
        heads.push(journal.append(epoch, head, batch).expect("the append succeeds"));
    }
    store.tamper(|rows| rows.iter_mut().for_each(|row| row.payload[0] ^= 1));
    let first = |after: Head| journal.read(after).expect("there is more").next();
    assert!(matches!(first(heads[0]), Some(Err(JournalError::Corrupt { .. }))));
    assert!(matches!(first(heads[3]), Some(Ok(_))));
}

#[test]
fn the_sqlite_journal_obeys_every_law() {
    obeys_every_law(|| InSqlite(TempDir::new()));
}

#[test]
fn the_postgres_journal_obeys_every_law() {
    let server = TestPostgres::start();
    let mut number = 0;
    obeys_every_law(|| {
        number += 1;
        InPostgres { server: &server, machine: format!("ledger-{number}") }
    });
}
