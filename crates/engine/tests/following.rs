//! A state that follows the journal of a machine which another process owns, and a takeover that continues from it.

use crate::support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};

use bursar_engine::{
    Codec, Engine, EngineOptions, NotPermitted, Observer, Permit, Replayed, Status, Trouble, replay,
};
use bursar_journal::memory::{Fault, MemoryJournal, Survivors};
use bursar_journal::{Batch, Head, Journal, Snapshot};
use support::till::{Command, Till, TillCodec};
use support::{at, manual_clock, memory, options, wait_until};

/// A server that may own the till while its flag is set.
struct Server {
    may_own: Arc<AtomicBool>,
    engine: Engine<TillCodec>,
    troubles: Receiver<Trouble>,
}

impl Server {
    fn start(journal: &MemoryJournal, name: &str, owns: bool) -> Server {
        Server::with(journal, name, owns, true)
    }

    fn with(journal: &MemoryJournal, name: &str, owns: bool, follow: bool) -> Server {
        let may_own = Arc::new(AtomicBool::new(owns));
        let asked = Arc::clone(&may_own);
        let permit = Permit::new(move || {
            asked.load(Ordering::SeqCst).then_some(()).ok_or(NotPermitted("another leads"))
        });
        let (said, troubles) = channel();
        let observer = Observer::new(|_| {}).with_trouble(move |trouble| {
            // The test may have ended.
            let _ = said.send(trouble);
        });
        let options = EngineOptions { permit, follow, observer, ..options(name) };
        let (journal, clock) = (Arc::new(journal.clone()), manual_clock());
        let engine = Engine::start(journal, Arc::new(TillCodec), clock, options);
        Server { may_own, engine, troubles }
    }

    fn add(&self, id: u64) {
        let add = Command::Add { id, amount: 1 };
        self.engine.handle().execute((), add).expect("it serves").value.expect("accepted");
    }

    /// The batch that its followed state ends with.
    fn followed(&self) -> Option<Head> {
        self.engine.followed().look(|_, head| head)
    }

    fn until_followed(&self, journal: &MemoryJournal) {
        let head = journal.head().expect("memory");
        wait_until("it has followed", || self.followed() == Some(head));
    }

    /// It may own the till no more, or from now on.
    fn let_own(&self, journal: &MemoryJournal, owns: bool) {
        self.may_own.store(owns, Ordering::SeqCst);
        if owns {
            journal.expire_lease();
            wait_until("it serves", || self.engine.status() == Status::Serving);
        } else {
            let waits = || matches!(self.engine.status(), Status::Waiting(_));
            wait_until("it is deposed", || {
                // A request makes it notice.
                let _refused = self.engine.handle().read(|till: &Till| till.total);
                waits()
            });
        }
    }

    fn total(&self) -> i64 {
        self.engine.handle().read(|till: &Till| till.total).expect("it serves").value
    }
}

#[test]
fn a_takeover_continues_from_the_state_that_followed_and_so_does_the_way_back() {
    let journal = memory(1);
    let servers = [Server::start(&journal, "a", true), Server::start(&journal, "b", false)];
    let mut added = 0;
    for turn in 0..4 {
        let (owner, other) = (&servers[turn % 2], &servers[1 - turn % 2]);
        for _ in 0..10 {
            added += 1;
            owner.add(added);
        }
        other.until_followed(&journal);
        assert!(owner.followed().is_none(), "an owner has one state");
        owner.let_own(&journal, false);
        other.let_own(&journal, true);
        assert_eq!(other.total(), i64::try_from(added).expect("few"));
        assert!(other.followed().is_none(), "an owner has one state");
    }
    // The first owner found an empty journal.
    let continued = servers.each_ref().map(|server| server.engine.stats().continued);
    assert_eq!(continued, [2, 2]);
    let replayed = replay(&journal, &TillCodec).expect("whole");
    assert_eq!(replayed.machine.total, i64::try_from(added).expect("few"));
}

#[test]
fn a_state_that_followed_a_lost_batch_is_dropped_and_the_journal_replayed() {
    let journal = memory(1);
    let owner = Server::start(&journal, "a", true);
    (1..=5).for_each(|id| owner.add(id));
    owner.engine.stop();
    let standby = Server::start(&journal, "b", false);
    standby.until_followed(&journal);
    // A batch that is seen and not durable.
    let lease = journal.acquire_lease("a", options("a").lease_ttl).expect("it is free");
    let before = journal.head().expect("memory");
    journal.inject(0, Fault::UnknownNotSynced);
    assert!(journal.append(lease.epoch, before, Batch::barrier(at(1))).is_err());
    standby.until_followed(&journal);
    let lost = standby.followed();
    journal.crash(Survivors { whole: 0, torn: false });
    journal.reopen().expect("memory");
    journal.expire_lease();
    let lease = journal.acquire_lease("c", options("c").lease_ttl).expect("it is free");
    let other = journal.append(lease.epoch, before, Batch::barrier(at(2))).expect("memory");
    assert_ne!(lost, Some(other));
    standby.let_own(&journal, true);
    assert_eq!((standby.total(), standby.engine.stats().continued), (5, 0));
    let dropped = |trouble| matches!(trouble, Trouble::NotFollowed(_));
    assert!(standby.troubles.try_iter().any(dropped), "it says so");
}

fn put_snapshot(journal: &MemoryJournal, of: &MemoryJournal) {
    let Replayed { machine, head, .. } = replay(of, &TillCodec).expect("whole");
    let state = TillCodec.encode_state(&machine);
    journal.put_snapshot(&Snapshot { head, state }).expect("memory");
}

#[test]
fn a_takeover_begins_with_a_snapshot_that_is_far_ahead_of_the_state_that_followed() {
    let journal = memory(1);
    let owner = Server::start(&journal, "a", true);
    owner.add(1);
    let standby = Server::start(&journal, "b", false);
    standby.until_followed(&journal);
    let followed = standby.engine.followed();
    (2..=1_200).for_each(|id| owner.add(id));
    put_snapshot(&journal, &journal);
    let newest = journal.list_snapshots().expect("memory")[0].sequence;
    assert!(newest > 1_000);
    owner.engine.stop();
    assert!(followed.read_all(&journal, &TillCodec));
    assert_eq!(followed.look(|till, _| till.total), Some(1_200));
}

#[test]
fn no_state_begins_before_the_first_batch_while_no_snapshot_can_be_used() {
    let (journal, other) = (memory(1), memory(1));
    for (id, journal) in [(1, &journal), (2, &other)] {
        let owner = Server::start(journal, "a", true);
        owner.add(id);
        owner.engine.stop();
    }
    // A snapshot of another history.
    put_snapshot(&journal, &other);
    let standby = Server::start(&journal, "b", false);
    let trouble = standby.troubles.recv().expect("it says so");
    assert!(matches!(&trouble, Trouble::NotFollowed(why) if why.contains("another history")));
    assert!(standby.followed().is_none());
    standby.let_own(&journal, true);
    assert_eq!((standby.total(), standby.engine.stats().continued), (1, 0));
}

#[test]
fn a_state_goes_on_from_a_snapshot_and_nothing_follows_if_that_is_switched_off() {
    let journal = memory(1);
    let owner = Server::start(&journal, "a", true);
    let without = Server::with(&journal, "b", false, false);
    (1..=5).for_each(|id| owner.add(id));
    put_snapshot(&journal, &journal);
    owner.add(6);
    let standby = Server::start(&journal, "c", false);
    standby.until_followed(&journal);
    assert_eq!(standby.engine.followed().look(|till, _| till.total), Some(6));
    assert!(without.followed().is_none());
    owner.let_own(&journal, false);
    without.let_own(&journal, true);
    assert_eq!((without.total(), without.engine.stats().continued), (6, 0));
}
