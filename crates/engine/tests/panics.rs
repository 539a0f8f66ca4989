//! A panic fails its own request and nothing else.

use crate::support;

use std::sync::Arc;
use std::sync::mpsc::channel;

use bursar_core::machine::Machine;
use bursar_core::message::Mark;
use bursar_engine::courier::{Courier, EngineInbox};
use bursar_engine::{Engine, EngineError, Status, Transaction, attempt, replay_from_genesis};
use bursar_journal::memory::MemoryJournal;
use support::parcel::{Parcel, ParcelCodec, SET_ASIDE, Take};
use support::till::{
    Command, HOPELESS, PANICS_APPLYING, PANICS_DECIDING, Parcels, Reply, Till, TillCodec,
};
use support::{at, manual_clock, memory, options, till, wait_until};

fn add(id: u64) -> Command {
    Command::Add { id, amount: 1 }
}

fn replayed(journal: &MemoryJournal) -> Till {
    replay_from_genesis(journal, &TillCodec).expect("the journal is whole").machine
}

/// The machine serves the state of its journal, with these counts of rebuilds and panics.
fn assert_serves(engine: &Engine<TillCodec>, journal: &MemoryJournal, counts: (u64, u64)) {
    let live = engine.handle().read(|till: &Till| till.digest()).expect("it serves").value;
    assert_eq!(live, replayed(journal).digest(), "L11: replay(journal) = state");
    assert_eq!(engine.status(), Status::Serving);
    let stats = engine.stats();
    assert_eq!((stats.rebuilds, stats.panics), counts);
}

#[test]
fn a_query_that_panics_fails_alone() {
    let journal = memory(1);
    let engine = till(Arc::new(journal.clone()));
    engine.handle().execute((), add(1)).expect("it serves").value.expect("accepted");
    let failed = engine.handle().read(|_: &Till| -> u64 { panic!("panic on demand") });
    assert_eq!(failed, Err(EngineError::Internal));
    engine.handle().execute((), add(2)).expect("it serves").value.expect("accepted");
    assert_serves(&engine, &journal, (1, 1));
}

#[test]
fn a_command_that_panics_while_it_is_decided_fails_alone_and_leaves_no_record() {
    let journal = memory(1);
    let engine = till(Arc::new(journal.clone()));
    assert_eq!(engine.handle().execute((), Command::Panic), Err(EngineError::Internal));
    let next = engine.handle().execute((), add(1)).expect("it serves");
    assert_eq!((next.value, next.position), (Ok(Reply::Total(1)), 2), "after the barrier");
    assert_serves(&engine, &journal, (1, 1));
}

#[test]
fn a_command_that_panics_in_apply_is_undone_before_anything_else_is_served() {
    let journal = memory(1);
    let engine = till(Arc::new(journal.clone()));
    engine.handle().settle().expect("it serves");
    // All of them wait together. Earlier ones keep their answers, later ones see nothing of the
    // panic.
    let (sender, answers) = channel();
    journal.hold_appends();
    for command in [add(1), Command::PanicApplying, add(2)] {
        let sender = sender.clone();
        engine.handle().submit((), command, move |answer| {
            sender.send(answer.map(|seen| seen.value)).expect("the test listens");
        });
    }
    journal.release_appends();
    let mut answers: Vec<_> = answers.iter().take(3).collect();
    answers.sort_by_key(|answer| format!("{answer:?}"));
    assert_eq!(
        answers,
        [Err(EngineError::Internal), Ok(Ok(Reply::Total(1))), Ok(Ok(Reply::Total(2)))]
    );
    assert_serves(&engine, &journal, (2, 1));
    assert_eq!(replayed(&journal).total, 2, "nothing of the panicked command is left");
}

#[test]
fn work_that_panics_takes_its_decisions_back() {
    let journal = memory(1);
    let engine = till(Arc::new(journal.clone()));
    let (sender, answers) = channel();
    engine.handle().transact(
        |till| {
            till.execute(&(), &add(1)).expect("it serves").expect("accepted");
            panic!("panic on demand");
        },
        move |seen| sender.send(seen.map(|_: bursar_engine::Seen<()>| ())).expect("listens"),
    );
    assert_eq!(answers.recv().expect("an answer"), Err(EngineError::Internal));
    assert_serves(&engine, &journal, (2, 1));
    assert_eq!(replayed(&journal).total, 0);
}

#[test]
fn parts_of_one_message_fail_one_by_one() {
    let journal = memory(1);
    let engine = till(Arc::new(journal.clone()));
    let (sender, answers) = channel();
    engine.handle().transact(
        |till| {
            let commands = [add(1), Command::Panic, add(2), Command::PanicApplying, add(3)];
            let parts = commands.map(|command| {
                let part = attempt(till, |till| {
                    let before = till.machine().total;
                    till.execute(&(), &command).map(|_| before)
                });
                part.and_then(|part| part)
            });
            parts.to_vec()
        },
        move |seen| sender.send(seen).expect("the test listens"),
    );
    let parts = answers.recv().expect("an answer").expect("the rest is answered").value;
    let failed = || Err(EngineError::Internal);
    assert_eq!(
        parts,
        [Ok(0), failed(), Ok(1), failed(), failed()],
        "no part sees a change applied in part"
    );
    assert_eq!(engine.handle().read(|till: &Till| till.total).expect("it serves").value, 2);
    assert_serves(&engine, &journal, (2, 3));
}

#[test]
fn a_group_that_panics_has_no_effect() {
    for (command, rebuilds) in [(Command::Panic, 1), (Command::PanicApplying, 2)] {
        let journal = memory(1);
        let engine = till(Arc::new(journal.clone()));
        let items = [add(1), command.clone(), add(2)].map(|command| ((), command)).to_vec();
        assert_eq!(engine.handle().execute_group(items), Err(EngineError::Internal));
        engine.handle().execute((), add(3)).expect("it serves").value.expect("accepted");
        assert_serves(&engine, &journal, (rebuilds, 1));
        assert_eq!(replayed(&journal).total, 1, "{command:?}");
    }
}

#[test]
fn a_responder_that_panics_fails_alone_and_loses_nothing() {
    let journal = memory(1);
    let engine = till(Arc::new(journal.clone()));
    engine.handle().submit((), add(1), |_| panic!("panic on demand"));
    engine.handle().execute((), add(2)).expect("it serves").value.expect("accepted");
    assert_eq!(engine.status(), Status::Serving);
    assert_eq!(replayed(&journal).applied.len(), 2);
}

#[test]
fn a_timer_that_panics_three_times_is_set_aside_by_a_record() {
    for (id, rebuilds) in [(PANICS_DECIDING, 1), (PANICS_APPLYING, 4)] {
        let journal = memory(1);
        let clock = manual_clock();
        let engine = Engine::start(
            Arc::new(journal.clone()),
            Arc::new(TillCodec),
            Arc::clone(&clock) as Arc<dyn bursar_engine::Clock>,
            options("test"),
        );
        for (due, id) in [(10, 1), (20, id), (30, 2)] {
            let arm = Command::Arm { at: at(due), id };
            engine.handle().execute((), arm).expect("it serves").value.expect("accepted");
        }
        clock.set(at(100)).expect("forward");
        engine.handle().settle().expect("the machine continues");
        assert_serves(&engine, &journal, (rebuilds, 3));
        assert_eq!(engine.stats().set_aside, 1);
        assert_eq!(replayed(&journal).rang, [(at(10), 1), (at(30), 2)]);
        assert!(replayed(&journal).armed.is_empty());
    }
}

#[test]
fn a_machine_that_cannot_continue_stops_and_answers_all_callers() {
    let journal = memory(1);
    let engine = till(Arc::new(journal.clone()));
    let arm = Command::Arm { at: at(0), id: HOPELESS };
    // The answer waits for the same durable write as the timer that it made due.
    let _ = engine.handle().execute((), arm);
    wait_until("it stopped", || matches!(engine.status(), Status::Stopped(_)));
    let later = engine.handle().execute((), add(1));
    assert!(matches!(later, Err(EngineError::Stopped(_))), "{later:?}");
}

#[test]
fn a_message_that_panics_three_times_is_set_aside_and_later_ones_arrive() {
    let (sent, received) = (memory(1), memory(2));
    let sender = till(Arc::new(sent.clone()));
    let receiver = Engine::start(
        Arc::new(received.clone()),
        Arc::new(ParcelCodec),
        manual_clock(),
        options("parcel"),
    );
    for (id, amount) in [(1, 7), (2, support::parcel::PANICS), (3, 9)] {
        let send = Command::Send { id, amount };
        sender.handle().execute((), send).expect("it serves").value.expect("accepted");
    }
    let mark: fn(&Parcel) -> Mark = |parcel| parcel.mark;
    let inbox = EngineInbox::new(receiver.handle(), |sent| ((), Take(sent)), mark);
    let courier = Courier::new(Arc::new(sent.clone()), Arc::new(TillCodec), Parcels, inbox);
    let carrying = courier.start(sender.durable());
    let amounts = || receiver.handle().read(|parcel: &Parcel| parcel.amounts.clone());
    wait_until("all arrived", || amounts().expect("it serves").value.len() == 3);
    assert_eq!(amounts().expect("it serves").value, [7, SET_ASIDE, 9]);
    let stats = receiver.stats();
    assert_eq!((stats.panics, stats.set_aside, stats.rebuilds), (3, 1, 1));
    drop(sender);
    carrying.join().expect("it does not panic").expect("it ends with its writer");
    let again = replay_from_genesis(&received, &ParcelCodec).expect("the journal is whole");
    assert_eq!(again.machine.amounts, [7, SET_ASIDE, 9]);
}

#[test]
fn a_decision_that_is_too_large_is_refused_before_anything_is_written() {
    let journal = memory(1);
    let engine = till(Arc::new(journal.clone()));
    let flood = |events| Command::Flood { events };
    let Err(EngineError::TooLarge(reason)) = engine.handle().execute((), flood(100_001)) else {
        panic!("the limit was exceeded");
    };
    assert!(reason.contains("at most 100000"), "{reason}");
    let position = || engine.handle().read(|_: &Till| ()).expect("it serves").position;
    let before = position();
    for (events, fits) in [(100_001, false), (10_000, true)] {
        let (sender, rehearsed) = std::sync::mpsc::channel();
        let work = move |till: &mut dyn Transaction<Till>| till.rehearse(&(), &flood(events));
        engine.handle().transact(work, move |seen| drop(sender.send(seen)));
        let rehearsed = rehearsed.recv().expect("it answers").expect("it serves").value;
        assert_eq!(matches!(rehearsed, Err(EngineError::TooLarge(_))), !fits, "{events}");
        assert_eq!(position(), before, "nothing was written");
    }
    // Each is small enough, but all together are not.
    let items = (0..11).map(|_| ((), flood(10_000))).collect();
    let refused = engine.handle().execute_group(items);
    assert!(matches!(refused, Err(EngineError::TooLarge(_))), "{refused:?}");
    engine.handle().execute((), flood(100_000)).expect("exactly the limit").value.expect("done");
    assert_serves(&engine, &journal, (1, 0));
    assert_eq!(replayed(&journal).armed.len(), 100_000);
}

#[test]
fn a_panic_in_replay_stops_the_machine() {
    let journal = memory(1);
    let engine = till(Arc::new(journal.clone()));
    engine.handle().settle().expect("it serves");
    engine.stop();
    let head = bursar_journal::Journal::head(&journal).expect("memory");
    let mut builder = bursar_journal::BatchBuilder::new();
    builder.push(bursar_journal::RecordKind::Due, at(1), |body| {
        support::put(body, &[4, at(1).millis(), support::signed(PANICS_APPLYING)]);
    });
    let batch = builder.finish().expect("one record");
    let lease = bursar_journal::Journal::acquire_lease(
        &journal,
        "another",
        std::time::Duration::from_secs(1),
    );
    let lease = lease.expect("it was released");
    bursar_journal::Journal::append(&journal, lease.epoch, head, batch).expect("the test owns it");
    bursar_journal::Journal::release_lease(&journal, &lease).expect("the test owns it");
    let engine = till(Arc::new(journal.clone()));
    wait_until("it stopped", || matches!(engine.status(), Status::Stopped(_)));
    let Status::Stopped(reason) = engine.status() else { panic!("it stopped") };
    assert!(reason.contains("cannot be rebuilt"), "{reason}");
}
