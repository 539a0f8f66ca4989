//! Refunds of forgotten holds: the record is restored from history and checked.

#![allow(clippy::unwrap_used, reason = "the steps before the one under test must succeed")]

use bursar_core::credits::Credits;
use bursar_core::ledger::command::{
    AccountKind, AccountSettings, BudgetMode, BudgetPeriod, BudgetTerms, BudgetUnit, Cause, Charge,
    Context, IssueGrant, PlaceHold, Refund, RefundOf, Usage,
};
use bursar_core::ledger::holds::archive::ArchivedHold;
use bursar_core::ledger::holds::hold::HoldKind;
use bursar_core::ledger::refusal::Conflict;
use bursar_core::ledger::{Command, Envelope, Ledger, Refusal, Reply, invariant};
use bursar_core::machine::{Machine, advance, execute};
use bursar_core::time::Timestamp;

use crate::ledger_builders::short_memory;

const HOUR_MS: i64 = 3_600_000;

struct World {
    ledger: Ledger,
    now: Timestamp,
}

fn credits(whole: i64) -> Credits {
    Credits::from_whole(whole).unwrap()
}

impl World {
    /// A hold of 40 that was settled at 30, with short retention times.
    fn new() -> World {
        let now = Timestamp::from_millis(1_767_225_600_000);
        let mut world = World { ledger: Ledger::new(), now };
        world.ledger.forget_by_age();
        let policy = short_memory();
        world.run(Command::SetPolicy(policy)).unwrap();
        let settings = AccountSettings::default();
        let path = "acme".into();
        world.run(Command::OpenAccount { path, kind: AccountKind::Org, settings }).unwrap();
        world.run(Command::IssueGrant(IssueGrant::purchase("paid", "acme", credits(100)))).unwrap();
        world.place();
        let usage = Usage::Total(credits(30));
        world
            .run(Command::SettleHold {
                tenant: "acme".into(),
                hold: "h".into(),
                usage,
                cause: Cause::Holder,
            })
            .unwrap();
        world
    }

    fn place(&mut self) {
        self.run(Command::PlaceHold(PlaceHold {
            ttl_ms: Some(HOUR_MS),
            ..PlaceHold::new("h", "acme", credits(40))
        }))
        .unwrap();
    }

    fn run(&mut self, command: Command) -> Result<Reply, Refusal> {
        advance(&mut self.ledger, self.now, |_, _| {});
        let fingerprint = u128::try_from(self.now.millis()).unwrap();
        let envelope = Envelope { actor: "test".into(), fingerprint, ..Envelope::default() };
        let mut events = Vec::new();
        let answer = execute(&mut self.ledger, self.now, &envelope, &command, &mut events);
        invariant::check(&self.ledger).unwrap();
        answer.map(|accepted| accepted.reply).map_err(|refused| refused.refusal)
    }

    fn refund(&mut self, id: &str, whole: i64) -> Result<Reply, Refusal> {
        self.run(Command::Refund(Refund {
            id: id.into(),
            tenant: "acme".into(),
            of: RefundOf::Hold("h".into()),
            amount: Some(credits(whole)),
            compensate: false,
            note: None,
            recalled: Vec::new(),
        }))
    }

    fn wait(&mut self, hours: i64) {
        self.now = self.now.plus_millis(hours * HOUR_MS);
        advance(&mut self.ledger, self.now, |_, _| {});
    }

    fn record(&self) -> ArchivedHold {
        let tenant = self.ledger.find_account("acme").unwrap();
        let hold = self.ledger.find_hold(tenant, HoldKind::Hold, "h").unwrap();
        self.ledger.archive(hold).unwrap()
    }

    fn revive(&mut self, record: &ArchivedHold) -> Result<Reply, Refusal> {
        self.run(Command::RestoreHold { record: Box::new(record.clone()) })
    }

    fn available(&self) -> i128 {
        let account = self.ledger.find_account("acme").unwrap();
        self.ledger.balance(account, &Context::default()).available / 1_000_000
    }
}

#[test]
fn a_forgotten_hold_is_restored_for_a_refund() {
    let mut world = World::new();
    let record = world.record();
    world.wait(2);
    assert!(matches!(world.refund("r1", 10), Err(Refusal::NotFound { .. })));
    world.revive(&record).unwrap();
    world.refund("r1", 10).unwrap();
    assert_eq!(world.available(), 80);
    // It is forgotten again when its retention ends.
    world.wait(2);
    assert!(matches!(world.refund("r2", 10), Err(Refusal::NotFound { .. })));
}

#[test]
fn an_altered_record_is_refused() {
    let mut world = World::new();
    let record = world.record();
    world.wait(2);
    let mut forged = record.clone();
    forged.hold.captured += 1;
    let before = world.ledger.digest();
    let mismatch = Err(Refusal::Conflict(Conflict::RecordMismatch));
    assert_eq!(world.revive(&forged), mismatch, "its slices say otherwise");
    // The units that the record claims are not spent.
    forged.hold.slices[0].captured += 1;
    assert_eq!(world.revive(&forged), mismatch);
    assert_eq!(world.ledger.digest(), before);
}

#[test]
fn a_record_from_before_a_refund_cannot_return_the_same_credits_twice() {
    let mut world = World::new();
    let stale = world.record();
    world.refund("r1", 10).unwrap();
    world.wait(2);
    let mismatch = Err(Refusal::Conflict(Conflict::RecordMismatch));
    assert_eq!(world.revive(&stale), mismatch);
}

#[test]
fn a_record_does_not_replace_an_existing_hold() {
    let mut world = World::new();
    let record = world.record();
    assert!(matches!(world.revive(&record), Err(Refusal::AlreadyExists { .. })));
    world.wait(2);
    world.place();
    assert!(matches!(world.revive(&record), Err(Refusal::AlreadyExists { .. })));
}

#[test]
fn a_refund_of_a_forgotten_hold_makes_no_room_under_a_hard_budget() {
    let mut world = World::new();
    let record = world.record();
    world.wait(2);
    let terms = BudgetTerms {
        limit: credits(20),
        unit: BudgetUnit::Credits,
        period: BudgetPeriod::Total,
        mode: BudgetMode::Hard,
        thresholds: [100].into_iter().collect(),
        utc_offset_minutes: 0,
    };
    world.run(Command::SetBudget { path: "acme".into(), budget: "cap".into(), terms }).unwrap();
    let charge = |id: &str, whole| {
        Command::Charge(Charge {
            id: id.into(),
            account: "acme".into(),
            amount: credits(whole),
            allow_partial: false,
            context: Context::default(),
            effective_at: None,
        })
    };
    world.run(charge("c1", 20)).unwrap();
    world.revive(&record).unwrap();
    world.refund("r", 10).unwrap();
    let more = world.run(charge("c2", 1));
    assert!(matches!(more, Err(Refusal::BudgetExceeded { .. })), "{more:?}");
}
