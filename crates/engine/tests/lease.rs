//! How long a lease is believed.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bursar_engine::{Engine, EngineError, LeaseTrust, Monotonic};
use bursar_journal::LeaseError;
use support::till::{Command, Till, TillCodec};
use support::{manual_clock, memory, options};

/// A monotonic clock that the test moves, in milliseconds.
#[derive(Default)]
struct Stepped(AtomicU64);

impl Monotonic for Stepped {
    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
}

#[test]
fn a_lease_is_believed_for_two_thirds_of_its_time() {
    let journal = memory(1);
    let clock = Arc::new(Stepped::default());
    let ttl = Duration::from_millis(900);
    let trust = LeaseTrust::acquire(&journal, Arc::clone(&clock) as Arc<dyn Monotonic>, "a", ttl)
        .expect("it is free");
    assert!(trust.holds());
    clock.0.store(599, Ordering::SeqCst);
    assert!(trust.holds());
    clock.0.store(600, Ordering::SeqCst);
    assert!(!trust.holds(), "somebody else may get it soon");
    trust.renew(&journal).expect("nobody has taken it");
    clock.0.store(1_199, Ordering::SeqCst);
    assert!(trust.holds());
    journal.expire_lease();
    let next = LeaseTrust::acquire(&journal, clock, "b", ttl).expect("it ran out");
    let lost = trust.renew(&journal);
    assert_eq!(lost, Err(LeaseError::Lost { epoch: trust.lease().epoch }));
    assert!(trust.is_lost() && !trust.holds() && next.holds());
}

#[test]
fn a_read_outside_the_lease_is_refused_and_a_write_is_still_true() {
    let journal = memory(1);
    let clock = Arc::new(Stepped::default());
    let engine = Engine::start_with(
        Arc::new(journal.clone()),
        Arc::new(TillCodec),
        manual_clock(),
        Arc::clone(&clock) as Arc<dyn Monotonic>,
        options("test"),
    );
    let handle = engine.handle();
    handle.settle().expect("it serves");
    // A pause longer than the lease, in which no renewal came through.
    clock.0.store(60_000, Ordering::SeqCst);
    let read = handle.read(|till: &Till| till.total);
    assert!(matches!(read, Err(EngineError::Unavailable(_))), "{read:?}");
    let write = handle.execute((), Command::Add { id: 1, amount: 1 });
    assert!(write.is_ok(), "its append was not fenced, so it happened: {write:?}");
    let repeated = handle.execute((), Command::Add { id: 1, amount: 1 });
    assert!(matches!(repeated, Err(EngineError::Unavailable(_))), "it only reads: {repeated:?}");
}
