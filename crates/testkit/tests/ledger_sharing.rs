//! A copy that follows a ledger and takes its blocks stays equal to it, and neither changes the other.

use bursar_core::digest::Digest;
use bursar_core::ledger::sharing::{BlockPlace, SharedBlocks};
use bursar_core::ledger::{Event, Ledger, invariant};
use bursar_core::machine::{Machine, advance, execute};
use bursar_core::time::Timestamp;
use bursar_testkit::generate::{Random, chaos};

const WORLDS: u64 = 60;
const COMMANDS: usize = 400;
/// How many events the copy is behind at most.
const MAX_BEHIND: usize = 30;

/// A ledger and the copy that follows it.
struct World {
    random: Random,
    now: Timestamp,
    ledger: Ledger,
    journal: Vec<(Timestamp, Event)>,
    copy: Ledger,
    /// Events that the copy has applied.
    applied: usize,
    next: BlockPlace,
    /// Blocks that the copy takes after so many events, and the digest of the ledger there.
    pending: Option<(usize, SharedBlocks, Digest)>,
    taken: usize,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        World {
            now: Timestamp::from_millis(random.between(0, 2_000_000_000_000)),
            random,
            ledger: Ledger::new(),
            journal: Vec::new(),
            copy: Ledger::new(),
            applied: 0,
            next: BlockPlace::default(),
            pending: None,
            taken: 0,
        }
    }

    fn step(&mut self) {
        self.now = self.now.plus_millis(self.random.between(0, 20_000_000));
        let journal = &mut self.journal;
        advance(&mut self.ledger, self.now, |at, events| {
            journal.extend(events.iter().map(|event| (at, event.clone())));
        });
        let (envelope, command) = chaos(&mut self.random, self.now);
        if self.random.chance(5) {
            // A group that is rolled back leaves no trace in shared blocks.
            self.ledger.begin_group();
            let _ = execute(&mut self.ledger, self.now, &envelope, &command, &mut Vec::new());
            self.ledger.rollback_group();
        }
        let mut events = Vec::new();
        let _ = execute(&mut self.ledger, self.now, &envelope, &command, &mut events);
        self.journal.extend(events.into_iter().map(|event| (self.now, event)));
        if self.pending.is_none() && self.random.chance(30) {
            let (blocks, next) = self.ledger.shared_blocks(self.next);
            self.pending = Some((self.journal.len(), blocks, self.ledger.digest()));
            self.next = next;
        }
        self.follow();
        if self.random.chance(2) {
            self.copy = self.ledger.clone();
            self.applied = self.journal.len();
            self.pending = None;
        }
    }

    /// Applies some of the journal to the copy.
    fn follow(&mut self) {
        let behind = self.random.index(MAX_BEHIND);
        loop {
            match self.pending.take() {
                Some((at, blocks, digest)) if at == self.applied => {
                    assert_eq!(self.copy.share(blocks), Ok(()));
                    assert_eq!(self.copy.digest(), digest);
                    invariant::check(&self.copy).expect("the copy is whole");
                    self.taken += 1;
                }
                pending => self.pending = pending,
            }
            if self.applied + behind >= self.journal.len() {
                return;
            }
            let (at, event) = &self.journal[self.applied];
            self.copy.apply(*at, event);
            self.applied += 1;
        }
    }
}

#[test]
fn a_copy_that_takes_blocks_of_the_ledger_stays_equal_to_it() {
    let mut taken = 0;
    for seed in 0..WORLDS {
        let mut world = World::new(seed);
        (0..COMMANDS).for_each(|_| world.step());
        let rest = &world.journal[world.applied..];
        rest.iter().for_each(|(at, event)| world.copy.apply(*at, event));
        let mut replica = Ledger::new();
        world.journal.iter().for_each(|(at, event)| replica.apply(*at, event));
        assert_eq!(world.ledger.digest(), replica.digest(), "world {seed}: the ledger");
        assert_eq!(world.copy.digest(), replica.digest(), "world {seed}: the copy");
        invariant::check(&world.ledger).expect("the ledger is whole");
        taken += world.taken;
    }
    assert!(taken > WORLDS as usize * 20, "{taken} pieces");
}

#[test]
fn a_copy_shares_all_blocks_again_after_one_round() {
    let mut world = World::new(7);
    (0..COMMANDS).for_each(|_| world.step());
    let mut copy = Ledger::new();
    world.journal.iter().for_each(|(at, event)| copy.apply(*at, event));
    let (shared, all) = copy.shared_with(&world.ledger);
    assert!(shared == 0 && all > 0, "{shared} of {all}");
    let mut next = BlockPlace::default();
    loop {
        let (blocks, then) = world.ledger.shared_blocks(next);
        assert_eq!(copy.share(blocks), Ok(()));
        next = then;
        if next == BlockPlace::default() {
            break;
        }
    }
    assert_eq!(copy.shared_with(&world.ledger), (all, all));
    let digest = copy.digest();
    assert_eq!(digest, world.ledger.digest());
    (0..COMMANDS).for_each(|_| world.step());
    assert_eq!(copy.digest(), digest, "changes of the ledger do not reach the copy");
}
