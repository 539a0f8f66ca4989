//! What was shown stays: over a power failure, at a follower, at another machine.

use crate::support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bursar_core::machine::Machine;
use bursar_core::message::Mark;
use bursar_engine::clock::Readings;
use bursar_engine::courier::{Courier, EngineInbox, Inbox, SentMessage};
use bursar_engine::follower::{Follower, Projection};
use bursar_engine::{
    Clock, Durable, Engine, EngineError, LeaseTrust, Monotonic, WallClock, replay_from_genesis,
};
use bursar_journal::memory::{Fault, MemoryJournal, Survivors};
use bursar_journal::{Head, Journal, Record};
use support::parcel::{Parcel, ParcelCodec, Take};
use support::till::{Command, Event, Parcels, Till, TillCodec};
use support::{manual_clock, memory, options, till, wait_until};

fn add(id: u64) -> Command {
    Command::Add { id, amount: 1 }
}

/// Adds `ids`, each in a batch of its own, and stops.
fn filled(ids: std::ops::RangeInclusive<u64>) -> MemoryJournal {
    let journal = memory(1);
    let engine = till(Arc::new(journal.clone()));
    for id in ids {
        let command = Command::Send { id, amount: 1 };
        engine.handle().execute((), command).expect("it serves").value.expect("accepted");
    }
    engine.stop();
    journal
}

#[test]
fn what_a_new_owner_shows_of_an_unknown_append_survives_a_power_failure() {
    let journal = memory(1);
    let engine = till(Arc::new(journal.clone()));
    engine.handle().settle().expect("it serves");
    journal.inject(0, Fault::UnknownNotSynced);
    assert_eq!(engine.handle().execute((), add(1)), Err(EngineError::OutcomeUnknown));
    let shown = || engine.handle().read(|till: &Till| till.total).map(|seen| seen.value);
    wait_until("it serves again", || shown().is_ok());
    assert_eq!(shown(), Ok(1), "the batch is in the journal");
    journal.crash(Survivors { whole: 0, torn: false });
    let kept = replay_from_genesis(&journal, &TillCodec).expect("the journal is whole");
    assert_eq!(kept.machine.total, 1, "the barrier made it durable before it was shown");
}

/// A monotonic clock that the test moves, in milliseconds.
#[derive(Default)]
struct Moved(AtomicU64);

impl Monotonic for Moved {
    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
}

#[test]
fn a_read_is_refused_once_another_server_owns_the_machine() {
    let journal = memory(1);
    let clock = Arc::new(Moved::default());
    let paused = Engine::start_with(
        Arc::new(journal.clone()),
        Arc::new(TillCodec),
        manual_clock(),
        Arc::clone(&clock) as Arc<dyn Monotonic>,
        options("paused"),
    );
    paused.handle().execute((), add(1)).expect("it serves").value.expect("accepted");
    clock.0.store(600_000, Ordering::SeqCst);
    journal.expire_lease();
    let ttl = Duration::from_secs(600);
    let next = LeaseTrust::acquire(&journal, Arc::new(Moved::default()), "next", ttl);
    assert!(next.is_ok_and(|next| next.holds()));
    let read = paused.handle().read(|till: &Till| till.total);
    assert!(matches!(read, Err(EngineError::Unavailable(_))), "{read:?}");
}

/// Counts the additions that it was shown.
struct Counted {
    head: Head,
    seen: Arc<Mutex<usize>>,
}

impl Projection<Till> for Counted {
    fn head(&self) -> Head {
        self.head
    }

    fn record(&mut self, _record: &Record<'_>, events: &[Event]) {
        let added = events.iter().filter(|event| matches!(event, Event::Added { .. })).count();
        *self.seen.lock().expect("no panic") += added;
    }

    fn batch(&mut self, head: Head) {
        self.head = head;
    }
}

#[test]
fn a_follower_shows_nothing_beyond_the_durable_head() {
    let journal = filled(1..=5);
    let seen = Arc::new(Mutex::new(0));
    let genesis = Head::genesis(journal.id());
    let durable = Arc::new(Durable::new());
    let (shared, projection) =
        (Arc::clone(&seen), Counted { head: genesis, seen: Arc::clone(&seen) });
    let codec = Arc::new(TillCodec);
    let follower =
        Follower::start(Arc::new(journal.clone()), codec, Arc::clone(&durable), projection);
    // The barrier and two additions.
    durable.publish(journal.head_at(3).expect("there are six batches"));
    let followed = follower.followed();
    wait_until("it follows", || followed.head().is_some_and(|head| head.sequence >= 3));
    durable.close();
    follower.join();
    assert_eq!(*shared.lock().expect("no panic"), 2);
}

fn parcel() -> Engine<ParcelCodec> {
    let journal = Arc::new(memory(2));
    Engine::start(journal, Arc::new(ParcelCodec), manual_clock(), options("receiver"))
}

fn inbox(receiver: &Engine<ParcelCodec>) -> impl Inbox<i64> + use<> {
    let mark = |parcel: &Parcel| -> Mark { parcel.mark };
    EngineInbox::new(receiver.handle(), |sent| ((), Take(sent)), mark)
}

fn courier<I: Inbox<i64>>(sender: MemoryJournal, inbox: I) -> Courier<TillCodec, Parcels, I> {
    Courier::new(Arc::new(sender), Arc::new(TillCodec), Parcels, inbox)
}

#[test]
fn a_courier_sends_nothing_beyond_the_durable_head() {
    let sender = filled(1..=5);
    let receiver = parcel();
    let until = sender.head_at(3).expect("there are six batches");
    let mut courier = courier(sender, inbox(&receiver));
    while courier.step(until).expect("it serves") > 0 {}
    let mark = receiver.handle().read(|parcel: &Parcel| parcel.mark).expect("it serves").value;
    assert_eq!((mark.number, mark.position), (2, until.position));
}

/// An inbox that takes one message of each delivery.
struct FirstOnly<I>(I);

impl<I: Inbox<i64>> Inbox<i64> for FirstOnly<I> {
    fn mark(&mut self) -> Result<Mark, EngineError> {
        self.0.mark()
    }

    fn deliver(&mut self, mut messages: Vec<SentMessage<i64>>) -> Result<Mark, EngineError> {
        messages.truncate(1);
        self.0.deliver(messages)
    }
}

#[test]
fn a_courier_sends_again_what_was_not_taken() {
    let sender = filled(1..=5);
    let receiver = parcel();
    let until = sender.head().expect("memory");
    let mut courier = courier(sender, FirstOnly(inbox(&receiver)));
    while courier.step(until).expect("it serves") > 0 {}
    let mark = receiver.handle().read(|parcel: &Parcel| parcel.mark).expect("it serves").value;
    assert_eq!(mark.number, 5);
}

#[test]
fn a_timer_does_not_run_because_the_clock_jumped() {
    const DAY: i64 = 86_400_000;
    let journal = memory(1);
    let readings = Arc::new(Mutex::new(Readings { wall: 1_000_000, monotonic: 0 }));
    let shared = Arc::clone(&readings);
    let clock = WallClock::with_readings(move || *shared.lock().expect("no panic"));
    let engine = Engine::start(
        Arc::new(journal),
        Arc::new(TillCodec),
        Arc::new(clock) as Arc<dyn Clock>,
        options("test"),
    );
    let in_an_hour = bursar_core::time::Timestamp::from_millis(1_000_000 + 3_600_000);
    let arm = Command::Arm { at: in_an_hour, id: 1 };
    engine.handle().execute((), arm).expect("it serves").value.expect("accepted");
    readings.lock().expect("no panic").wall += DAY;
    engine.handle().execute((), add(1)).expect("it serves").value.expect("accepted");
    let seen = engine.handle().read(|till: &Till| (till.rang.clone(), till.now()));
    let (rang, now) = seen.expect("it serves").value;
    assert_eq!(rang, []);
    assert!(now < in_an_hour);
}
