//! Past differences between the ledger and the model, in their shortest form.

use bursar_core::credits::Credits;
use bursar_core::ledger::command::{
    AccountKind, AccountSettings, BudgetMode, BudgetPeriod, BudgetTerms, BudgetUnit, Cause, Charge,
    Command, Context, Envelope, GrantKind, IssueGrant, PlaceHold, Refund, RefundOf, Restriction,
    Usage,
};
use bursar_core::ledger::credits::price::Rate;
use bursar_core::ledger::reply::Reply;
use bursar_core::time::Timestamp;
use bursar_testkit::compare::{Given, Pair, code_of};
use bursar_testkit::generate::TimedCommand;

const START: i64 = 1_700_000_000_000;
const GPU_HOUR_MS: u64 = 3_600_000;

/// One account `a`, and commands that both the ledger and the model execute.
struct World {
    pair: Pair,
    now: i64,
    given: u128,
}

impl World {
    fn new() -> World {
        let mut world = World { pair: Pair::new(), now: START, given: 0 };
        let settings = AccountSettings::default();
        world.accept(Command::OpenAccount { path: "a".into(), kind: AccountKind::Org, settings });
        world
    }

    fn give(&mut self, command: Command) -> Given {
        self.given += 1;
        let envelope =
            Envelope { actor: "tester".into(), fingerprint: self.given, ..Envelope::default() };
        let step = TimedCommand { now: Timestamp::from_millis(self.now), envelope, command };
        self.pair.run(&step).unwrap_or_else(|difference| panic!("{difference}"))
    }

    fn accept(&mut self, command: Command) -> Reply {
        match self.give(command) {
            Ok(accepted) => accepted.reply,
            Err(refused) => panic!("refused: {:?}", refused.refusal),
        }
    }

    fn code(&mut self, command: Command) -> &'static str {
        code_of(&self.give(command))
    }

    fn grant(&mut self, id: &str, amount: i64, max_share_micro: Option<u32>) {
        let restriction = Restriction { max_share_micro, ..Restriction::default() };
        let grant = IssueGrant { restriction: Some(restriction), ..grant(id, amount) };
        self.accept(Command::IssueGrant(grant));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.pair.finish().unwrap_or_else(|difference| panic!("{difference}"));
        }
    }
}

fn micros(amount: i64) -> Credits {
    Credits::from_micros(amount).expect("amounts in tests are not negative")
}

fn grant(id: &str, amount: i64) -> IssueGrant {
    IssueGrant { kind: GrantKind::Promotion, ..IssueGrant::purchase(id, "a", micros(amount)) }
}

fn charge(id: &str, amount: i64) -> Charge {
    Charge {
        id: id.into(),
        account: "a".into(),
        amount: micros(amount),
        allow_partial: false,
        context: Context::default(),
        effective_at: None,
    }
}

fn hold(id: &str, amount: i64) -> PlaceHold {
    PlaceHold::new(id, "a", micros(amount))
}

fn capture(usage: Usage, seq: Option<u64>) -> Command {
    Command::CaptureHold { tenant: "a".into(), hold: "h".into(), usage, seq }
}

fn hard_budget(limit: i64, unit: BudgetUnit) -> Command {
    let terms = BudgetTerms {
        limit: micros(limit),
        unit,
        period: BudgetPeriod::Total,
        mode: BudgetMode::Hard,
        thresholds: [50, 80, 100].as_slice().into(),
        utc_offset_minutes: 0,
    };
    Command::SetBudget { path: "a".into(), budget: "b".into(), terms }
}

fn charged(reply: &Reply) -> i64 {
    match reply {
        Reply::Charge { charged, .. } => charged.micros(),
        other => panic!("not a charge: {other:?}"),
    }
}

#[test]
fn a_partial_charge_takes_all_that_two_half_shares_allow() {
    let mut world = World::new();
    world.grant("g1", 10, Some(500_000));
    world.grant("g2", 10, Some(500_000));
    let partial = Charge { allow_partial: true, ..charge("c", 10) };
    assert_eq!(charged(&world.accept(Command::Charge(partial))), 10);
}

#[test]
fn a_partial_charge_of_nothing_is_refused() {
    let mut world = World::new();
    world.grant("g1", 10, Some(500_000));
    world.grant("g2", 10, Some(500_000));
    world.accept(hard_budget(1, BudgetUnit::Credits));
    let partial = Charge { allow_partial: true, ..charge("c", 10) };
    assert_eq!(world.code(Command::Charge(partial)), "budget_exceeded");
}

#[test]
fn late_usage_is_paid_whenever_its_whole_amount_can_be_drawn() {
    let mut world = World::new();
    world.grant("g1", 10, Some(500_000));
    world.grant("g2", 10, Some(500_000));
    world.now += 1_000;
    let effective_at = Some(Timestamp::from_millis(world.now - 1));
    let late = Charge { effective_at, ..charge("c", 10) };
    assert_eq!(charged(&world.accept(Command::Charge(late))), 10);
}

#[test]
fn late_usage_does_not_draw_units_revoked_after_they_expired() {
    let mut world = World::new();
    let expires_at = Some(Timestamp::from_millis(START + 10));
    world.accept(Command::IssueGrant(IssueGrant { expires_at, ..grant("g", 10) }));
    world.now += 1_000;
    world.accept(Command::RevokeGrant { tenant: "a".into(), grant: "g".into() });
    let effective_at = Some(Timestamp::from_millis(START + 10));
    let late = Charge { effective_at, ..charge("c", 10) };
    assert_eq!(world.code(Command::Charge(late)), "insufficient_credits");
}

#[test]
fn a_repeated_report_of_gpu_time_worth_less_than_before_changes_nothing() {
    let mut world = World::new();
    world.grant("g", 1_000, None);
    let rate = Rate { per_gpu_hour: micros(50), share_milli: 1000, gpu_ms_limit: u64::MAX };
    world.accept(Command::PlaceHold(PlaceHold { rate: Some(rate), ..hold("h", 200) }));
    world.accept(capture(Usage::Total(micros(100)), None));
    let report = capture(Usage::GpuMs(GPU_HOUR_MS), Some(1));
    let first = world.accept(report.clone());
    assert_eq!(world.accept(report), first);
}

#[test]
fn gpu_time_cannot_grow_past_a_hard_budget_by_an_extension_without_amount() {
    let mut world = World::new();
    world.grant("g", 1_000, None);
    world.accept(hard_budget(1_000_000, BudgetUnit::GpuHours));
    world.accept(Command::PlaceHold(PlaceHold { gpu_ms: GPU_HOUR_MS, ..hold("h", 10) }));
    let extend = |amount, ttl_ms| Command::ExtendHold {
        tenant: "a".into(),
        hold: "h".into(),
        amount,
        gpu_ms: GPU_HOUR_MS,
        ttl_ms,
    };
    assert_eq!(world.code(extend(None, Some(60_000))), "invalid_field");
    assert_eq!(world.code(extend(Some(micros(1)), None)), "budget_exceeded");
}

#[test]
fn a_closed_hold_is_refused_as_closed_before_its_rate_is_checked() {
    let mut world = World::new();
    world.grant("g", 100, None);
    world.accept(Command::PlaceHold(hold("h", 10)));
    let (tenant, cause) = ("a".into(), Cause::Holder);
    world.accept(Command::ReleaseHold { tenant, hold: "h".into(), cause });
    let (tenant, usage) = ("a".into(), Usage::GpuMs(1));
    let settle = Command::SettleHold { tenant, hold: "h".into(), usage, cause };
    assert_eq!(world.code(settle), "hold_closed");
}

#[test]
fn a_refund_of_an_unknown_charge_is_not_found_even_if_its_name_is_taken() {
    let mut world = World::new();
    world.grant("g", 100, None);
    world.accept(Command::Charge(charge("c", 10)));
    let refund = |of: &str| {
        Command::Refund(Refund {
            id: "r".into(),
            tenant: "a".into(),
            of: RefundOf::Charge(of.into()),
            amount: Some(micros(1)),
            compensate: false,
            note: None,
            recalled: Vec::new(),
        })
    };
    world.accept(refund("c"));
    assert_eq!(world.code(refund("unknown")), "not_found");
    assert_eq!(world.code(refund("c")), "already_exists");
}

#[test]
fn a_later_refund_does_not_change_returned_units_that_had_expired() {
    let mut world = World::new();
    let expires_at = Some(Timestamp::from_millis(START + 10));
    world.accept(Command::IssueGrant(IssueGrant { expires_at, ..grant("g", 10) }));
    world.accept(Command::PlaceHold(hold("h", 10)));
    let (tenant, usage, cause) = ("a".into(), Usage::Total(micros(4)), Cause::Holder);
    world.accept(Command::SettleHold { tenant, hold: "h".into(), usage, cause });
    world.now += 1_000;
    world.accept(Command::Refund(Refund {
        id: "r".into(),
        tenant: "a".into(),
        of: RefundOf::Hold("h".into()),
        amount: None,
        compensate: false,
        note: None,
        recalled: Vec::new(),
    }));
}

#[test]
fn a_report_far_beyond_the_hold_is_refused_where_the_account_cannot_pay_it() {
    let mut world = World::new();
    world.grant("g", 2_100, None);
    world.accept(Command::PlaceHold(hold("h", 1)));
    let settle = |total| Command::SettleHold {
        tenant: "a".into(),
        hold: "h".into(),
        usage: Usage::Total(micros(total)),
        cause: Cause::Holder,
    };
    let capture = |total| Command::CaptureHold {
        tenant: "a".into(),
        hold: "h".into(),
        usage: Usage::Total(micros(total)),
        seq: None,
    };
    assert_eq!(world.code(settle(9_000_000_000_000)), "invalid_field");
    assert_eq!(world.code(capture(3_101)), "invalid_field");
    // Usage that can be paid is accepted, even far beyond the hold.
    world.accept(capture(2_050));
    // The hold has drawn more since, so more may be uncollected.
    world.accept(settle(2_050_000));
}
