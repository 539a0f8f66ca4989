//! A creation whose id was looked up before it was forgotten is looked up again: it has one effect.

#![allow(clippy::unwrap_used, reason = "the steps before the one under test must succeed")]

use bursar_core::credits::Credits;
use bursar_core::ledger::command::{
    AccountKind, AccountSettings, Cause, Charge, Context, IssueGrant, PlaceHold, Refund, RefundOf,
    Transfer, Usage,
};
use bursar_core::ledger::refusal::Resource;
use bursar_core::ledger::{Accepted, Command, Envelope, Ledger, Refusal, invariant};
use bursar_core::machine::{Machine, advance, execute};
use bursar_core::time::Timestamp;

use crate::ledger_builders::{short_memory, submission};

const HOUR_MS: i64 = 3_600_000;
/// The position of an archive that is not built.
const NOT_BUILT: u64 = 0;
/// That of one that was built from the first record.
const BUILT: u64 = 1;

fn credits(whole: i64) -> Credits {
    Credits::from_whole(whole).unwrap()
}

struct World {
    ledger: Ledger,
    now: Timestamp,
}

impl World {
    /// An account with credits, a part of it that owes some, and short memory.
    fn new() -> World {
        let now = Timestamp::from_millis(1_767_225_600_000);
        let mut world = World { ledger: Ledger::new(), now };
        world.ledger.forget_by_age();
        let policy = short_memory();
        world.make(Command::SetPolicy(policy));
        for (path, kind) in [("acme", AccountKind::Org), ("acme:nlp", AccountKind::Team)] {
            let settings = AccountSettings::default();
            world.make(Command::OpenAccount { path: path.into(), kind, settings });
        }
        world.make(Command::OpenRegion { region: "eu".into(), shard: 1 });
        world.grant("first", "acme:nlp", 1);
        world.make(place("owed", "acme:nlp", 1));
        world.make(settle("owed", 3));
        world.grant("paid", "acme", 100);
        world
    }

    fn grant(&mut self, id: &str, account: &str, whole: i64) {
        self.make(Command::IssueGrant(IssueGrant::purchase(id, account, credits(whole))));
    }

    fn make(&mut self, command: Command) {
        self.ask(&command, None).unwrap();
    }

    fn ask(&mut self, command: &Command, archive: Option<u64>) -> Result<Accepted, Refusal> {
        advance(&mut self.ledger, self.now, |_, _| {});
        let envelope = Envelope { fingerprint: 7, archive, ..Envelope::default() };
        let mut events = Vec::new();
        let answer = execute(&mut self.ledger, self.now, &envelope, command, &mut events);
        invariant::check(&self.ledger).unwrap();
        answer.map_err(|refused| refused.refusal)
    }

    fn wait(&mut self, hours: i64) {
        self.now = self.now.plus_millis(hours * HOUR_MS);
        advance(&mut self.ledger, self.now, |_, _| {});
    }
}

fn place(id: &str, account: &str, whole: i64) -> Command {
    Command::PlaceHold(PlaceHold {
        ttl_ms: Some(HOUR_MS),
        ..PlaceHold::new(id, account, credits(whole))
    })
}

fn settle(hold: &str, whole: i64) -> Command {
    let usage = Usage::Total(credits(whole));
    Command::SettleHold { tenant: "acme".into(), hold: hold.into(), usage, cause: Cause::Holder }
}

fn charge(id: &str) -> Command {
    Command::Charge(Charge {
        id: id.into(),
        account: "acme".into(),
        amount: credits(5),
        allow_partial: false,
        context: Context::default(),
        effective_at: None,
    })
}

fn refund(id: &str, of: &str) -> Command {
    Command::Refund(Refund {
        id: id.into(),
        tenant: "acme".into(),
        of: RefundOf::Charge(of.into()),
        amount: Some(credits(1)),
        compensate: false,
        note: None,
        recalled: Vec::new(),
    })
}

fn submit(id: &str) -> Command {
    Command::SubmitJob(Box::new(submission(id, &format!("hold-{id}"), credits(2))))
}

/// Creations under ids, each with what must come before it and what closes it.
fn creations() -> Vec<(Resource, Vec<Command>, Command, Vec<Command>)> {
    let cancel = |job: &str| Command::CancelJob { tenant: "acme".into(), job: job.into() };
    let (from, to) = ("acme".into(), "acme:nlp".into());
    let transfer =
        Command::Transfer(Transfer { id: "t".into(), from, to, amount: credits(3), note: None });
    let collect = Command::CollectUncollected { path: "acme:nlp".into(), id: "x".into() };
    vec![
        (Resource::Hold, vec![], place("h", "acme", 4), vec![settle("h", 2)]),
        (Resource::Charge, vec![], charge("c"), vec![]),
        (Resource::Refund, vec![charge("c")], refund("r", "c"), vec![]),
        (Resource::Transfer, vec![], transfer, vec![]),
        (Resource::Collection, vec![], collect, vec![]),
        (Resource::Job, vec![], submit("j"), vec![cancel("j")]),
    ]
}

#[test]
fn a_repeat_that_was_looked_up_before_it_was_forgotten_is_looked_up_again() {
    for (kind, before, creation, after) in creations() {
        let mut world = World::new();
        for command in before {
            world.make(command);
        }
        // Nothing was forgotten: it need not be looked up.
        world.ask(&creation, Some(NOT_BUILT)).unwrap();
        for command in after {
            world.make(command);
        }
        let done = world.ledger.digest();
        // What is there needs no archive.
        assert!(world.ask(&creation, Some(NOT_BUILT)).unwrap().unchanged, "{kind:?}");
        assert_eq!(world.ledger.digest(), done, "{kind:?}");
        world.wait(3);
        let forgotten = world.ledger.digest();
        let restored = Ledger::from_image(world.ledger.image()).unwrap();
        // An image of an earlier release does not say what was forgotten.
        let mut old = world.ledger.image();
        old.forgotten_through = None;
        let old = Ledger::from_image(old).unwrap();
        for ledger in [world.ledger.clone(), restored, old] {
            world.ledger = ledger;
            let again = world.ask(&creation, Some(NOT_BUILT));
            let is_sent_back =
                matches!(&again, Err(Refusal::Forgotten { what, .. }) if *what == kind);
            assert!(is_sent_back, "{kind:?}: {again:?}");
            assert_eq!(world.ledger.digest(), forgotten, "{kind:?}: nothing happened");
        }
    }
}

#[test]
fn what_the_archive_does_not_have_is_new() {
    let mut world = World::new();
    world.make(charge("c"));
    world.wait(3);
    world.ask(&charge("new"), Some(BUILT)).unwrap();
    world.ask(&submit("new"), Some(BUILT)).unwrap();
    // What is there needs no archive, whatever it said.
    for looked_up in [NOT_BUILT, BUILT] {
        assert!(world.ask(&charge("new"), Some(looked_up)).unwrap().unchanged, "{looked_up:?}");
    }
    // An id that the server made cannot have been used.
    world.ask(&charge("made"), None).unwrap();
}
