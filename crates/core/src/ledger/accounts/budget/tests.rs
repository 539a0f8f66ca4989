use std::cell::Cell;

use super::*;
use crate::credits::Credits;
use crate::ledger::accounts::tally::COUNT_STEP;
use crate::ledger::command::{
    AccountKind, AccountSettings, Cause, Command, Envelope, IssueGrant, PlaceHold, Policy,
    RecalledHold, Refund, RefundOf, Usage,
};
use crate::ledger::holds::hold::HoldKind;
use crate::ledger::invariant;
use crate::machine::{Machine, Preparation, execute};
use crate::name::{AccountPath, HoldId};

thread_local! {
    /// The number of holds that counts of usage have read.
    pub(in crate::ledger) static LOOKED_AT: Cell<usize> = const { Cell::new(0) };
}

fn credits(micros: i64) -> Credits {
    Credits::from_micros(micros).expect("a small amount")
}

fn run(ledger: &mut Ledger, command: &Command) -> Reply {
    let now = Timestamp::from_millis(1_577_836_800_000);
    let answer = execute(ledger, now, &Envelope::default(), command, &mut Vec::new());
    answer.expect("the command is accepted").reply
}

fn tenant_with_holds(ledger: &mut Ledger, tenant: &str, count: u32) {
    let team = format!("{tenant}:nlp");
    for (path, kind) in [(tenant, AccountKind::Org), (team.as_str(), AccountKind::Team)] {
        let settings = AccountSettings::default();
        run(ledger, &Command::OpenAccount { path: path.into(), kind, settings });
    }
    let grant = IssueGrant::purchase("g", tenant, credits(1_000_000));
    run(ledger, &Command::IssueGrant(grant));
    for number in 0..count {
        // Every second hold is in the team.
        let account = if number % 2 == 0 { tenant } else { team.as_str() };
        let hold = PlaceHold::new(format!("h{number}"), account, credits(10));
        run(ledger, &Command::PlaceHold(hold));
    }
}

#[test]
fn an_account_has_a_bounded_number_of_budgets() {
    let mut ledger = Ledger::new();
    tenant_with_holds(&mut ledger, "acme", 1);
    let now = Timestamp::from_millis(1_577_836_800_000);
    let mut set = |path: &str, number: usize, limit: i64| {
        let terms = BudgetTerms {
            limit: credits(limit),
            unit: BudgetUnit::Credits,
            period: BudgetPeriod::Month,
            mode: BudgetMode::Soft,
            thresholds: [100].into_iter().collect(),
            utc_offset_minutes: 0,
        };
        let budget = format!("b{number}").as_str().into();
        let command = Command::SetBudget { path: path.into(), budget, terms };
        let answer = execute(&mut ledger, now, &Envelope::default(), &command, &mut Vec::new());
        answer.map(|_| ()).map_err(|refused| refused.refusal)
    };
    for number in 0..MAX_BUDGETS {
        assert_eq!(set("acme", number, 10), Ok(()));
    }
    let refused = set("acme", MAX_BUDGETS, 10);
    assert!(matches!(refused, Err(Refusal::InvalidField { field: "name", .. })), "{refused:?}");
    assert_eq!(set("acme", 3, 20), Ok(()), "an existing budget can be changed");
    assert_eq!(set("acme:nlp", 0, 10), Ok(()), "the limit applies to each account");
}

#[test]
fn a_new_budget_beside_many_holds_of_another_tenant_is_counted_in_bounded_steps() {
    let mut ledger = Ledger::new();
    tenant_with_holds(&mut ledger, "acme", 6);
    tenant_with_holds(&mut ledger, "umbra", 10_000);
    let set = Command::SetBudget {
        path: "acme:nlp".into(),
        budget: "b".into(),
        terms: BudgetTerms {
            limit: credits(1_000),
            unit: BudgetUnit::Credits,
            period: BudgetPeriod::Month,
            mode: BudgetMode::Hard,
            thresholds: [100].into_iter().collect(),
            utc_offset_minutes: 0,
        },
    };
    for restored in [false, true] {
        let mut ledger = if restored {
            Ledger::from_image(ledger.image()).expect("its own image")
        } else {
            ledger.clone()
        };
        let now = ledger.now;
        loop {
            LOOKED_AT.set(0);
            let done = ledger.prepare(now, &set);
            assert!(LOOKED_AT.get() <= COUNT_STEP, "{} in one step", LOOKED_AT.get());
            if done {
                break;
            }
        }
        LOOKED_AT.set(0);
        let Reply::Budget(budget) = run(&mut ledger, &set) else { panic!("a budget") };
        assert_eq!((budget.spent, budget.held), (0, 30), "three holds of ten");
        assert_eq!(LOOKED_AT.get(), 0, "the decision itself reads no hold");
        invariant::check(&ledger).expect("all invariants hold");
    }
}

fn budget_of(path: &str, unit: BudgetUnit, period: BudgetPeriod) -> (Command, BudgetTerms) {
    let terms = BudgetTerms {
        limit: credits(1_000_000),
        unit,
        period,
        mode: BudgetMode::Hard,
        thresholds: [100].into_iter().collect(),
        utc_offset_minutes: 0,
    };
    let (path, budget) = (path.into(), "b".into());
    (Command::SetBudget { path, budget, terms: terms.clone() }, terms)
}

fn change(ledger: &mut Ledger, now: Timestamp, number: u32) {
    let (tenant, hold): (AccountPath, HoldId) =
        ("acme".into(), format!("h{number}").as_str().into());
    let usage = |micros| Usage::Total(credits(micros));
    let cause = Cause::Holder;
    let new = PlaceHold {
        gpu_ms: 7,
        ..PlaceHold::new(
            format!("new-{number}"),
            if number.is_multiple_of(2) { "acme" } else { "acme:nlp" },
            credits(3),
        )
    };
    let command = match number % 4 {
        0 => Command::CaptureHold { tenant, hold, usage: usage(4), seq: None },
        1 => Command::SettleHold { tenant, hold, usage: usage(6), cause },
        2 => Command::ReleaseHold { tenant, hold, cause },
        _ => Command::PlaceHold(new),
    };
    // Every third command is rolled back.
    let undone = number.is_multiple_of(3);
    if undone {
        ledger.begin_group();
    }
    let events = &mut Vec::new();
    execute(ledger, now, &Envelope::default(), &command, events).expect("the command is accepted");
    if undone {
        ledger.rollback_group();
    }
}

#[test]
fn a_new_budget_of_a_tenant_with_many_holds_is_counted_in_bounded_steps() {
    const HOLDS: u32 = 20_000;
    for (unit, period) in [
        (BudgetUnit::Credits, BudgetPeriod::Month),
        (BudgetUnit::Credits, BudgetPeriod::Total),
        (BudgetUnit::GpuHours, BudgetPeriod::Day),
    ] {
        let mut ledger = Ledger::new();
        tenant_with_holds(&mut ledger, "acme", HOLDS);
        tenant_with_holds(&mut ledger, "umbra", 2_000);
        let (set, terms) = budget_of("acme:nlp", unit, period);
        let now = ledger.now;
        let (mut steps, mut changed) = (0, 0);
        loop {
            LOOKED_AT.set(0);
            let done = ledger.prepare(now, &set);
            let looked_at = LOOKED_AT.get();
            assert!(looked_at <= COUNT_STEP + 100, "{looked_at} holds in one step");
            steps += 1;
            if done {
                break;
            }
            for _ in 0..50 {
                change(&mut ledger, now, changed);
                // Some holds that were counted, and some that were not.
                changed = (changed + 397) % HOLDS;
            }
        }
        assert!(steps >= HOLDS as usize / COUNT_STEP, "{steps} steps");
        let account = ledger.find_account("acme:nlp").expect("the account exists");
        let counted = ledger.count_usage(now, account, &terms);
        LOOKED_AT.set(0);
        let Reply::Budget(budget) = run(&mut ledger, &set) else { panic!("a budget") };
        assert_eq!(LOOKED_AT.get(), 0, "the decision itself reads no hold");
        assert_eq!((budget.spent, budget.held), counted);
        assert!(ledger.tallies.is_empty(), "the count is dropped after use");
        invariant::check(&ledger).expect("all invariants hold");
    }
}

fn forgetting_after_a_minute() -> Ledger {
    let mut ledger = Ledger::new();
    ledger.forget_by_age();
    let policy = Policy { retention_ms: 60_000, idempotency_ttl_ms: 60_000, ..Policy::default() };
    run(&mut ledger, &Command::SetPolicy(policy));
    ledger
}

/// Ten thousand holds, of which a thousand are settled.
fn with_settled_holds() -> Ledger {
    let mut ledger = forgetting_after_a_minute();
    tenant_with_holds(&mut ledger, "acme", 10_000);
    for number in (1..4_000).step_by(4) {
        change(&mut ledger, Timestamp::from_millis(1_577_836_800_000), number);
    }
    ledger
}

#[test]
fn a_count_follows_holds_that_are_forgotten_or_changed_before_it_is_used() {
    let mut ledger = with_settled_holds();
    let (set, terms) = budget_of("acme", BudgetUnit::Credits, BudgetPeriod::Total);
    assert!(!ledger.prepare(ledger.now, &set), "there is more to count");
    let later = ledger.now.plus_millis(600_000);
    crate::machine::advance(&mut ledger, later, |_, _| {});
    assert!(ledger.aging.forgotten_until.is_some(), "settled holds were forgotten");
    let account = ledger.find_account("acme").expect("the account exists");
    for number in (5_001..5_400).step_by(4) {
        while !ledger.prepare(later, &set) {}
        change(&mut ledger, later, number);
        let counted = ledger.counted(later, account, &terms);
        assert_eq!(counted, Some(ledger.count_usage(later, account, &terms)));
    }
}

#[test]
fn a_hold_in_a_slot_that_was_visited_while_free_is_counted() {
    let mut ledger = with_settled_holds();
    let (set, terms) = budget_of("acme", BudgetUnit::Credits, BudgetPeriod::Total);
    let later = ledger.now.plus_millis(600_000);
    crate::machine::advance(&mut ledger, later, |_, _| {});
    assert!(!ledger.prepare(later, &set), "there is more to count");
    let free = ledger.holds.next();
    assert!((free as usize) < COUNT_STEP, "slot {free} was visited while it was free");
    for number in (3..300).step_by(4) {
        change(&mut ledger, later, number);
        let (tenant, hold) = ("acme".into(), format!("new-{number}").as_str().into());
        let (usage, cause) = (Usage::Total(credits(2)), Cause::Holder);
        let settle = Command::SettleHold { tenant, hold, usage, cause };
        // Every third command was rolled back.
        let placed = !number.is_multiple_of(3);
        let settled = execute(&mut ledger, later, &Envelope::default(), &settle, &mut Vec::new());
        assert_eq!(settled.is_ok(), placed, "{number}");
    }
    while !ledger.prepare(later, &set) {}
    let account = ledger.find_account("acme").expect("the account exists");
    let counted = ledger.counted(later, account, &terms);
    assert_eq!(counted, Some(ledger.count_usage(later, account, &terms)));
}

#[test]
fn a_budget_that_is_set_after_a_hold_came_back_does_not_count_it() {
    for in_steps in [false, true] {
        let mut ledger = forgetting_after_a_minute();
        tenant_with_holds(&mut ledger, "acme", 1);
        let now = ledger.now;
        let (tenant, hold): (AccountPath, HoldId) = ("acme".into(), "h0".into());
        let (usage, cause) = (Usage::Total(credits(10)), Cause::Holder);
        run(&mut ledger, &Command::SettleHold { tenant, hold, usage, cause });
        let tenant = ledger.find_account("acme").expect("it is there");
        let spent = ledger.find_hold(tenant, HoldKind::Hold, "h0").expect("it is there");
        let record = ledger.archive(spent).expect("it is closed");
        let later = now.plus_millis(600_000);
        crate::machine::advance(&mut ledger, later, |_, _| {});
        assert_eq!(ledger.find_hold(tenant, HoldKind::Hold, "h0"), None, "it is forgotten");
        let refund = |ledger: &mut Ledger, id: &str, amount| {
            let refund = Command::Refund(Refund {
                id: id.into(),
                tenant: "acme".into(),
                of: RefundOf::Hold("h0".into()),
                amount: Some(credits(amount)),
                compensate: false,
                note: None,
                recalled: vec![RecalledHold { record: Box::new(record.clone()) }],
            });
            let events = &mut Vec::new();
            execute(ledger, later, &Envelope::default(), &refund, events).expect("accepted");
        };
        refund(&mut ledger, "r1", 1);
        let (set, _) = budget_of("acme", BudgetUnit::Credits, BudgetPeriod::Total);
        while in_steps && !ledger.prepare(later, &set) {}
        let events = &mut Vec::new();
        execute(&mut ledger, later, &Envelope::default(), &set, events).expect("accepted");
        let used = |ledger: &Ledger| ledger.account(tenant).budgets()[0].numbers(ledger.now);
        assert_eq!(used(&ledger), (0, 0), "as if it was set a moment earlier");
        refund(&mut ledger, "r2", 9);
        assert_eq!(used(&ledger), (0, 0), "nothing is spent, and nothing is said to be");
        invariant::check(&ledger).expect("all laws hold");
    }
}

#[test]
fn all_budgets_of_a_group_use_what_was_counted_for_them() {
    let mut ledger = Ledger::new();
    tenant_with_holds(&mut ledger, "acme", 5_000);
    let (set, terms) = budget_of("acme", BudgetUnit::Credits, BudgetPeriod::Month);
    let second = Command::SetBudget { path: "acme".into(), budget: "c".into(), terms };
    while !ledger.prepare(ledger.now, &set) {}
    LOOKED_AT.set(0);
    ledger.begin_group();
    for command in [&set, &second] {
        let Reply::Budget(budget) = run(&mut ledger, command) else { panic!("a budget") };
        assert_eq!((budget.spent, budget.held), (0, 50_000));
    }
    ledger.commit_group();
    assert_eq!(LOOKED_AT.get(), 0, "no hold is read again");
    assert!(ledger.tallies.is_empty(), "the count is dropped after use");
    invariant::check(&ledger).expect("all invariants hold");
}

/// Prepares a group and decides it as the engine does. Says how many of its commands were decided.
fn run_group(ledger: &mut Ledger, commands: &[Command]) -> usize {
    let group: Vec<_> =
        commands.iter().map(|command| (Envelope::default(), command.clone())).collect();
    while ledger.prepare_group(ledger.now, &group) == Preparation::Unfinished {}
    decide_group(ledger, commands)
}

fn decide_group(ledger: &mut Ledger, commands: &[Command]) -> usize {
    LOOKED_AT.set(0);
    ledger.begin_group();
    for (decided, command) in commands.iter().enumerate() {
        if !ledger.prepare(ledger.now, command) {
            ledger.rollback_group();
            return decided;
        }
        run(ledger, command);
    }
    ledger.commit_group();
    commands.len()
}

#[test]
fn a_budget_that_a_group_removes_and_sets_again_is_counted_before_the_group() {
    let mut ledger = Ledger::new();
    tenant_with_holds(&mut ledger, "acme", 5_000);
    let (set, _) = budget_of("acme", BudgetUnit::Credits, BudgetPeriod::Total);
    while !ledger.prepare(ledger.now, &set) {}
    run(&mut ledger, &set);
    let Command::SetBudget { path, budget, .. } = set.clone() else { panic!("a budget") };
    let pair = [Command::RemoveBudget { path, budget }, set.clone()];
    let few: Vec<Command> = pair.iter().cycle().take(2 * 16).cloned().collect();
    assert_eq!(run_group(&mut ledger, &few), few.len());
    assert!(LOOKED_AT.get() <= COUNT_STEP, "{} holds in one decision", LOOKED_AT.get());
    let many: Vec<_> = pair.iter().cycle().take(2 * 17).cloned().collect();
    let many: Vec<_> = many.into_iter().map(|one| (Envelope::default(), one)).collect();
    let prepared = ledger.prepare_group(ledger.now, &many);
    assert_eq!(prepared, Preparation::TooMuch, "each is a new budget");
    invariant::check(&ledger).expect("all laws hold");
}

#[test]
fn a_group_that_was_not_prepared_is_not_decided_by_a_walk() {
    let mut ledger = Ledger::new();
    tenant_with_holds(&mut ledger, "acme", 5_000);
    let (set, _) = budget_of("acme", BudgetUnit::Credits, BudgetPeriod::Total);
    assert_eq!(decide_group(&mut ledger, std::slice::from_ref(&set)), 0);
    assert_eq!(LOOKED_AT.get(), 0);
    // What was counted before is not needed any more once another has set a budget there.
    let group = [(Envelope::default(), set.clone())];
    while ledger.prepare_group(ledger.now, &group) == Preparation::Unfinished {}
    run(&mut ledger, &set);
    let other = budget_of("acme", BudgetUnit::GpuHours, BudgetPeriod::Total).0;
    assert_eq!(decide_group(&mut ledger, std::slice::from_ref(&other)), 0);
    assert_eq!(LOOKED_AT.get(), 0);
    invariant::check(&ledger).expect("all laws hold");
}

#[test]
fn a_count_follows_a_group_that_uses_it_and_is_taken_back() {
    let mut ledger = Ledger::new();
    tenant_with_holds(&mut ledger, "acme", 5_000);
    let (set, terms) = budget_of("acme", BudgetUnit::Credits, BudgetPeriod::Total);
    while !ledger.prepare(ledger.now, &set) {}
    let now = ledger.now;
    ledger.begin_group();
    for number in [1, 2] {
        let (tenant, hold) = ("acme".into(), format!("h{number}").as_str().into());
        let (usage, cause) = (Usage::Total(credits(2)), Cause::Holder);
        run(&mut ledger, &Command::SettleHold { tenant, hold, usage, cause });
    }
    assert!(ledger.prepare(now, &set), "it was counted");
    let account = ledger.find_account("acme").expect("it is there");
    let counted = ledger.counted(now, account, &terms);
    assert_eq!(counted, Some(ledger.count_usage(now, account, &terms)));
    ledger.rollback_group();
    let counted = ledger.counted(now, account, &terms);
    assert_eq!(counted, Some(ledger.count_usage(now, account, &terms)));
}

#[test]
fn a_budget_of_an_account_opened_by_the_same_group_reads_no_older_hold() {
    let mut ledger = Ledger::new();
    tenant_with_holds(&mut ledger, "acme", 5_000);
    let (set, _) = budget_of("acme:new", BudgetUnit::Credits, BudgetPeriod::Total);
    ledger.begin_group();
    let settings = AccountSettings::default();
    let (path, kind) = ("acme:new".into(), AccountKind::Team);
    run(&mut ledger, &Command::OpenAccount { path, kind, settings });
    let now = ledger.now;
    change(&mut ledger, now, 7);
    LOOKED_AT.set(0);
    let Reply::Budget(budget) = run(&mut ledger, &set) else { panic!("a budget") };
    assert_eq!((budget.spent, budget.held), (0, 0));
    assert!(LOOKED_AT.get() <= 1, "only holds that this group placed");
    ledger.commit_group();
    invariant::check(&ledger).expect("all invariants hold");
}
