//! The writer, on a journal that works and on one that fails.

use crate::support;

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bursar_core::machine::Machine;
use bursar_core::time::Timestamp;
use bursar_engine::clock::Readings;
use bursar_engine::{
    Aborted, Clock, Engine, EngineError, EngineOptions, ManualClock, Observer, Status, WallClock,
    Written, replay, replay_from_genesis,
};
use bursar_journal::memory::{Fault, MemoryJournal, Survivors};
use bursar_journal::{Batch, BatchBuilder, Head, Journal, RecordKind};
use support::till::{Command, NegativeAmount, Reply, Till, TillCodec};
use support::{at, manual_clock, memory, options, till, wait_until};

fn add(id: u64) -> Command {
    Command::Add { id, amount: 1 }
}

/// The state replayed from the first batch.
fn replayed(journal: &MemoryJournal) -> Till {
    replay_from_genesis(journal, &TillCodec).expect("the journal is whole").machine
}

/// The writer's state and the replayed state must be equal, byte for byte.
fn assert_replays(engine: &Engine<TillCodec>, journal: &MemoryJournal) {
    let live = engine.handle().read(|till: &Till| till.digest()).expect("it serves").value;
    assert_eq!(live, replayed(journal).digest(), "L11: replay(journal) = state");
}

#[test]
fn answers_carry_the_position_of_their_record() {
    let journal = memory(1);
    let engine = till(Arc::new(journal.clone()));
    let handle = engine.handle();
    for id in 1..=3 {
        let seen = handle.execute((), add(id)).expect("it serves");
        assert_eq!(seen.value, Ok(Reply::Total(i64::try_from(id).expect("small"))));
        assert_eq!(seen.position, id + 1, "the barrier is record 1");
    }
    let known = handle.execute((), add(3)).expect("it serves");
    assert_eq!((known.value, known.position), (Ok(Reply::Known), 4));
    let refused = handle.execute((), Command::Add { id: 9, amount: -1 }).expect("it serves");
    assert_eq!((refused.value, refused.position), (Err(NegativeAmount), 4));
    assert_replays(&engine, &journal);
}

#[test]
fn every_durable_write_is_observed_and_a_start_reports_its_progress() {
    let journal = memory(1);
    let (sender, received) = channel();
    let observer = Observer::new(move |written: Written| {
        // The test may no longer listen.
        let _ = sender.send(written.records);
    });
    let engine = Engine::start(
        Arc::new(journal.clone()),
        Arc::new(TillCodec),
        manual_clock(),
        EngineOptions { observer, ..options("test") },
    );
    for id in 1..=3 {
        engine.handle().execute((), add(id)).expect("it serves").value.expect("it is accepted");
    }
    assert_eq!(received.iter().take(3).collect::<Vec<_>>(), [1, 1, 1]);
    engine.stop();
    let again = till(Arc::new(journal));
    again.handle().settle().expect("it serves");
    let stats = again.stats();
    assert_eq!((stats.replayed, stats.replay_until), (4, 4), "the barrier and three commands");
}

/// An engine that serves, and whose next appends wait.
fn with_held_appends() -> (MemoryJournal, Engine<TillCodec>) {
    let journal = memory(1);
    let engine = till(Arc::new(journal.clone()));
    engine.handle().settle().expect("it serves");
    journal.hold_appends();
    (journal, engine)
}

#[test]
fn nothing_is_answered_before_it_is_durable() {
    let (journal, engine) = with_held_appends();
    let (sender, answers) = channel();
    let submit = |command: Command| {
        let sender = sender.clone();
        engine.handle().submit((), command, move |answer| {
            sender.send(answer.is_ok()).expect("the test listens")
        });
    };
    submit(add(1));
    submit(Command::Add { id: 2, amount: -1 });
    let reads = sender.clone();
    engine.handle().query(
        |till: &Till| till.total,
        move |seen| reads.send(seen.is_ok_and(|seen| seen.value == 1)).expect("the test listens"),
    );
    // The read was decided after the write, on the same thread, so it has seen the write.
    wait_until("the append is in progress", || journal.appends() == 1);
    assert!(answers.try_recv().is_err(), "write, refusal and read wait for the disk");
    journal.release_appends();
    assert!((0..3).all(|_| answers.recv().expect("three answers")));
}

#[test]
fn every_answer_is_durable_when_it_is_sent() {
    let engine = till(Arc::new(memory(1)));
    let (sender, answers) = channel();
    for id in 1..=100 {
        let (sender, durable) = (sender.clone(), engine.durable());
        engine.handle().submit((), add(id), move |answer| {
            let position = answer.expect("it serves").position;
            let shown = durable.head().is_some_and(|head| head.position >= position);
            sender.send(shown).expect("the test listens")
        });
    }
    assert!((0..100).all(|_| answers.recv().expect("a hundred answers")));
}

#[test]
fn commands_sent_while_the_disk_is_busy_share_a_batch() {
    let (journal, engine) = with_held_appends();
    let (sender, answers) = channel();
    for id in 1..=1_000 {
        let sender = sender.clone();
        engine.handle().submit((), add(id), move |answer| {
            sender.send(answer.is_ok()).expect("the test listens")
        });
    }
    journal.release_appends();
    assert!((0..1_000).all(|_| answers.recv().expect("a thousand answers")));
    let batches = journal.head().expect("memory").sequence;
    assert!(batches < 20, "{batches} batches for a thousand commands that waited");
    assert_replays(&engine, &journal);
}

#[test]
fn a_full_mailbox_refuses_at_once() {
    let journal = memory(1);
    let small = EngineOptions { mailbox: 4, batch_bytes: 1, ..options("test") };
    let engine =
        Engine::start(Arc::new(journal.clone()), Arc::new(TillCodec), manual_clock(), small);
    engine.handle().settle().expect("it serves");
    journal.hold_appends();
    let (sender, answers) = channel();
    for id in 1..=50 {
        let sender = sender.clone();
        engine.handle().submit((), add(id), move |answer| drop(sender.send(answer)));
    }
    let refused = answers.recv().expect("most are refused");
    assert_eq!(refused, Err(EngineError::Unavailable("the mailbox is full".into())));
    journal.release_appends();
    drop(sender);
    let accepted = answers.iter().filter(Result::is_ok).count();
    assert_eq!(replayed(&journal).applied.len(), accepted, "refused commands never happened");
}

#[test]
fn attended_work_reads_and_decides_at_one_instant() {
    let journal = memory(1);
    let engine = till(Arc::new(journal.clone()));
    engine.handle().settle().expect("it serves");
    let (sender, answers) = channel();
    for _ in 0..2 {
        let sender = sender.clone();
        engine.handle().transact(
            |till| {
                let before = till.machine().total;
                // No other message may change the state between the read and the decision.
                let id = u64::try_from(before).expect("the total only grows") + 1;
                let reply = till.execute(&(), &add(id));
                let refused = till.execute(&(), &Command::Add { id: 9, amount: -1 });
                (before, reply, refused, till.machine().total)
            },
            move |seen| sender.send(seen).expect("the test listens"),
        );
    }
    for total in [1, 2] {
        let seen = answers.recv().expect("an answer").expect("it serves");
        let (taken, refused) = (Ok(Ok(Reply::Total(total))), Ok(Err(NegativeAmount)));
        let expected = (total - 1, taken, refused, total);
        assert_eq!(seen.value, expected);
        assert_eq!(seen.position, u64::try_from(total).expect("small") + 1);
    }
    assert_replays(&engine, &journal);
}

#[test]
fn a_group_happens_as_a_whole_or_not_at_all() {
    let journal = memory(1);
    let engine = till(Arc::new(journal.clone()));
    let group = |commands: &[Command]| {
        engine.handle().execute_group(commands.iter().map(|one| ((), one.clone())).collect())
    };
    let done = group(&[add(1), add(2), add(3)]).expect("it serves");
    assert_eq!(done.value, Ok(vec![Reply::Total(1), Reply::Total(2), Reply::Total(3)]));
    assert_eq!(done.position, 2, "one record after the barrier");
    let aborted = group(&[add(4), add(5), Command::Add { id: 6, amount: -1 }]).expect("it serves");
    assert_eq!(aborted.value, Err(Aborted { index: 2, refusal: NegativeAmount }));
    assert_eq!(aborted.position, 2, "no record");
    let total = engine.handle().read(|till: &Till| till.total).expect("it serves").value;
    assert_eq!(total, 3);
    assert_replays(&engine, &journal);
}

#[test]
fn timers_run_at_their_own_instants_when_the_clock_passes_them() {
    let journal = memory(1);
    let clock = manual_clock();
    let engine = Engine::start(
        Arc::new(journal.clone()),
        Arc::new(TillCodec),
        Arc::clone(&clock) as Arc<dyn Clock>,
        options("test"),
    );
    for (id, due) in [(1, 50), (2, 20), (3, 900)] {
        engine
            .handle()
            .execute((), Command::Arm { at: at(due), id })
            .expect("it serves")
            .value
            .expect("accepted");
    }
    clock.set(at(100)).expect("forward");
    engine.handle().settle().expect("it serves");
    let rang = engine.handle().read(|till: &Till| till.rang.clone()).expect("it serves").value;
    assert_eq!(rang, [(at(20), 2), (at(50), 1)]);
    assert_replays(&engine, &journal);
}

#[test]
fn a_due_timer_runs_without_a_request_on_the_wall_clock() {
    let journal = memory(1);
    let clock = Arc::new(bursar_engine::WallClock::new());
    let engine = Engine::start(
        Arc::new(journal.clone()),
        Arc::new(TillCodec),
        Arc::clone(&clock) as Arc<dyn Clock>,
        options("test"),
    );
    let soon = clock.now().plus_millis(30);
    engine
        .handle()
        .execute((), Command::Arm { at: soon, id: 1 })
        .expect("it serves")
        .value
        .expect("accepted");
    wait_until("the timer has run", || !replayed(&journal).rang.is_empty());
    assert_eq!(replayed(&journal).rang, [(soon, 1)]);
}

/// A till on a wall clock whose readings the test sets, in milliseconds.
fn rigged_till(
    journal: &MemoryJournal,
    readings: &Arc<Mutex<Readings>>,
) -> (Engine<TillCodec>, Arc<WallClock>) {
    let shared = Arc::clone(readings);
    let read = move || *shared.lock().expect("no panic");
    let clock = Arc::new(WallClock::with_readings(read));
    let engine = Engine::start(
        Arc::new(journal.clone()),
        Arc::new(TillCodec),
        Arc::clone(&clock) as Arc<dyn Clock>,
        options("test"),
    );
    (engine, clock)
}

fn tick(readings: &Mutex<Readings>, wall: i64, monotonic: i64) {
    let mut readings = readings.lock().expect("no panic");
    readings.wall += wall;
    readings.monotonic += monotonic;
}

/// The instant of the till's answers.
fn as_of(engine: &Engine<TillCodec>) -> i64 {
    engine.handle().read(|till: &Till| till.total).expect("it serves").at.millis()
}

#[test]
fn answers_never_go_back_in_time_over_a_restart_when_the_clock_was_set_back() {
    const HOUR: i64 = 3_600_000;
    let journal = memory(1);
    let readings = Arc::new(Mutex::new(Readings { wall: 1_000_000, monotonic: 0 }));
    let tick = |wall, monotonic| tick(&readings, wall, monotonic);
    let (engine, clock) = rigged_till(&journal, &readings);
    engine.handle().execute((), add(1)).expect("it serves").value.expect("accepted");
    // The clock is an hour ahead, and an operator accepts it. Only reads follow.
    tick(HOUR, 10);
    as_of(&engine);
    assert_eq!(clock.accept(), Ok(()));
    assert_eq!(as_of(&engine), 1_000_000 + HOUR);
    let last = || replay_times(&journal).last().copied().expect("there are records");
    assert_eq!(last(), 1_000_000 + HOUR, "the time would survive a kill");
    tick(1_500 - HOUR, 1_500);
    let shown = as_of(&engine);
    assert!(shown > 1_000_000 + HOUR, "{shown}");
    assert!(shown - last() <= 2_000, "a kill loses at most two seconds");
    engine.stop();
    assert_eq!(last(), shown, "a clean stop journals the time");
    let (engine, _) = rigged_till(&journal, &readings);
    let again = as_of(&engine);
    assert!(again >= shown, "{again} is before {shown}");
    engine.stop();
    assert!(replay_times(&journal).is_sorted());
    replayed(&journal);
}

#[test]
fn after_a_kill_answers_go_back_by_at_most_a_minute_under_an_undetected_clock_error() {
    const HOUR: i64 = 3_600_000;
    let journal = memory(1);
    // The clock is an hour ahead from the start, which cannot be detected.
    let readings = Arc::new(Mutex::new(Readings { wall: 1_000_000 + HOUR, monotonic: 0 }));
    let tick = |wall, monotonic| tick(&readings, wall, monotonic);
    let (engine, clock) = rigged_till(&journal, &readings);
    engine.handle().execute((), add(1)).expect("it serves").value.expect("accepted");
    let records = || replay_times(&journal).len();
    let written = records();
    for _ in 0..600 {
        tick(1_000, 1_000);
        let shown = as_of(&engine);
        let last = replay_times(&journal).last().copied().expect("there are records");
        // A start continues from the last record, however early its clock is.
        assert!(shown - last <= 60_000, "{shown} was answered, a kill leaves {last}");
    }
    let marks = records() - written;
    assert!((1..=10).contains(&marks), "{marks} marks in ten minutes");
    assert_eq!(clock.alarm(), None);
    engine.stop();
}

#[test]
fn a_peek_and_an_idle_till_journal_no_time() {
    let journal = memory(1);
    let readings = Arc::new(Mutex::new(Readings { wall: 1_000_000, monotonic: 0 }));
    let (engine, _) = rigged_till(&journal, &readings);
    as_of(&engine);
    let before = replay_times(&journal);
    for _ in 0..10 {
        {
            let mut readings = readings.lock().expect("no panic");
            readings.wall += 120_000;
            readings.monotonic += 120_000;
        }
        let (sender, receiver) = std::sync::mpsc::channel();
        engine.handle().peek(move |till: &Till| sender.send(till.total).expect("it waits"));
        receiver.recv().expect("it looks");
    }
    // Any record of the peeks would be before this.
    assert_eq!(replay_times(&journal), before);
    as_of(&engine);
    assert_eq!(
        replay_times(&journal).len(),
        before.len() + 1,
        "the time of an answer is journaled"
    );
}

/// The times of all records.
fn replay_times(journal: &MemoryJournal) -> Vec<i64> {
    let batches = journal.read(Head::genesis(journal.id())).expect("it can be read");
    let mut times = Vec::new();
    for batch in batches {
        let batch = batch.expect("it is whole");
        times.extend(batch.frames().map(|record| record.expect("it is whole").time.millis()));
    }
    times
}

#[test]
fn a_stop_without_passed_time_and_a_manual_clock_journal_no_time() {
    let journal = memory(1);
    let engine = till(Arc::new(journal.clone()));
    engine.handle().settle().expect("it serves");
    let before = replay_times(&journal);
    engine.stop();
    assert_eq!(replay_times(&journal), before);
}

#[test]
fn an_unknown_outcome_is_reported_and_the_state_is_rebuilt() {
    for (fault, happened) in [
        (Fault::UnknownNotWritten, false),
        (Fault::UnknownNotSynced, true),
        (Fault::UnknownDurable, true),
    ] {
        let journal = memory(1);
        let engine = till(Arc::new(journal.clone()));
        let handle = engine.handle();
        handle.execute((), add(1)).expect("it serves").value.expect("accepted");
        journal.inject(0, fault);
        assert_eq!(handle.execute((), add(2)), Err(EngineError::OutcomeUnknown), "{fault:?}");
        // Repeating the command resolves it: it happens once, whatever happened before.
        let again = loop {
            match handle.execute((), add(2)) {
                Err(EngineError::Unavailable(_)) => {}
                other => break other.expect("it serves again"),
            }
        };
        assert_eq!(again.value == Ok(Reply::Known), happened, "{fault:?}");
        let till = replayed(&journal);
        assert_eq!((till.total, till.applied_more_than_once()), (2, vec![]), "{fault:?}");
        assert_eq!(engine.stats().rebuilds, 2);
        assert_replays(&engine, &journal);
    }
}

#[test]
fn everything_after_an_unknown_append_is_unknown_too() {
    let journal = memory(1);
    let engine = till(Arc::new(journal.clone()));
    engine.handle().settle().expect("it serves");
    journal.inject(0, Fault::UnknownNotWritten);
    journal.hold_appends();
    // More than is decided at once, and nothing is decided before all of it waits. The second part
    // is therefore decided while the first is being written.
    let (begin, begun) = channel::<()>();
    engine.handle().query(move |_: &Till| begun.recv().is_ok(), |_| {});
    let (sender, answers) = channel();
    for id in 1..=400 {
        let sender = sender.clone();
        engine.handle().submit((), add(id), move |answer| drop(sender.send(answer)));
    }
    drop(sender);
    let (decided, all_decided) = channel();
    engine.handle().query(move |_: &Till| decided.send(()).is_ok(), |_| {});
    begin.send(()).expect("the writer waits");
    all_decided.recv().expect("the writer handles it");
    journal.release_appends();
    let answers: Vec<_> = answers.iter().collect();
    assert_eq!(answers.len(), 400);
    assert!(answers.iter().all(|answer| *answer == Err(EngineError::OutcomeUnknown)));
    engine.handle().settle().expect("it serves again");
    assert_eq!(replayed(&journal).applied.len(), 0);
    assert_replays(&engine, &journal);
}

#[test]
fn a_full_disk_refuses_writes_and_serves_reads_until_there_is_space() {
    let journal = memory(1);
    let engine = till(Arc::new(journal.clone()));
    let handle = engine.handle();
    handle.execute((), add(1)).expect("it serves").value.expect("accepted");
    for skip in 0..30 {
        journal.inject(skip, Fault::Full);
    }
    assert_eq!(handle.execute((), add(2)), Err(EngineError::StorageFull));
    wait_until("it serves reads only", || engine.status() == Status::ReadOnly);
    let seen = handle.read(|till: &Till| till.total).expect("reads are still served");
    assert_eq!((seen.value, seen.position), (1, 2));
    assert_eq!(handle.execute((), add(3)), Err(EngineError::StorageFull));
    wait_until("there is space again", || engine.status() == Status::Serving);
    handle.execute((), add(4)).expect("it serves").value.expect("accepted");
    assert_eq!(replayed(&journal).applied.keys().copied().collect::<Vec<_>>(), [1, 4]);
    assert_replays(&engine, &journal);
}

#[test]
fn a_zombie_is_fenced_and_its_state_is_dropped() {
    let journal = memory(1);
    let zombie = till(Arc::new(journal.clone()));
    zombie.handle().execute((), add(1)).expect("it serves").value.expect("accepted");
    journal.expire_lease();
    let successor = Engine::start(
        Arc::new(journal.clone()),
        Arc::new(TillCodec),
        manual_clock(),
        options("successor"),
    );
    successor.handle().execute((), add(2)).expect("it serves").value.expect("accepted");
    let late = zombie.handle().execute((), add(3));
    assert!(matches!(late, Err(EngineError::Unavailable(_))), "{late:?}");
    wait_until("the zombie waits", || matches!(zombie.status(), Status::Waiting(_)));
    let read = zombie.handle().read(|till: &Till| till.total);
    assert!(matches!(read, Err(EngineError::Unavailable(_))), "no stale reads: {read:?}");
    assert_eq!(replayed(&journal).applied.keys().copied().collect::<Vec<_>>(), [1, 2]);
    successor.stop();
    wait_until("the lease was released", || zombie.status() == Status::Serving);
    zombie
        .handle()
        .execute((), add(3))
        .expect("it owns the machine again")
        .value
        .expect("accepted");
    assert_replays(&zombie, &journal);
}

#[test]
fn a_crash_anywhere_loses_nothing_that_was_acknowledged() {
    let faults = [Fault::UnknownNotWritten, Fault::UnknownNotSynced, Fault::UnknownDurable];
    let survivors = [
        Survivors { whole: 0, torn: false },
        Survivors { whole: 0, torn: true },
        Survivors { whole: 1, torn: false },
    ];
    for (skip, fault, survivors) in (0..6)
        .flat_map(|skip| faults.map(|fault| (skip, fault)))
        .flat_map(|(skip, fault)| survivors.map(|survivors| (skip, fault, survivors)))
    {
        let journal = memory(1);
        let engine = till(Arc::new(journal.clone()));
        engine.handle().settle().expect("it serves");
        journal.inject(skip, fault);
        let mut acknowledged = Vec::new();
        for id in 1..=5 {
            // The crash comes while the outcome is unknown, before the writer can rebuild.
            match engine.handle().execute((), add(id)) {
                Ok(_) => acknowledged.push(id),
                Err(_) => break,
            }
        }
        drop(engine);
        journal.crash(survivors);
        let engine = till(Arc::new(journal.clone()));
        wait_until("it serves", || engine.status() == Status::Serving);
        let till = replayed(&journal);
        assert!(acknowledged.iter().all(|id| till.applied.get(id) == Some(&1)));
        assert_eq!(till.applied_more_than_once(), [0; 0]);
        assert_replays(&engine, &journal);
    }
}

#[test]
fn a_corrupt_journal_stops_the_machine_and_names_the_batch() {
    let journal = memory(1);
    let engine = till(Arc::new(journal.clone()));
    for id in 1..=5 {
        engine.handle().execute((), add(id)).expect("it serves").value.expect("accepted");
    }
    engine.stop();
    journal.tamper(|rows| rows[3].payload[20] ^= 1);
    let engine = till(Arc::new(journal.clone()));
    wait_until("it stopped", || matches!(engine.status(), Status::Stopped(_)));
    let Status::Stopped(reason) = engine.status() else { panic!("it stopped") };
    assert!(reason.contains("batch 4 is corrupt"), "{reason}");
    assert!(matches!(engine.handle().settle(), Err(EngineError::Stopped(_))));
}

#[test]
fn time_does_not_go_back_over_a_restart() {
    let journal = memory(1);
    let clock = manual_clock();
    clock.set(at(1_000)).expect("forward");
    let engine =
        Engine::start(Arc::new(journal.clone()), Arc::new(TillCodec), clock, options("test"));
    engine.handle().execute((), add(1)).expect("it serves").value.expect("accepted");
    engine.stop();
    // The new clock shows an earlier instant.
    let engine = till(Arc::new(journal.clone()));
    let seen = engine.handle().execute((), add(2)).expect("it serves");
    assert_eq!(seen.at, at(1_000));
    let mut last = at(0);
    for batch in journal.read(Head::genesis(journal.id())).expect("memory") {
        for record in batch.expect("whole").frames() {
            let time = record.expect("whole").time;
            assert!(time >= last);
            last = time;
        }
    }
}

#[test]
fn a_body_that_the_codec_does_not_know_stops_the_start_and_is_named() {
    let journal = memory(1);
    let epoch =
        journal.acquire_lease("test", std::time::Duration::from_secs(1)).expect("it is free").epoch;
    let mut builder = BatchBuilder::new();
    builder.push(RecordKind::Decision, at(0), |out| out.extend_from_slice(&[9; 24]));
    let batch: Batch = builder.finish().expect("one record");
    journal.append(epoch, Head::genesis(journal.id()), batch).expect("the test owns it");
    let error = replay(&journal, &TillCodec).map(|_| ()).expect_err("event 9 is unknown");
    assert!(error.to_string().starts_with("record 1: unknown event"), "{error}");
}

/// The kinds and times of all records.
fn records(journal: &dyn Journal) -> Vec<(RecordKind, Timestamp)> {
    let batches = journal.read(Head::genesis(journal.id())).expect("it is there");
    let mut found = Vec::new();
    for batch in batches {
        let batch = batch.expect("it is whole");
        found.extend(batch.frames().map(|record| {
            let record = record.expect("it is whole");
            (record.kind, record.time)
        }));
    }
    found
}

fn assert_never_back(journal: &dyn Journal) {
    let records = records(journal);
    assert!(records.is_sorted_by_key(|(_, time)| *time), "{records:?}");
}

#[test]
fn timers_due_while_no_server_ran_are_journaled_at_their_instant_after_the_barrier() {
    let journal = memory(1);
    let start = |now| {
        let clock = Arc::new(ManualClock::new(at(now)));
        Engine::start(Arc::new(journal.clone()), Arc::new(TillCodec), clock, options("test"))
    };
    let engine = start(0);
    engine
        .handle()
        .execute((), Command::Arm { at: at(50), id: 7 })
        .expect("it serves")
        .value
        .expect("accepted");
    engine.stop();
    let engine = start(1_000);
    let seen = engine.handle().read(|till: &Till| till.rang.clone()).expect("it serves");
    assert_eq!(seen.value, [(at(50), 7)]);
    assert_eq!(seen.at, at(1_000));
    engine.stop();
    let due = records(&journal).into_iter().filter(|(kind, _)| *kind == RecordKind::Due);
    assert_eq!(due.collect::<Vec<_>>(), [(RecordKind::Due, at(50))]);
    assert_never_back(&journal);
}

#[test]
fn timers_due_before_a_late_barrier_run_at_the_barrier_and_not_before() {
    // A journal in which a barrier has a later time than a due timer, as earlier builds wrote it.
    let journal = memory(1);
    let engine = till(Arc::new(journal.clone()));
    engine
        .handle()
        .execute((), Command::Arm { at: at(50), id: 7 })
        .expect("it serves")
        .value
        .expect("accepted");
    engine.stop();
    let lease =
        journal.acquire_lease("earlier", Duration::from_secs(1)).expect("no other server has it");
    let head = journal.head().expect("it is there");
    journal.append(lease.epoch, head, Batch::barrier(at(400))).expect("appended");
    journal.release_lease(&lease).expect("the test owns it");
    let engine = till(Arc::new(journal.clone()));
    let seen = engine.handle().settle().expect("it serves");
    assert_eq!(seen.at, at(400), "answers are never as of an earlier instant than a record");
    engine.stop();
    let last = records(&journal).pop();
    assert_eq!(last, Some((RecordKind::Due, at(400))));
    assert_never_back(&journal);
}
