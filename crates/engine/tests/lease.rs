//! How long a lease is trusted.

use crate::support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use bursar_engine::{
    Engine, EngineError, EngineOptions, LeaseTrust, Monotonic, NotPermitted, Observer, Permit,
    Status, Transaction, Trouble,
};
use bursar_journal::LeaseError;
use bursar_journal::memory::MemoryJournal;
use support::till::{Command, Till, TillCodec};
use support::{manual_clock, memory, options, wait_until};

/// A monotonic clock that the test moves, in milliseconds.
#[derive(Default)]
struct Stepped(AtomicU64);

impl Monotonic for Stepped {
    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
}

#[test]
fn a_lease_is_trusted_for_two_thirds_of_its_time() {
    let journal = memory(1);
    let clock = Arc::new(Stepped::default());
    let ttl = Duration::from_millis(900);
    let trust = LeaseTrust::acquire(&journal, Arc::clone(&clock) as Arc<dyn Monotonic>, "a", ttl)
        .expect("it is free");
    assert!(trust.holds());
    clock.0.store(599, Ordering::SeqCst);
    assert!(trust.holds());
    clock.0.store(600, Ordering::SeqCst);
    assert!(!trust.holds(), "another server may get it soon");
    trust.renew(&journal).expect("no other server has taken it");
    clock.0.store(1_199, Ordering::SeqCst);
    assert!(trust.holds());
    journal.expire_lease();
    let next = LeaseTrust::acquire(&journal, clock, "b", ttl).expect("it expired");
    let lost = trust.renew(&journal);
    assert_eq!(lost, Err(LeaseError::Lost { epoch: trust.lease().epoch }));
    assert!(trust.has_ended() && !trust.holds() && next.holds());
}

/// An engine whose lease is timed by a clock of the test.
fn engine(
    journal: &MemoryJournal,
    clock: &Arc<Stepped>,
    options: EngineOptions,
) -> Engine<TillCodec> {
    Engine::start_with(
        Arc::new(journal.clone()),
        Arc::new(TillCodec),
        manual_clock(),
        Arc::clone(clock) as Arc<dyn Monotonic>,
        options,
    )
}

#[test]
fn a_pause_longer_than_the_lease_is_harmless_if_the_lease_can_still_be_renewed() {
    let journal = memory(1);
    let clock = Arc::new(Stepped::default());
    let engine = engine(&journal, &clock, options("test"));
    engine.handle().settle().expect("it serves");
    clock.0.store(60_000, Ordering::SeqCst);
    assert_ne!(engine.status(), Status::Serving, "nothing was renewed yet");
    let read = engine.handle().read(|till: &Till| till.total);
    assert_eq!(read.expect("the lease is still ours").value, 0);
    assert_eq!((engine.status(), engine.stats().rebuilds), (Status::Serving, 1));
}

#[test]
fn expired_trust_ends_the_session_and_serving_resumes_without_a_write() {
    let journal = memory(1);
    let clock = Arc::new(Stepped::default());
    let ttl = Duration::from_millis(60);
    let (trouble, troubles) = channel();
    let observer = Observer::default().with_trouble(move |what| drop(trouble.send(what)));
    let options = EngineOptions { lease_ttl: ttl, observer, ..options("test") };
    let engine = engine(&journal, &clock, options);
    engine.handle().settle().expect("it serves");
    let before = engine.tenure().expect("it serves");
    journal.cut_off(true);
    clock.0.store(60_000, Ordering::SeqCst);
    let unreachable =
        |status: &Status| matches!(status, Status::Waiting(why) if why.contains("does not answer"));
    wait_until("the status says why it does not serve", || unreachable(&engine.status()));
    assert!(!before.holds(), "earlier reads are no longer current");
    let read = engine.handle().read(|till: &Till| till.total);
    assert!(matches!(read, Err(EngineError::Unavailable(_))), "{read:?}");
    let trouble = troubles.recv().expect("renewals that fail are reported");
    assert!(matches!(trouble, Trouble::LeaseNotRenewed(_)), "{trouble:?}");
    journal.cut_off(false);
    wait_until("it serves again", || engine.status() == Status::Serving);
    let read = engine.handle().read(|till: &Till| till.total);
    assert_eq!((read.expect("it serves").value, engine.stats().rebuilds), (0, 2));
    assert!(!before.holds() && engine.tenure().is_some_and(|trust| trust.holds()));
}

#[test]
fn a_write_that_was_not_fenced_is_acknowledged_though_its_lease_expired_meanwhile() {
    let journal = memory(1);
    let clock = Arc::new(Stepped::default());
    let engine = engine(&journal, &clock, options("test"));
    let handle = engine.handle();
    handle.settle().expect("it serves");
    journal.hold_appends();
    let ((decide, decided), (answer, answers)) = (channel(), channel());
    let work = move |till: &mut dyn Transaction<Till>| {
        let said = till.execute(&(), &Command::Add { id: 1, amount: 1 });
        decide.send(()).expect("the test listens");
        said
    };
    handle.transact(work, move |said| drop(answer.send(said)));
    decided.recv().expect("it was decided");
    journal.cut_off(true);
    clock.0.store(60_000, Ordering::SeqCst);
    journal.release_appends();
    let written = answers.recv().expect("an answer");
    assert!(written.is_ok(), "its append was not fenced, so it happened: {written:?}");
    let read = handle.read(|till: &Till| till.total);
    assert!(matches!(read, Err(EngineError::Unavailable(_))), "{read:?}");
}

#[test]
fn without_a_permit_no_lease_is_taken_and_a_taken_lease_is_released() {
    let journal = memory(1);
    let allowed = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&allowed);
    let permit = Permit::new(move || {
        if asked.load(Ordering::SeqCst) {
            Ok(())
        } else {
            Err(NotPermitted("another server leads"))
        }
    });
    let ttl = Duration::from_secs(2);
    let first = EngineOptions { permit, lease_ttl: ttl, ..options("first") };
    let first = engine(&journal, &Arc::default(), first);
    let waits = || first.status() == Status::Waiting("another server leads".into());
    wait_until("it waits for its permit", waits);
    allowed.store(true, Ordering::SeqCst);
    wait_until("it serves", || first.status() == Status::Serving);
    let second = engine(&journal, &Arc::default(), options("second"));
    wait_until("the second waits", || matches!(second.status(), Status::Waiting(_)));
    allowed.store(false, Ordering::SeqCst);
    assert_ne!(first.status(), Status::Serving, "from this moment on");
    let refused = first.handle().read(|till: &Till| till.total);
    assert!(matches!(refused, Err(EngineError::Unavailable(_))), "{refused:?}");
    wait_until("the second serves", || second.status() == Status::Serving);
    assert!(waits());
}
