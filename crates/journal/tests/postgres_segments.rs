//! Old batches of a PostgreSQL journal in sealed segments: read like any others, never lost, never skipped.

use crate::sealed;
use crate::support;

use std::cell::{Cell, RefCell};

use bursar_journal::merkle::Verifier;
use bursar_journal::postgres::{PostgresJournal, PostgresOptions, PostgresStore};
use bursar_journal::{Epoch, Journal, JournalError, SegmentFault, SegmentMark};
use sealed::{append, check, first_error, names, owned, seal_all, sealing, snapshot};
use support::postgres::TestPostgres;
use support::{TempDir, read_all};

const BATCHES: u64 = 300;

/// Ends all connections of the ordinary role.
const END: &str = "SELECT count(pg_terminate_backend(pid)) > 0 FROM pg_stat_activity
     WHERE usename = 'bursar'";

fn options(server: &TestPostgres) -> PostgresOptions {
    let mut options = PostgresOptions::new(server.url(), "ledger-0");
    options.unsafe_single = true;
    options
}

fn open(server: &TestPostgres) -> PostgresJournal {
    PostgresJournal::open(options(server)).expect("the server is up")
}

/// A journal of 300 batches with a snapshot at batch 250, of which nothing is sealed yet.
fn filled(server: &TestPostgres) -> (PostgresJournal, Epoch) {
    let journal = open(server);
    let lease = journal.acquire_lease("test", std::time::Duration::from_secs(60)).expect("alone");
    append(&journal, lease.epoch, 250);
    snapshot(&journal);
    append(&journal, lease.epoch, BATCHES - 250);
    assert_eq!(seal_all(&journal), [], "the manifest does not know these batches yet");
    journal.renew_lease(&lease).expect("it is owned");
    (journal, lease.epoch)
}

fn rows(server: &TestPostgres) -> u64 {
    server.sql("SELECT count(*) FROM bursar_batch").parse().expect("a number")
}

fn marks(journal: &PostgresJournal) -> Vec<SegmentMark> {
    journal.sealed_segments().expect("the server is up")
}

#[test]
fn sealed_batches_are_read_like_others_and_leave_the_table() {
    let server = TestPostgres::start();
    let (journal, epoch) = filled(&server);
    // Another process, such as an audit, has opened the journal before.
    let other = PostgresJournal::open_to_read(options(&server)).expect("the server is up");
    let mut reading = other.read(bursar_journal::Head::genesis(other.id())).expect("it is open");
    reading.next().expect("there are batches").expect("it is whole");
    let began = journal.began_at();
    let sealed = seal_all(&journal);
    assert!(sealed.len() > 5, "{} segments", sealed.len());
    assert_eq!(marks(&journal), sealed);
    let last = sealed.last().expect("there are some").last;
    assert!(last < 250, "the batch of the snapshot stays");
    assert_eq!(rows(&server), BATCHES - last);
    let batches = check(&journal, BATCHES);
    assert_eq!(reading.map(|batch| batch.expect("it is whole")).collect::<Vec<_>>(), batches[1..]);
    check(&other, BATCHES);
    for batch in &batches {
        assert_eq!(journal.head_at(batch.sequence), Ok(batch.head()));
    }
    for after in [1, 30, last - 1, last, last + 1, 260, 299] {
        let index = usize::try_from(after).expect("small");
        assert_eq!(read_all(&journal, batches[index - 1].head()), batches[index..]);
    }
    append(&journal, epoch, 10);
    drop(journal);
    PostgresStore::open(options(&server)).expect("the manifest is whole");
    let journal = open(&server);
    check(&journal, BATCHES + 10);
    assert_eq!(journal.began_at(), began);
    journal.reopen().expect("it is whole");
    check(&journal, BATCHES + 10);
}

#[test]
fn segments_carry_signed_checkpoints_and_are_those_of_any_other_store() {
    let server = TestPostgres::start();
    let (journal, _) = filled(&server);
    let key = sealing().signer.expect("the test signs").verifying_key();
    let verifier = Verifier::new(journal.id(), key);
    for mark in seal_all(&journal) {
        let segment = journal.read_segment(&mark).expect("it is there");
        let signed = segment.checkpoint().expect("it is signed");
        let checkpoint = verifier.checkpoint(signed).expect("it is signed by the key");
        assert_eq!((checkpoint.size, checkpoint.root), (mark.last_position, segment.tree().root()));
    }
}

#[test]
fn a_missing_or_altered_segment_is_named() {
    let server = TestPostgres::start();
    let (journal, _) = filled(&server);
    let mark = seal_all(&journal)[2];
    let digest = format!("'\\x{}'", mark.digest);
    server.sql("CREATE TABLE parts AS TABLE bursar_segment_part");
    let altered = "set_byte(bytes, 100, 255 - get_byte(bytes, 100))";
    for (change, is_missing) in [
        (
            format!("UPDATE bursar_segment_part SET bytes = {altered} WHERE digest = {digest}"),
            false,
        ),
        (format!("DELETE FROM bursar_segment_part WHERE digest = {digest}"), true),
    ] {
        server.sql(&change);
        let journal = open(&server);
        let error = first_error(&journal);
        assert!(names(&error, &mark), "{error}");
        let JournalError::Segment { fault, .. } = &error else { panic!("{error}") };
        assert_eq!(matches!(fault, SegmentFault::Missing { .. }), is_missing, "{error}");
        // A start needs no segment.
        let newest = journal.list_snapshots().expect("listed")[0];
        let head = journal.get_snapshot(newest).expect("it is whole").head;
        assert_eq!(read_all(&journal, head).len(), 50);
        server.sql("DELETE FROM bursar_segment_part; INSERT INTO bursar_segment_part TABLE parts");
        check(&journal, BATCHES);
    }
    // A hole between the segments and the table is found at the start.
    let last = marks(&journal).last().expect("there are some").last;
    server.sql(&format!("DELETE FROM bursar_batch WHERE sequence = {}", last + 1));
    let refused = PostgresJournal::open(options(&server)).map(drop).expect_err("it has a hole");
    assert!(refused.to_string().contains(&format!("batch {} is missing", last + 1)), "{refused}");
}

fn parts(server: &TestPostgres) -> u64 {
    let sql = "SELECT count(DISTINCT digest) FROM bursar_segment_part";
    server.sql(sql).parse().expect("a number")
}

#[test]
fn archived_segments_are_read_where_they_are_and_named_when_they_are_gone() {
    let server = TestPostgres::start();
    let (journal, epoch) = filled(&server);
    let marks = seal_all(&journal);
    let target = TempDir::new();
    // A part of a segment, left by an archive that was interrupted.
    let folder = target.path().join(format!("ledger-0-{}", journal.id()));
    std::fs::create_dir_all(&folder).expect("it is ours");
    std::fs::write(folder.join(marks[0].name()), b"bursar seg").expect("it is ours");
    // Another process, beside the owner.
    let beside = PostgresJournal::open_to_read(options(&server)).expect("the server is up");
    let totals = beside.archive_segments(target.path()).expect("there is space");
    assert_eq!((totals.moved, totals.kept), (marks.len() as u64 - 1, 1));
    let bytes: u64 = marks.split_last().expect("some").1.iter().map(|mark| mark.bytes).sum();
    assert_eq!(totals.bytes, bytes);
    assert_eq!(parts(&server), 1, "the newest stays, the others left the database");
    assert_eq!(std::fs::read_dir(&folder).expect("it is there").count(), marks.len() - 1);
    check(&journal, BATCHES);
    check(&open(&server), BATCHES);
    let again = beside.archive_segments(target.path()).expect("there is nothing to do");
    assert_eq!((again.moved, again.before), (0, totals.moved));
    // Sealing goes on after what was archived, and so does the archive.
    append(&journal, epoch, 200);
    snapshot(&journal);
    append(&journal, epoch, 1);
    snapshot(&journal);
    server.sql(
        "UPDATE bursar_machine SET (sequence, position, hash) = (
        SELECT sequence, position, hash FROM bursar_head WHERE machine = 'ledger-0')",
    );
    assert!(!seal_all(&journal).is_empty());
    assert!(beside.archive_segments(target.path()).expect("there is space").moved > 0);
    check(&journal, BATCHES + 201);
    // A start needs no archived segment; a reader names the missing one and where it was.
    let away = target.path().join("away");
    std::fs::rename(&folder, &away).expect("it is ours");
    let journal = open(&server);
    let error = first_error(&journal);
    assert!(names(&error, &marks[0]), "{error}");
    assert!(error.to_string().contains(&folder.display().to_string()), "{error}");
    std::fs::rename(&away, &folder).expect("it is ours");
    check(&journal, BATCHES + 201);
    let file = folder.join(marks[1].name());
    let mut bytes = std::fs::read(&file).expect("it is there");
    bytes[100] ^= 1;
    std::fs::write(&file, bytes).expect("it is ours");
    let error = first_error(&open(&server));
    assert!(names(&error, &marks[1]), "{error}");
}

#[test]
fn nothing_damaged_is_archived_and_what_was_half_removed_is_found() {
    let server = TestPostgres::start();
    let (journal, _) = filled(&server);
    let marks = seal_all(&journal);
    let target = TempDir::new();
    let digest = format!("'\\x{}'", marks[1].digest);
    server.sql("CREATE TABLE parts AS TABLE bursar_segment_part");
    let altered = "set_byte(bytes, 100, 255 - get_byte(bytes, 100))";
    server
        .sql(&format!("UPDATE bursar_segment_part SET bytes = {altered} WHERE digest = {digest}"));
    let error = journal.archive_segments(target.path()).expect_err("it is damaged");
    assert!(names(&error, &marks[1]), "{error}");
    assert_eq!(parts(&server), marks.len() as u64 - 1, "the first was moved, the others stay");
    server.sql(&format!(
        "DELETE FROM bursar_segment_part WHERE digest = {digest};
         INSERT INTO bursar_segment_part SELECT * FROM parts WHERE digest = {digest}"
    ));
    // A reader that met the bytes half gone looks into the folder.
    let first = format!("'\\x{}'", marks[0].digest);
    server.sql(&format!(
        "INSERT INTO bursar_segment_part SELECT machine, digest, part, substr(bytes, 1, 100)
         FROM parts WHERE digest = {first} AND part = 0"
    ));
    check(&open(&server), BATCHES);
    // Only one process archives at a time.
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| match open(&server).archive_segments(target.path()) {
                Ok(_) | Err(JournalError::Locked { .. }) => {}
                Err(error) => panic!("{error}"),
            });
        }
    });
    journal.archive_segments(target.path()).expect("there is space");
    assert_eq!(parts(&server), 1);
    check(&open(&server), BATCHES);
}

#[test]
fn an_owner_that_was_replaced_seals_nothing() {
    let server = TestPostgres::start();
    let (first, _) = filled(&server);
    assert!(first.seal(&sealing(), &|| true).expect("it is owned").is_some());
    let (sealed, left) = (marks(&first), rows(&server));
    let second = open(&server);
    owned(&second);
    let refused = first.seal(&sealing(), &|| true).expect_err("it is replaced").to_string();
    assert!(refused.contains("another server owns"), "{refused}");
    assert_eq!((marks(&second), rows(&server)), (sealed, left));
    assert!(!seal_all(&second).is_empty());
    check(&first, BATCHES);
    check(&second, BATCHES);
}

#[test]
fn sealing_that_is_interrupted_anywhere_is_repeated() {
    let whole = TestPostgres::start();
    let expected = seal_all(&filled(&whole).0);
    let ranges = |marks: &[SegmentMark]| -> Vec<(u64, u64)> {
        marks.iter().map(|mark| (mark.first, mark.last)).collect()
    };
    let server = TestPostgres::start();
    let (mut journal, _) = filled(&server);
    let server = RefCell::new(server);
    let mut steps = 0_u64;
    while marks(&journal).len() < expected.len() {
        steps += 1;
        assert!(steps < 900, "{} of {} segments", marks(&journal).len(), expected.len());
        // One step more each time. Then it stops, or its connections end, or the server crashes.
        let left = Cell::new(steps % 60);
        let (breaks, broken) = (steps.is_multiple_of(3), Cell::new(false));
        let going = || {
            let goes_on = left.replace(left.get().saturating_sub(1)) > 0;
            if !goes_on && breaks && !broken.replace(true) {
                let mut server = server.borrow_mut();
                if steps.is_multiple_of(2) {
                    server.sql(END);
                } else {
                    server.crash();
                    server.start_again();
                }
            }
            goes_on || breaks
        };
        // An error leaves everything readable.
        let sealed = journal.seal(&sealing(), &going);
        assert!(sealed.is_ok() || breaks, "{sealed:?}");
        if breaks {
            journal = open(&server.borrow());
            owned(&journal);
        }
        check(&journal, BATCHES);
        let through = marks(&journal).last().map_or(0, |mark| mark.last);
        assert!(rows(&server.borrow()) >= BATCHES - through, "a batch is in neither place");
    }
    assert_eq!(ranges(&marks(&journal)), ranges(&expected));
    check(&journal, BATCHES);
}
