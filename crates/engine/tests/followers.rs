//! Snapshots and projections, made after the writer.

use crate::support;

use std::sync::{Arc, Mutex};

use bursar_core::machine::Machine;
use bursar_engine::follower::{Follower, Projection};
use bursar_engine::{Snapshotter, copy_or_replay, replay, replay_from_genesis};
use bursar_journal::memory::{Fault, MemoryJournal};
use bursar_journal::{Head, Journal, Record};
use support::till::{Command, Event, Till, TillCodec};
use support::{memory, till, wait_until};

fn add(id: u64) -> Command {
    Command::Add { id, amount: 1 }
}

/// Adds `ids` while a follower makes a snapshot every ten records.
fn run_with_snapshots(journal: &MemoryJournal, ids: std::ops::RangeInclusive<u64>) {
    let shared: Arc<dyn Journal> = Arc::new(journal.clone());
    let engine = till(Arc::clone(&shared));
    let snapshotter = Snapshotter::new(Arc::clone(&shared), Arc::new(TillCodec), 10);
    let snapshotter = snapshotter.expect("the journal is whole");
    let follower = Follower::start(shared, Arc::new(TillCodec), engine.durable(), snapshotter);
    for id in ids {
        engine.handle().execute((), add(id)).expect("it serves").value.expect("accepted");
    }
    let head = journal.head().expect("memory");
    wait_until("the follower has caught up", || follower.followed().head() == Some(head));
    engine.stop();
    follower.join();
}

#[test]
fn a_start_from_a_snapshot_gives_the_same_state_as_one_from_the_beginning() {
    let journal = memory(1);
    run_with_snapshots(&journal, 1..=35);
    let marks = journal.list_snapshots().expect("memory");
    assert_eq!(marks.len(), 2);
    let quick = replay(&journal, &TillCodec).expect("whole");
    let whole = replay_from_genesis(&journal, &TillCodec).expect("whole");
    assert_eq!(quick.snapshot, marks[0].sequence);
    assert_eq!((quick.machine.digest(), quick.head), (whole.machine.digest(), whole.head));
    run_with_snapshots(&journal, 36..=60);
    let quick = replay(&journal, &TillCodec).expect("whole");
    assert_eq!(quick.machine.total, 60);
    assert!(quick.snapshot > marks[0].sequence, "a follower continues where the last one stopped");
}

#[test]
fn a_bad_snapshot_is_skipped_and_never_trusted() {
    let journal = memory(1);
    run_with_snapshots(&journal, 1..=35);
    let marks = journal.list_snapshots().expect("memory");
    journal.tamper_snapshot(|bytes| bytes[90] ^= 1);
    let older = replay(&journal, &TillCodec).expect("whole");
    assert_eq!((older.snapshot, older.skipped.len()), (marks[1].sequence, 1));
    assert_eq!(older.machine.total, 35);
    let engine = till(Arc::new(journal.clone()));
    let total = engine.handle().read(|till: &Till| till.total).expect("it serves").value;
    assert_eq!(total, 35);
}

#[test]
fn a_snapshot_of_another_history_is_skipped() {
    let (first, second) = (memory(1), memory(1));
    run_with_snapshots(&first, 1..=15);
    run_with_snapshots(&second, 101..=115);
    let mark = second.list_snapshots().expect("memory")[0];
    let foreign = second.get_snapshot(mark).expect("whole");
    first.put_snapshot(&foreign).expect("memory");
    let replayed = replay(&first, &TillCodec).expect("whole");
    assert!(replayed.machine.applied.keys().all(|id| *id <= 15));
    assert_eq!(replayed.machine.total, 15);
}

#[test]
fn a_copy_of_the_state_of_a_writer_is_what_a_replay_gives() {
    let journal = memory(1);
    let engine = till(Arc::new(journal.clone()));
    for id in 1..=20 {
        engine.handle().execute((), add(id)).expect("it serves").value.expect("accepted");
        let copied = copy_or_replay(&journal, &TillCodec, &engine.handle()).expect("whole");
        let replayed = replay(&journal, &TillCodec).expect("whole");
        assert_eq!(
            (copied.machine.digest(), copied.head),
            (replayed.machine.digest(), replayed.head)
        );
    }
    let writer = engine.handle();
    engine.stop();
    let replayed = copy_or_replay(&journal, &TillCodec, &writer).expect("whole");
    assert_eq!(replayed.machine.total, 20, "a writer that has ended is not needed");
}

/// Records the ids that it saw, in order.
struct Ids {
    head: Head,
    ids: Arc<Mutex<Vec<u64>>>,
}

impl Projection<Till> for Ids {
    fn head(&self) -> Head {
        self.head
    }

    fn record(&mut self, _record: &Record<'_>, events: &[Event]) {
        let mut ids = self.ids.lock().expect("no panic");
        ids.extend(events.iter().filter_map(|event| match event {
            Event::Added { id, .. } => Some(*id),
            Event::Sent { .. }
            | Event::Armed { .. }
            | Event::Rang { .. }
            | Event::SetAside { .. }
            | Event::Broke => None,
        }));
    }

    fn batch(&mut self, head: Head) {
        self.head = head;
    }
}

#[test]
fn a_projection_sees_every_durable_event_once_and_nothing_else() {
    let journal = memory(1);
    let shared: Arc<dyn Journal> = Arc::new(journal.clone());
    let engine = till(Arc::clone(&shared));
    let ids = Arc::new(Mutex::new(Vec::new()));
    let projection = Ids { head: Head::genesis(journal.id()), ids: Arc::clone(&ids) };
    let follower = Follower::start(shared, Arc::new(TillCodec), engine.durable(), projection);
    for id in 1..=30 {
        if id % 10 == 0 {
            journal.inject(0, Fault::UnknownDurable);
        }
        // Some outcomes are unknown. The journal decides.
        let _ = engine.handle().execute((), add(id));
    }
    wait_until("it serves again", || engine.handle().settle().is_ok());
    let head = journal.head().expect("memory");
    wait_until("the follower has caught up", || follower.followed().head() == Some(head));
    let till = replay_from_genesis(&journal, &TillCodec).expect("whole").machine;
    let expected: Vec<_> = till.applied.keys().copied().collect();
    assert_eq!(*ids.lock().expect("no panic"), expected);
    assert_eq!(follower.failure(), None);
    engine.stop();
    follower.join();
}
