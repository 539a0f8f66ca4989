//! The content of a history does not depend on how it was fed.

use bursar_history::{History, HistoryError, Sqlite};
use bursar_journal::memory::MemoryJournal;
use bursar_journal::{Journal, JournalId, StoredBatch};

use crate::support::{TempDir, dump, fed, feed};
use crate::traffic::World;

/// A journal of the world's decisions, five records per batch.
fn journal_of(world: &World) -> (MemoryJournal, Vec<StoredBatch>) {
    let journal = MemoryJournal::new(JournalId([5; 16]));
    world.write_to(&journal, 5);
    let genesis = journal.head_at(0).expect("the genesis");
    let batches = journal.read(genesis).and_then(Iterator::collect);
    (journal, batches.expect("the journal is whole"))
}

#[test]
fn a_rebuilt_history_has_identical_content() {
    let directory = TempDir::new();
    let world = World::after(5, 800);
    let whole = directory.file("whole.db");
    drop(fed(&whole, &world, usize::MAX));
    let expected = dump(&whole);
    assert!(expected.len() > 1_000);
    for at_once in [1, 17] {
        let other = directory.file(&format!("{at_once}.db"));
        drop(fed(&other, &world, at_once));
        assert_eq!(dump(&other), expected, "{at_once} records at once");
    }
    // Reopened after every few records, and fed some of them twice.
    let restarted = directory.file("restarted.db");
    for until in (0..world.decided.len()).step_by(41).chain([world.decided.len()]) {
        let mut history = History::new(Sqlite::open(&restarted).expect("a file"));
        feed(&mut history, &world.decided[..until], 1000);
    }
    assert_eq!(dump(&restarted), expected);
}

#[test]
fn history_follows_a_journal_batch_by_batch_and_refuses_gaps() {
    let directory = TempDir::new();
    let world = World::after(3, 200);
    let (journal, batches) = journal_of(&world);
    let mut history =
        History::new(Sqlite::open(&directory.file("history.db")).expect("a new file"));
    history.apply_batches(&batches[..4]).expect("the first batches");
    let before = history.position().expect("a position");
    let gap = history.apply_batches(&batches[5..]).expect_err("a batch is missing");
    assert_eq!(gap, HistoryError::Gap { applied: before, fed: batches[5].first_position });
    assert_eq!(history.position(), Ok(before));
    history.apply_batches(&batches).expect("all, some of them again");
    assert_eq!(history.position(), Ok(journal.head().expect("a head").position));
    let head = journal.head().expect("a head");
    assert_eq!(history.followed(&journal), Ok(head));
    assert_eq!(history.follow(&journal, head), Ok(head));
    let mut other = History::new(Sqlite::open(&directory.file("other.db")).expect("a new file"));
    let half = batches[batches.len() / 2].head();
    assert_eq!(other.follow(&journal, half), Ok(half));
    assert_eq!(other.follow(&journal, head), Ok(head));
    assert_eq!(dump(&directory.file("other.db")), dump(&directory.file("history.db")));
    let stranger = MemoryJournal::new(JournalId([6; 16]));
    world.write_to(&stranger, 4);
    let refused = other.follow(&stranger, stranger.head().expect("a head")).expect_err("foreign");
    assert!(matches!(refused, HistoryError::Journal(_)), "{refused}");
    let reader = History::new(
        Sqlite::open_read_only(&directory.file("history.db")).expect("a second connection"),
    );
    assert_eq!(reader.position(), history.position());
}

/// Rows are written late, but at the latest after a number of records: some before they are
/// committed.
#[test]
fn one_large_commit_equals_many_small_ones() {
    let directory = TempDir::new();
    let world = World::after(8, 6000);
    let (_, batches) = journal_of(&world);
    let (little, much) = (directory.file("little.db"), directory.file("much.db"));
    let mut history = History::new(Sqlite::open(&much).expect("a new file"));
    for some in batches.chunks(50) {
        history.take_in_batches(some).expect("the next batches");
    }
    assert!(history.keep().expect("a position") > 5000);
    let mut history = History::new(Sqlite::open(&little).expect("a new file"));
    for some in batches.chunks(20) {
        history.apply_batches(some).expect("the next batches");
    }
    assert!(dump(&much) == dump(&little), "the content differs");
}

#[test]
fn records_are_visible_after_a_commit_and_dropped_together() {
    let directory = TempDir::new();
    let world = World::after(4, 200);
    let (journal, batches) = journal_of(&world);
    let file = directory.file("history.db");
    let mut history = History::new(Sqlite::open(&file).expect("a new file"));
    let reader = History::new(Sqlite::open_read_only(&file).expect("a second connection"));
    let seen = || reader.position().expect("a position");
    for batch in &batches[..10] {
        history.take_in_batches(std::slice::from_ref(batch)).expect("the next batch");
        assert_eq!(seen(), 0, "nothing is kept yet");
    }
    let kept = batches[9].head();
    assert_eq!(history.keep(), Ok(kept.position));
    assert_eq!((seen(), history.followed(&journal)), (kept.position, Ok(kept)));
    assert_eq!(history.keep(), Ok(kept.position), "again, with nothing new");
    // A batch is missing after some that are not committed. Those are rolled back as well.
    history.take_in_batches(&batches[10..15]).expect("the next batches");
    let gap = history.take_in_batches(&batches[16..]).expect_err("a batch is missing");
    assert!(matches!(gap, HistoryError::Gap { .. }), "{gap}");
    assert_eq!(history.keep(), Ok(kept.position));
    assert_eq!((seen(), history.followed(&journal)), (kept.position, Ok(kept)));
    history.apply_batches(&batches[10..]).expect("all of them again");
    let other = directory.file("other.db");
    History::new(Sqlite::open(&other).expect("a new file")).apply_batches(&batches).expect("all");
    assert_eq!(dump(&file), dump(&other));
}
