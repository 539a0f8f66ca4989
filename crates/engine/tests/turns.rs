//! Senders take turns, however many messages one of them has sent.

use crate::support;

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bursar_core::machine::Machine;
use bursar_engine::{
    EngineError, Handle, Monotonic, SystemMonotonic, Urgency, replay_from_genesis,
};
use support::till::{Command, PATIENT, Till, TillCodec};
use support::{at, memory, till};

fn add(id: u64) -> Command {
    Command::Add { id, amount: 1 }
}

#[test]
fn a_message_of_another_sender_waits_for_one_message_of_each_sender() {
    let engine = till(Arc::new(memory(1)));
    let (entered, inside) = channel();
    let (open, gate) = channel::<()>();
    let occupy = move |_: &Till| {
        entered.send(()).expect("the test waits");
        gate.recv().expect("the test opens");
    };
    engine.handle().query(occupy, |_| {});
    inside.recv().expect("the writer is occupied");
    let (sender, order) = channel();
    let ask = |tenant: u64, number: u32| {
        let sender = sender.clone();
        let look = move |_: &Till| sender.send((tenant, number)).expect("the test listens");
        engine.handle().with_sender(tenant).query(look, |_| {});
    };
    (0..1000).for_each(|number| ask(1, number));
    ask(2, 0);
    ask(3, 0);
    open.send(()).expect("the writer waits");
    let order: Vec<(u64, u32)> = order.iter().take(1002).collect();
    for tenant in [2, 3] {
        let place = order.iter().position(|(who, _)| *who == tenant).expect("it was answered");
        assert!(place <= 3, "tenant {tenant} came at place {place}");
    }
    let own: Vec<u32> =
        order.iter().filter(|(who, _)| *who == 1).map(|(_, number)| *number).collect();
    assert!(own.is_sorted() && own.len() == 1000, "each sender's order is kept");
}

/// The names of messages in the order in which they were answered.
#[derive(Default)]
struct Log(Arc<Mutex<Vec<&'static str>>>);

impl Log {
    fn note(&self, name: &'static str) -> impl FnOnce() + Send + use<> {
        let log = Arc::clone(&self.0);
        move || log.lock().expect("not poisoned").push(name)
    }

    fn names(&self) -> Vec<&'static str> {
        self.0.lock().expect("not poisoned").clone()
    }
}

#[test]
fn a_message_sent_during_large_ones_waits_for_a_bounded_part_of_them() {
    let engine = till(Arc::new(memory(1)));
    engine.handle().settle().expect("it serves");
    let log = Log::default();
    let note = |name| log.note(name);
    let (done, all) = channel();
    for number in 0..100 {
        let (large, small, done) = (note("large"), note("small"), done.clone());
        let other = engine.handle().with_sender(2);
        engine.handle().with_sender(1).transact(
            move |till| {
                large();
                if number == 0 {
                    other.query(move |_: &Till| small(), |_| {});
                }
                // About a hundred thousand bytes.
                till.execute(&(), &Command::Flood { events: 4000 }).expect("it serves").is_ok()
            },
            move |seen| done.send(seen.is_ok()).expect("the test listens"),
        );
    }
    assert!(all.iter().take(100).all(|done| done));
    let log = log.names();
    let place = log.iter().position(|who| *who == "small").expect("it was answered");
    assert!(place <= 4, "after 256 KiB others have their turns, not at place {place}");
}

#[test]
fn a_read_waits_for_a_bounded_part_of_large_changes_that_do_not_end() {
    let engine = till(Arc::new(memory(1)));
    engine.handle().settle().expect("it serves");
    let log = Log::default();
    let note = |name| log.note(name);
    let (done, all) = channel();
    for number in 0..100 {
        let (large, read, settled, done) =
            (note("large"), note("read"), note("settled"), done.clone());
        let reader = engine.handle().with_sender(2).with_urgency(Urgency::Patient);
        let settling = engine.handle().with_sender(2).with_urgency(Urgency::Urgent);
        engine.handle().with_sender(1).transact(
            move |till| {
                large();
                if number == 0 {
                    reader.query(move |_: &Till| read(), |_| {});
                    settling.query(move |_: &Till| settled(), |_| {});
                }
                // More than a turn writes.
                till.execute(&(), &Command::Flood { events: 12_000 }).expect("it serves").is_ok()
            },
            move |seen| done.send(seen.is_ok()).expect("the test listens"),
        );
    }
    assert!(all.iter().take(100).all(|done| done));
    let log = log.names();
    for name in ["read", "settled"] {
        let place = log.iter().position(|noted| *noted == name).expect("it was answered");
        assert!(place <= 3, "{name} has its turn before the second large change, not at {place}");
    }
}

/// Works for longer than a turn may take.
fn outlast_a_turn() {
    let clock = SystemMonotonic::new();
    while clock.elapsed() < Duration::from_millis(6) {
        std::hint::spin_loop();
    }
}

/// A hundred messages of one sender wait, and the first of them takes long. Meanwhile another sender
/// asks. Returns how many of the hundred were handled before it.
fn handled_before_another_sender(
    post: impl Fn(&Handle<Till>, Box<dyn FnOnce(&Till) + Send>),
) -> usize {
    let engine = till(Arc::new(memory(1)));
    engine.handle().settle().expect("it serves");
    let (entered, inside) = channel();
    let (open, gate) = channel::<()>();
    let occupy = move |_: &Till| {
        entered.send(()).expect("the test waits");
        gate.recv().expect("the test opens");
    };
    engine.handle().query(occupy, |_| {});
    inside.recv().expect("the writer is occupied");
    let (sender, order) = channel();
    for number in 0..100 {
        let (sender, other) = (sender.clone(), engine.handle().with_sender(2));
        let work = move |_: &Till| {
            sender.send(1).expect("the test listens");
            if number == 0 {
                other.query(move |_: &Till| sender.send(2).expect("the test listens"), |_| {});
                outlast_a_turn();
            }
        };
        post(&engine.handle().with_sender(1), Box::new(work));
    }
    open.send(()).expect("the writer waits");
    let order: Vec<u32> = order.iter().take(101).collect();
    order.iter().position(|sender| *sender == 2).expect("it was answered")
}

#[test]
fn a_costly_read_ends_its_turn() {
    let before = handled_before_another_sender(|handle, work| {
        handle.query(move |till: &Till| work(till), |_| {});
    });
    assert!(before <= 2, "{before} of its messages");
}

#[test]
fn a_costly_dry_run_ends_its_turn() {
    let before = handled_before_another_sender(|handle, work| {
        handle.transact(
            move |till| {
                work(till.machine());
                let _ = till.rehearse(&(), &add(1)).expect("it serves");
            },
            |_| {},
        );
    });
    assert!(before <= 2, "{before} of its messages");
}

#[test]
fn a_long_message_yields_to_others_and_keeps_its_own_order() {
    let journal = memory(1);
    let engine = till(Arc::new(journal.clone()));
    engine.handle().settle().expect("it serves");
    let (sender, answer) = channel();
    let (seen, between) = channel();
    let other = engine.handle().with_sender(2);
    let (mut next, mut replies) = (1, Vec::new());
    engine.handle().with_sender(1).transact_in_turns(
        move |till| {
            if next == 1 {
                let seen = seen.clone();
                other.query(move |till: &Till| seen.send(till.total).expect("listens"), |_| {});
            }
            for _ in 0..10 {
                replies.push(till.execute(&(), &add(next)).expect("it serves").is_ok());
                next += 1;
            }
            (replies.len() == 1000).then(|| std::mem::take(&mut replies))
        },
        move |seen| sender.send(seen).expect("the test listens"),
    );
    let seen = answer.recv().expect("an answer").expect("it serves");
    assert_eq!(seen.value, vec![true; 1000]);
    assert_eq!(seen.position, 1001, "the barrier and a thousand records");
    assert_eq!(between.recv().expect("the other message was handled"), 10, "after the first turn");
    let again = replay_from_genesis(&journal, &TillCodec).expect("the journal is whole").machine;
    assert_eq!(again.total, 1000, "all records were durable when it was answered");
}

#[test]
fn a_long_message_is_not_continued_on_a_state_that_was_rebuilt() {
    let engine = till(Arc::new(memory(1)));
    engine.handle().settle().expect("it serves");
    let (sender, answer) = channel();
    let other = engine.handle().with_sender(2);
    let mut turns = 0;
    engine.handle().with_sender(1).transact_in_turns(
        move |till| {
            turns += 1;
            let _ = till.execute(&(), &add(turns)).expect("it serves");
            other.submit((), Command::PanicApplying, |_| {});
            (turns == 2).then_some(())
        },
        move |seen| sender.send(seen.map(|seen| seen.value)).expect("the test listens"),
    );
    assert_eq!(answer.recv().expect("an answer"), Err(EngineError::OutcomeUnknown));
    let total = engine.handle().read(|till: &Till| (till.total, till.digest()));
    assert_eq!(
        total.expect("it serves").value.0,
        1,
        "the first turn is kept, the second never happened"
    );
}

#[test]
fn a_panic_in_a_later_turn_is_an_unknown_outcome() {
    let engine = till(Arc::new(memory(1)));
    engine.handle().settle().expect("it serves");
    let (sender, answer) = channel();
    let mut turns = 0;
    engine.handle().with_sender(1).transact_in_turns(
        move |till| {
            turns += 1;
            assert!(turns < 2, "the second turn fails");
            let _ = till.execute(&(), &add(turns)).expect("it serves");
            None::<()>
        },
        move |seen| sender.send(seen.map(|seen| seen.value)).expect("the test listens"),
    );
    assert_eq!(answer.recv().expect("an answer"), Err(EngineError::OutcomeUnknown));
    let total = engine.handle().read(|till: &Till| till.total).expect("it serves").value;
    assert_eq!(total, 1, "the first turn is kept");
}

/// Makes `count` timers that can wait due in one message, and posts `ask` after it.
fn arm_patient(till: &mut dyn bursar_engine::Transaction<Till>, count: u64, ask: impl FnOnce()) {
    for id in PATIENT..PATIENT + count {
        let armed = till.execute(&(), &Command::Arm { at: at(0), id });
        assert!(armed.expect("it serves").is_ok());
    }
    ask();
}

#[test]
fn another_sender_is_served_between_steps_of_timers_that_can_wait() {
    let journal = memory(1);
    let engine = till(Arc::new(journal.clone()));
    engine.handle().settle().expect("it serves");
    let (sender, seen) = channel();
    let other = engine.handle().with_sender(2);
    let look = move |till: &Till| {
        let patient = till.rang.iter().filter(|(_, id)| *id >= PATIENT).count();
        let pressing = till.rang.len() - patient;
        sender.send((patient, pressing)).expect("the test listens");
    };
    engine.handle().with_sender(1).transact(
        move |till| {
            arm_patient(till, 1000, || other.query(look, |_| {}));
            let _ = till.execute(&(), &Command::Arm { at: at(0), id: 1 }).expect("it serves");
        },
        |_| {},
    );
    let (patient, pressing) = seen.recv().expect("it was served");
    assert!(patient <= 16, "after {patient} of a thousand steps");
    assert_eq!(pressing, 1, "timers that cannot wait have run before");
    let rang = |till: &Till| till.rang.len();
    engine.handle().settle().expect("it serves");
    assert_eq!(
        engine.handle().read(rang).expect("it serves").value,
        1001,
        "all timers have run once settled"
    );
    let again = replay_from_genesis(&journal, &TillCodec).expect("the journal is whole").machine;
    assert_eq!(again.rang.len(), 1001);
}

#[test]
fn timers_that_can_wait_run_while_the_engine_is_idle() {
    let engine = till(Arc::new(memory(1)));
    let (sender, done) = channel();
    engine.handle().transact(
        |till| arm_patient(till, 1000, || {}),
        move |armed| sender.send(armed.is_ok()).expect("the test listens"),
    );
    assert!(done.recv().expect("an answer"));
    // Only reads the journal, so that no message triggers the timers.
    let durable = engine.durable();
    support::wait_until("all timers have run", || {
        durable.head().is_some_and(|head| head.position >= 2001)
    });
    let rang = engine.handle().read(|till: &Till| till.rang.len());
    assert_eq!(rang.expect("it serves").value, 1000);
}
