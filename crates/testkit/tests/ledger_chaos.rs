//! Arbitrary commands never make the ledger panic or violate an invariant.

use bursar_core::ledger::holds::archive::ArchivedHold;
use bursar_core::ledger::id::HoldNo;
use bursar_core::ledger::{Command, Envelope, Event, Ledger, invariant};
use bursar_core::machine::{Machine, advance, execute};
use bursar_core::time::Timestamp;
use bursar_testkit::generate::{Random, chaos};

const WORLDS: u64 = 250;
const COMMANDS: usize = 1000;
/// The number of commands between two rollbacks.
const ROLLBACK_EVERY: usize = 25;

/// A ledger, its journal, and the archived records of its closed holds.
struct World {
    random: Random,
    ledger: Ledger,
    now: Timestamp,
    journal: Vec<(Timestamp, Event)>,
    history: Vec<ArchivedHold>,
    accepted: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let now = match random.index(10) {
            0 => Timestamp::MIN,
            1 => Timestamp::MAX.plus_millis(-random.between(0, 1_000_000_000)),
            _ => Timestamp::from_millis(random.between(-1_000, 2_000_000_000_000)),
        };
        let (ledger, journal, history) = (Ledger::new(), Vec::new(), Vec::new());
        World { random, ledger, now, journal, history, accepted: 0 }
    }

    fn step(&mut self, number: usize) {
        self.now = self.now.plus_millis(pause(&mut self.random));
        let journal = &mut self.journal;
        advance(&mut self.ledger, self.now, |at, events| {
            journal.extend(events.iter().map(|event| (at, event.clone())));
        });
        if number.is_multiple_of(ROLLBACK_EVERY) {
            self.check_rollback();
        }
        let (envelope, command) = self.random_command();
        let mut events = Vec::new();
        let answer = execute(&mut self.ledger, self.now, &envelope, &command, &mut events);
        self.accepted += u64::from(answer.is_ok());
        let now = self.now;
        self.journal.extend(events.into_iter().map(|event| (now, event)));
        if let Err(violation) = invariant::check(&self.ledger) {
            panic!("command {number}: {violation} after {command:?}");
        }
        let hold = HoldNo(u32::try_from(self.random.index(20)).unwrap_or(0));
        self.history.extend(self.ledger.archive(hold));
    }

    /// Any command; sometimes one that restores a closed hold, unchanged or not.
    fn random_command(&mut self) -> (Envelope, Command) {
        let (envelope, command) = chaos(&mut self.random, self.now);
        if self.history.is_empty() || !self.random.chance(5) {
            return (envelope, command);
        }
        let mut record = self.random.pick(&self.history).clone();
        if self.random.chance(10) {
            record.hold.captured ^= 1;
        }
        (envelope, Command::RestoreHold { record: Box::new(record) })
    }

    /// Executes a few commands and rolls them back. No effect may remain.
    fn check_rollback(&mut self) {
        let before = self.ledger.digest();
        self.ledger.begin_group();
        for _ in 0..3 {
            let (envelope, command) = self.random_command();
            // A shorter retention would make timers due, which run only between commands.
            if !matches!(command, Command::SetPolicy(_)) {
                let _ = execute(&mut self.ledger, self.now, &envelope, &command, &mut Vec::new());
            }
        }
        self.ledger.rollback_group();
        assert_eq!(self.ledger.digest(), before, "a rollback left an effect");
    }
}

#[test]
fn arbitrary_commands_neither_panic_nor_break_laws() {
    let mut accepted = 0;
    for seed in 0..WORLDS {
        let mut world = World::new(seed);
        (0..COMMANDS).for_each(|number| world.step(number));
        let mut replica = Ledger::new();
        world.journal.iter().for_each(|(at, event)| replica.apply(*at, event));
        assert_eq!(
            replica.digest(),
            world.ledger.digest(),
            "world {seed}: replay gives another state"
        );
        accepted += world.accepted;
    }
    println!("{accepted} of {} commands were accepted", WORLDS * COMMANDS as u64);
}

/// A pause in milliseconds: mostly none, often short, rarely centuries.
fn pause(random: &mut Random) -> i64 {
    match random.index(100) {
        0..=59 => 0,
        60..=79 => random.between(0, 5),
        80..=97 => random.between(0, 100_000_000),
        98 => random.between(0, 100_000_000_000),
        _ => random.between(0, 10_000_000_000_000),
    }
}
