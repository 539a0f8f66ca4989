//! Retention: what the ledger forgets, and how it is restored.

use bursar_core::credits::Credits;
use bursar_core::ledger::command::{
    AccountKind, AccountSettings, BudgetMode, BudgetPeriod, BudgetTerms, BudgetUnit, Charge,
    Command, Context, Envelope, IssueGrant, Policy, Refund, RefundOf,
};
use bursar_core::ledger::holds::hold::HoldKind;
use bursar_core::ledger::reply::{Accepted, Refused};
use bursar_core::ledger::{Ledger, invariant};
use bursar_core::machine::{Machine, advance, execute};
use bursar_core::time::Timestamp;

const START: i64 = 1_700_000_000_000;
const MINUTE_MS: i64 = 60_000;
/// Everything is retained for an hour, and forgotten within a minute after that.
const FORGOTTEN_MS: i64 = 62 * MINUTE_MS;

struct World {
    ledger: Ledger,
    now: i64,
}

impl World {
    /// One account `a` with a grant of 100, and a retention of one hour.
    fn new() -> World {
        let mut world = World { ledger: Ledger::new(), now: START };
        world.ledger.forget_by_age();
        let hour_ms = 60 * MINUTE_MS;
        let policy =
            Policy { idempotency_ttl_ms: hour_ms, retention_ms: hour_ms, ..Policy::default() };
        world.accept(Command::SetPolicy(policy));
        let (path, kind, settings) = ("a".into(), AccountKind::Org, AccountSettings::default());
        world.accept(Command::OpenAccount { path, kind, settings });
        world.accept(Command::IssueGrant(grant("g")));
        world
    }

    fn give(&mut self, key: Option<u128>, command: &Command) -> Result<Accepted, Refused> {
        let now = Timestamp::from_millis(self.now);
        advance(&mut self.ledger, now, |_, _| {});
        let envelope =
            Envelope { actor: "tester".into(), fingerprint: 7, key, ..Envelope::default() };
        let answer = execute(&mut self.ledger, now, &envelope, command, &mut Vec::new());
        invariant::check(&self.ledger).unwrap_or_else(|violation| panic!("{violation}"));
        answer
    }

    fn accept(&mut self, command: Command) {
        if let Err(refused) = self.give(None, &command) {
            panic!("refused: {:?}", refused.refusal);
        }
    }

    fn code(&mut self, command: &Command) -> &'static str {
        match self.give(None, command) {
            Ok(_) => "ok",
            Err(refused) => refused.refusal.code(),
        }
    }

    fn charge(&mut self) {
        self.accept(Command::Charge(Charge {
            id: "c".into(),
            account: "a".into(),
            amount: micros(10),
            allow_partial: false,
            context: Context::default(),
            effective_at: None,
        }));
    }

    /// The command that restores the charge, with the record that history would have now.
    fn revival(&self) -> Command {
        let tenant = self.ledger.find_account("a").expect("it was opened");
        let hold = self.ledger.find_hold(tenant, HoldKind::Charge, "c").expect("it was charged");
        let record = self.ledger.archive(hold).expect("a charge is created closed");
        Command::RestoreHold { record: Box::new(record) }
    }
}

fn micros(amount: i64) -> Credits {
    Credits::from_micros(amount).expect("amounts in tests are not negative")
}

fn grant(id: &str) -> IssueGrant {
    IssueGrant::purchase(id, "a", micros(100))
}

fn refund(amount: i64) -> Command {
    Command::Refund(Refund {
        id: format!("r{amount}").into(),
        tenant: "a".into(),
        of: RefundOf::Charge("c".into()),
        amount: Some(micros(amount)),
        compensate: false,
        note: None,
        recalled: Vec::new(),
    })
}

fn budget() -> Command {
    let terms = BudgetTerms {
        limit: micros(50),
        unit: BudgetUnit::Credits,
        period: BudgetPeriod::Total,
        mode: BudgetMode::Hard,
        thresholds: [100].as_slice().into(),
        utc_offset_minutes: 0,
    };
    Command::SetBudget { path: "a".into(), budget: "b".into(), terms }
}

#[test]
fn a_charge_is_forgotten_after_its_retention_and_restored_for_a_refund() {
    let mut world = World::new();
    world.charge();
    let revival = world.revival();
    assert_eq!(world.code(&revival), "already_exists", "it is not forgotten yet");
    world.now += FORGOTTEN_MS;
    assert_eq!(world.code(&refund(4)), "not_found");
    world.accept(revival.clone());
    world.accept(refund(4));
    let account = world.ledger.find_account("a").expect("it was opened");
    assert_eq!(world.ledger.account(account).available, 94);
    world.now += 2 * FORGOTTEN_MS;
    assert_eq!(world.code(&revival), "conflict", "the record is older than the refund");
}

#[test]
fn an_answer_is_kept_for_the_ttl_of_its_key() {
    let mut world = World::new();
    let freeze = Command::FreezeAccount { path: "a".into(), by_platform: false };
    let replayed = |world: &mut World| match world.give(Some(1), &freeze) {
        Ok(accepted) => accepted.replayed,
        Err(refused) => panic!("refused: {:?}", refused.refusal),
    };
    assert!(!replayed(&mut world));
    world.now += FORGOTTEN_MS - 3 * MINUTE_MS;
    assert!(replayed(&mut world));
    world.now += 3 * MINUTE_MS;
    assert!(!replayed(&mut world));
}

#[test]
fn a_budget_set_after_a_charge_was_forgotten_is_not_driven_below_zero_by_its_refund() {
    let mut world = World::new();
    world.charge();
    let revival = world.revival();
    world.now += FORGOTTEN_MS;
    world.accept(budget());
    world.accept(revival);
    world.accept(refund(10));
}

#[test]
fn a_rollback_leaves_no_trace_where_a_hold_was_forgotten() {
    let mut world = World::new();
    world.charge();
    world.now += FORGOTTEN_MS;
    world.accept(budget());
    let before = world.ledger.digest();
    world.ledger.begin_group();
    world.charge();
    world.ledger.rollback_group();
    assert_eq!(world.ledger.digest(), before);
}

#[test]
fn a_rolled_back_revocation_leaves_no_trace_on_a_scheduled_grant() {
    let mut world = World::new();
    let later = Some(Timestamp::from_millis(START + MINUTE_MS));
    world.accept(Command::IssueGrant(IssueGrant { effective_at: later, ..grant("waiting") }));
    let before = world.ledger.digest();
    world.ledger.begin_group();
    world.accept(Command::RevokeGrant { tenant: "a".into(), grant: "waiting".into() });
    world.ledger.rollback_group();
    assert_eq!(world.ledger.digest(), before);
}

#[test]
fn no_timer_stays_due_at_the_last_instant_of_time() {
    let mut world = World::new();
    world.charge();
    world.now = Timestamp::MAX.millis();
    world.accept(budget());
    world.accept(Command::FreezeAccount { path: "a".into(), by_platform: false });
}
