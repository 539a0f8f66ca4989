//! Forgetting through the archive always goes on, and never lets an id have a second effect.

#![allow(clippy::unwrap_used, reason = "the steps before the one under test must succeed")]

mod jobs;

use bursar_core::credits::Credits;
use bursar_core::ledger::command::{
    AccountKind, AccountSettings, Cause, Charge, Context, Forget, IssueGrant, PlaceHold, Refund,
    RefundOf, Usage,
};
use bursar_core::ledger::holds::archive::RecalledRecord;
use bursar_core::ledger::holds::forgettable::Forgettable;
use bursar_core::ledger::refusal::Resource;
use bursar_core::ledger::{Command, Envelope, Ledger, Refusal, Reply, invariant};
use bursar_core::machine::{advance, execute};
use bursar_core::time::Timestamp;

use crate::ledger_builders::short_memory;

const HOUR_MS: i64 = 3_600_000;

fn credits(micros: i64) -> Credits {
    Credits::from_micros(micros).unwrap()
}

struct World {
    ledger: Ledger,
    now: Timestamp,
    position: u64,
}

impl World {
    /// An account with credits, and short memory where it forgets by age.
    fn new(ledger: Ledger) -> World {
        let now = Timestamp::from_millis(1_767_225_600_000);
        let mut world = World { ledger, now, position: 1 };
        let policy = short_memory();
        world.make(None, Command::SetPolicy(policy));
        let (path, settings) = ("acme".into(), AccountSettings::default());
        world.make(None, Command::OpenAccount { path, kind: AccountKind::Org, settings });
        let grant = IssueGrant::purchase("paid", "acme", credits(1_000_000_000));
        world.make(None, Command::IssueGrant(grant));
        world
    }

    fn ask(&mut self, envelope: &Envelope, command: &Command) -> Result<Reply, Refusal> {
        advance(&mut self.ledger, self.now, |_, _| {});
        let mut events = Vec::new();
        let answer = execute(&mut self.ledger, self.now, envelope, command, &mut events);
        invariant::check(&self.ledger).unwrap();
        self.position += 1;
        answer.map(|accepted| accepted.reply).map_err(|refused| refused.refusal)
    }

    fn make(&mut self, key: Option<u128>, command: Command) -> Reply {
        let envelope = Envelope { key, fingerprint: 7, ..Envelope::default() };
        self.ask(&envelope, &command).unwrap()
    }

    fn pair(&mut self, hold: &str, key: Option<u128>) {
        self.make(key, place(hold));
        let (tenant, usage) = ("acme".into(), Usage::Total(credits(5)));
        let cause = Cause::Holder;
        self.make(None, Command::SettleHold { tenant, hold: hold.into(), usage, cause });
    }

    /// One step of an archiver. Returns the records that it would have written.
    fn forget(&mut self, keep: usize, most: usize) -> Forget {
        let which = Forgettable { keep, kept_from: Timestamp::MIN, most };
        let forget = self.ledger.forgettable(which);
        if !forget.is_empty() {
            let command = Forget { through: self.position, ..forget.clone() };
            self.ask(&Envelope::default(), &Command::Forget(Box::new(command))).unwrap();
        }
        forget
    }
}

fn place(id: &str) -> Command {
    Command::PlaceHold(PlaceHold {
        ttl_ms: Some(HOUR_MS),
        ..PlaceHold::new(id, "acme", credits(10))
    })
}

#[test]
fn forgetting_goes_on_behind_what_answers_refer_to() {
    let (keep, most) = (300, 64);
    let mut world = World::new(Ledger::new());
    for number in 0..200u128 {
        world.pair(&format!("h{number}"), Some(number));
    }
    for number in 0..420 {
        let charge = Charge {
            id: format!("c{number}").into(),
            account: "acme".into(),
            amount: credits(1),
            allow_partial: false,
            context: Context::default(),
            effective_at: None,
        };
        world.make(None, Command::Charge(charge));
    }
    let (mut written, mut steps) = (0, 0);
    loop {
        let forget = world.forget(keep, most);
        if forget.is_empty() {
            break;
        }
        written += forget.holds.len() + forget.answers.len();
        steps += 1;
        assert!(steps < 100, "{} closed are in memory for ever", world.ledger.closed_in_memory());
    }
    assert_eq!(written, 320, "each record is written once");
    assert_eq!(world.ledger.closed_in_memory(), keep + 200, "holds of the window, and answers");
}

#[test]
fn a_queue_of_which_everything_is_referred_to_is_left_alone() {
    let mut world = World::new(Ledger::new());
    // Each answer refers to a refund of three parts: more movements than answers stay.
    for number in 0..20u128 {
        let holds: Vec<String> = (0..3).map(|part| format!("h{number}-{part}")).collect();
        holds.iter().for_each(|hold| world.pair(hold, None));
        world.make(Some(number), refund(&format!("r{number}"), &holds));
    }
    for _ in 0..50 {
        world.forget(20, 8);
    }
    let forget = world.forget(20, 8);
    assert!(forget.is_empty(), "nothing turns for ever: {forget:?}");
}

fn refund(id: &str, holds: &[String]) -> Command {
    let holds = holds.iter().map(|hold| hold.as_str().into()).collect();
    Command::Refund(Refund {
        id: id.into(),
        tenant: "acme".into(),
        of: RefundOf::PastJob("job".into(), holds),
        amount: None,
        compensate: false,
        note: None,
        recalled: Vec::new(),
    })
}

#[test]
fn the_parts_of_a_refund_leave_together() {
    for (keep, key) in [(1, None), (0, Some(1))] {
        let mut world = World::new(Ledger::new());
        let holds = ["h1", "h2", "h3"].map(String::from);
        holds.iter().for_each(|hold| world.pair(hold, None));
        let made = world.make(key, refund("r", &holds));
        let whole = 15;
        assert!(matches!(&made, Reply::Movement { amount, .. } if *amount == credits(whole)));
        // One that would cut the parts at the edge of a step or of the window.
        let forget = world.forget(keep, 2);
        let parts = forget.movements.len();
        assert!(parts == 0 || parts == 3, "{parts} of three parts leave");
        for _ in 0..5 {
            world.forget(keep, 2);
        }
        let tenant = world.ledger.find_account("acme").unwrap();
        let present = ["r", "r/2", "r/3"]
            .map(|name| world.ledger.find_movement(tenant, Resource::Refund, name).is_some());
        assert!(present[0] == present[1] && present[1] == present[2], "{present:?}");
        // A repeat shows the whole amount.
        let recalled = match present[0] {
            true => Vec::new(),
            false => vec![RecalledRecord::Movement(forget.movements)],
        };
        let archive = Some(world.position);
        let envelope = Envelope { fingerprint: 7, archive, recalled, ..Envelope::default() };
        match world.ask(&envelope, &refund("r", &holds)).unwrap() {
            Reply::Movement { amount, .. } => assert_eq!(amount, credits(whole)),
            Reply::Archived(record) => {
                let RecalledRecord::Movement(parts) = *record else { panic!("a refund") };
                assert_eq!(parts.len(), 3);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_id_that_an_earlier_release_forgot_by_its_age_is_looked_up() {
    let mut ledger = Ledger::new();
    ledger.forget_by_age();
    let mut world = World::new(ledger);
    world.pair("old", None);
    world.now = world.now.plus_millis(3 * HOUR_MS);
    world.pair("new", None);
    advance(&mut world.ledger, world.now, |_, _| {});
    let tenant = world.ledger.find_account("acme").unwrap();
    assert!(world.ledger.must_ask_archive(0, Resource::Hold, "acme", "old"), "before the archive");
    world.position = 5;
    world.forget(0, 100);
    let envelope = Envelope { fingerprint: 7, archive: Some(0), ..Envelope::default() };
    let again = world.ask(&envelope, &place("old"));
    assert!(matches!(again, Err(Refusal::Forgotten { .. })), "{again:?}");
    assert!(world.ledger.must_ask_archive(0, Resource::Hold, "acme", "old"));
    assert!(world.ledger.may_have_forgotten(Resource::Hold, tenant, "old", 0));
    // An archive was built from the first record on: its silence counts.
    let envelope = Envelope { archive: Some(1), ..envelope };
    world.ask(&envelope, &place("never")).unwrap();
}
