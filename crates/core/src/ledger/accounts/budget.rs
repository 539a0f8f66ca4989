//! Budgets: limits on what a subtree draws in a calendar period.
//!
//! A draw counts in the period in which it was made. Captures move it from held to spent in that
//! period; returns and refunds subtract it there. A budget keeps numbers for its current period
//! only. Periods follow from time, so no timer resets a budget.

use super::account::Path;
use crate::ledger::command::{BudgetMode, BudgetPeriod, BudgetTerms, BudgetUnit};
use crate::ledger::credits::price::{HOUR_MS, WHOLE_GPU};
use crate::ledger::event::Event;
use crate::ledger::holds::hold::Hold;
use crate::ledger::id::{AccountNo, Name};
use crate::ledger::refusal::{Blocker, Refusal, Resource};
use crate::ledger::reply::{BudgetReply, Reply};
use crate::ledger::state::Ledger;
use crate::ledger::undo::Undo;
use crate::time::{DAY_MS, Timestamp, days_from_civil};

/// The most budgets of one account. A draw checks all of them on its path, and a refusal may name
/// each.
pub const MAX_BUDGETS: usize = 16;

/// One budget and its numbers for the period that began at `period_start`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Its name, unique within its account.
    pub name: Name,
    /// Its terms.
    pub terms: BudgetTerms,
    /// The start of the period that the numbers below are for.
    pub period_start: Timestamp,
    /// Captured credits and uncollected usage.
    pub spent: i128,
    /// Held credits.
    pub held: i128,
    /// The thresholds reached in this period, in percent.
    pub alerted: Vec<u16>,
}

/// A change of budgets. Credits in micro-credits, GPU time in thousandths of GPU-milliseconds.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::ledger) struct Change {
    pub(in crate::ledger) spent: i128,
    pub(in crate::ledger) held: i128,
    pub(in crate::ledger) gpu_spent: i128,
    pub(in crate::ledger) gpu_held: i128,
}

impl Change {
    /// Held credits were captured.
    pub(in crate::ledger) fn captured(amount: i128) -> Change {
        Change { spent: amount, held: -amount, ..Change::default() }
    }
}

impl BudgetTerms {
    /// The period that contains `at`: its start and the start of the next one.
    pub fn period_of(&self, at: Timestamp) -> (Timestamp, Option<Timestamp>) {
        let offset = i64::from(self.utc_offset_minutes) * 60_000;
        let local = Timestamp::from_millis(at.millis() + offset);
        let day = local.millis().div_euclid(DAY_MS);
        let (first, next) = match self.period {
            BudgetPeriod::Total => return (Timestamp::MIN, None),
            BudgetPeriod::Day => (day, day + 1),
            BudgetPeriod::Week => {
                // 1970-01-01 was a Thursday, the fourth day of a week that begins on Monday.
                let monday = day - (day + 3).rem_euclid(7);
                (monday, monday + 7)
            }
            BudgetPeriod::Month => {
                let (year, month, _) = local.civil_date();
                let (next_year, next_month) =
                    if month == 12 { (year + 1, 1) } else { (year, month + 1) };
                (days_from_civil(year, month, 1), days_from_civil(next_year, next_month, 1))
            }
        };
        let instant = |day: i64| Timestamp::from_millis(day * DAY_MS - offset);
        (instant(first), Some(instant(next)))
    }

    /// The limit in the unit of the numbers.
    pub fn limit_units(&self) -> i128 {
        let limit = i128::from(self.limit.micros());
        match self.unit {
            BudgetUnit::Credits => limit,
            // From millionths of a GPU-hour to thousandths of a GPU-millisecond.
            BudgetUnit::GpuHours => limit * i128::from(HOUR_MS) * i128::from(WHOLE_GPU) / 1_000_000,
        }
    }

    /// The amount that a draw adds, in the unit of the numbers.
    fn requested(&self, credits: i128, gpu: i128) -> i128 {
        match self.unit {
            BudgetUnit::Credits => credits,
            BudgetUnit::GpuHours => gpu,
        }
    }

    /// Whether the numbers of one set of terms are right for another.
    pub(super) fn counts_like(&self, other: &BudgetTerms) -> bool {
        (self.unit, self.period, self.utc_offset_minutes)
            == (other.unit, other.period, other.utc_offset_minutes)
    }
}

impl Budget {
    /// The spent and held amounts in the period that contains `now`.
    pub fn numbers(&self, now: Timestamp) -> (i128, i128) {
        if self.terms.period_of(now).0 == self.period_start {
            (self.spent, self.held)
        } else {
            (0, 0)
        }
    }

    /// The used amount in the period that contains `now`.
    pub fn used(&self, now: Timestamp) -> i128 {
        let (spent, held) = self.numbers(now);
        spent + held
    }

    /// How much of the returned amounts was drawn in the period that contains `now`.
    fn relief(&self, now: Timestamp, relief: &[(Timestamp, i128, i128)]) -> i128 {
        if relief.is_empty() {
            return 0;
        }
        let (start, _) = self.terms.period_of(now);
        let current = relief.iter().filter(|(drawn_at, ..)| *drawn_at >= start);
        current.map(|(_, credits, gpu)| self.terms.requested(*credits, *gpu)).sum()
    }

    fn roll(&mut self, now: Timestamp) {
        let (start, _) = self.terms.period_of(now);
        if start != self.period_start {
            self.period_start = start;
            self.spent = 0;
            self.held = 0;
            self.alerted.clear();
        }
    }

    fn has_alerted(&self, now: Timestamp, percent: u16) -> bool {
        self.terms.period_of(now).0 == self.period_start && self.alerted.contains(&percent)
    }
}

impl Ledger {
    /// The hard budgets on a path that a draw would exceed, nearest first.
    pub(in crate::ledger) fn blocking_budgets(
        &self,
        now: Timestamp,
        path: &Path,
        credits: i128,
        gpu: i128,
    ) -> Vec<Blocker> {
        self.blocking_after(now, path, credits, gpu, &[])
    }

    /// Like [`Ledger::blocking_budgets`], after returned amounts are subtracted. `relief` lists the
    /// instant of each draw, its credits and its GPU time.
    pub(in crate::ledger) fn blocking_after(
        &self,
        now: Timestamp,
        path: &Path,
        credits: i128,
        gpu: i128,
        relief: &[(Timestamp, i128, i128)],
    ) -> Vec<Blocker> {
        let mut blockers = Vec::new();
        for account in path {
            let account = self.account(*account);
            for budget in account.budgets() {
                let requested = budget.terms.requested(credits, gpu);
                let limit = budget.terms.limit_units();
                let (spent, mut held) = budget.numbers(now);
                held -= budget.relief(now, relief);
                let hard = budget.terms.mode == BudgetMode::Hard;
                if hard && requested > 0 && spent + held + requested > limit {
                    blockers.push(Blocker::Budget {
                        account: account.path.clone(),
                        budget: budget.name.clone(),
                        unit: budget.terms.unit,
                        limit,
                        spent,
                        held,
                        requested,
                        period_end: budget.terms.period_of(now).1,
                    });
                }
            }
        }
        blockers
    }

    /// The most credits that the hard budgets on a path allow to be drawn.
    pub(in crate::ledger) fn budget_room(&self, now: Timestamp, path: &Path) -> u128 {
        let budgets = path.iter().flat_map(|account| self.account(*account).budgets());
        budgets
            .filter(|b| b.terms.mode == BudgetMode::Hard && b.terms.unit == BudgetUnit::Credits)
            .map(|b| u128::try_from(b.terms.limit_units() - b.used(now)).unwrap_or(0))
            .min()
            .unwrap_or(u128::MAX)
    }

    /// Pushes the thresholds that a draw reaches.
    pub(in crate::ledger) fn push_thresholds(
        &self,
        now: Timestamp,
        path: &Path,
        credits: i128,
        gpu: i128,
        events: &mut Vec<Event>,
    ) {
        self.thresholds_after(now, path, credits, gpu, &[], events);
    }

    /// Like [`Ledger::push_thresholds`], after returned amounts are subtracted. No threshold is
    /// pushed twice.
    pub(in crate::ledger) fn thresholds_after(
        &self,
        now: Timestamp,
        path: &Path,
        credits: i128,
        gpu: i128,
        relief: &[(Timestamp, i128, i128)],
        events: &mut Vec<Event>,
    ) {
        for account in path {
            for budget in self.account(*account).budgets() {
                let added = budget.terms.requested(credits, gpu);
                if added == 0 {
                    continue;
                }
                let used = budget.used(now) + added - budget.relief(now, relief);
                for percent in &budget.terms.thresholds {
                    let reached = used * 100 >= budget.terms.limit_units() * i128::from(*percent);
                    let first = !budget.has_alerted(now, *percent)
                        && !is_pushed(events, *account, &budget.name, *percent);
                    if reached && first {
                        events.push(Event::BudgetThresholdReached {
                            account: *account,
                            budget: budget.name.clone(),
                            percent: *percent,
                            used,
                        });
                    }
                }
            }
        }
    }

    /// Adds a change to all budgets on the path whose current period contains `drawn_at`.
    pub(in crate::ledger) fn change_budgets(
        &mut self,
        account: AccountNo,
        drawn_at: Timestamp,
        change: Change,
    ) {
        let now = self.now;
        let mut next = Some(account);
        while let Some(account) = next {
            next = self.account(account).parent;
            if self.account(account).budgets().is_empty() {
                continue;
            }
            self.remember_account(account);
            for budget in &mut self.rare_account(account).budgets {
                budget.roll(now);
                if drawn_at < budget.period_start {
                    continue;
                }
                let (spent, held) = match budget.terms.unit {
                    BudgetUnit::Credits => (change.spent, change.held),
                    BudgetUnit::GpuHours => (change.gpu_spent, change.gpu_held),
                };
                // A recounted budget does not include holds that were forgotten by then, so their
                // changes must not make it negative.
                budget.spent = (budget.spent + spent).max(0);
                budget.held = (budget.held + held).max(0);
            }
        }
    }

    pub(in crate::ledger) fn decide_set_budget(
        &self,
        now: Timestamp,
        path: &Name,
        name: &Name,
        terms: &BudgetTerms,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let account = self.existing_account(path)?;
        let budgets = self.account(account).budgets();
        let present = budgets.iter().find(|b| b.name == *name);
        if present.is_none() && budgets.len() >= MAX_BUDGETS {
            return Err(Refusal::InvalidField {
                field: "name",
                reason: "an account has at most 16 budgets; change or remove one of them",
            });
        }
        let (spent, held) = match present {
            Some(present) if present.terms.counts_like(terms) => present.numbers(now),
            Some(_) | None => self
                .counted(now, account, terms)
                .unwrap_or_else(|| self.count_usage(now, account, terms)),
        };
        if present.is_none_or(|present| present.terms != *terms) {
            events.push(Event::BudgetSet {
                account,
                budget: name.clone(),
                terms: terms.clone(),
                period_start: terms.period_of(now).0,
                spent,
                held,
            });
        }
        let (budget, terms) = (name.clone(), terms.clone());
        Ok(Reply::Budget(Box::new(BudgetReply { account, budget, terms, at: now, spent, held })))
    }

    pub(in crate::ledger) fn decide_remove_budget(
        &self,
        path: &Name,
        name: &Name,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let account = self.existing_account(path)?;
        if !self.account(account).budgets().iter().any(|b| b.name == *name) {
            return Err(Refusal::NotFound { what: Resource::Budget, name: name.clone() });
        }
        events.push(Event::BudgetRemoved { account, budget: name.clone() });
        Ok(Reply::Done)
    }

    /// Whether the usage of the subtree must be counted to set a budget.
    pub(super) fn must_count(&self, account: AccountNo, name: &Name, terms: &BudgetTerms) -> bool {
        let budgets = self.account(account).budgets();
        match budgets.iter().find(|budget| budget.name == *name) {
            Some(present) => !present.terms.counts_like(terms),
            // A budget above the limit is refused without a count.
            None => budgets.len() < MAX_BUDGETS,
        }
    }

    /// The amounts that the holds and charges of a subtree have spent and hold in the period that
    /// contains `now`.
    ///
    /// Walks all holds that are not forgotten: for a budget that is new or counts differently, and
    /// to check the numbers of an existing one. If there are many holds, [`Ledger::count_some`] has
    /// counted them before, and this function is not called.
    pub(in crate::ledger) fn count_usage(
        &self,
        now: Timestamp,
        account: AccountNo,
        terms: &BudgetTerms,
    ) -> (i128, i128) {
        let (start, _) = terms.period_of(now);
        let (mut spent, mut held) = (0, 0);
        let mut add = |hold: &Hold| {
            #[cfg(test)]
            tests::LOOKED_AT.set(tests::LOOKED_AT.get() + 1);
            if self.is_at_or_below(hold.account, account) {
                let (more_spent, more_held) = hold.usage_since(start, terms.unit);
                spent += more_spent;
                held += more_held;
            }
        };
        match self.undo.as_deref().filter(|_| self.is_new_in_group(account)) {
            // An account that the current group has opened has no hold of before.
            Some(steps) => steps.iter().for_each(|step| {
                if let Undo::HoldPlaced(number, _) = step {
                    add(self.live_hold(*number));
                }
            }),
            None => self.holds.iter().for_each(|(_, hold)| add(hold)),
        }
        (spent, held)
    }

    /// Whether the current group has opened an account.
    pub(super) fn is_new_in_group(&self, account: AccountNo) -> bool {
        let Some(steps) = self.undo.as_deref() else { return false };
        let opened = steps.iter().filter(|step| matches!(step, Undo::AccountOpened)).count();
        account.index() + opened >= self.accounts.len()
    }

    pub(in crate::ledger) fn apply_budget_set(
        &mut self,
        account: AccountNo,
        name: &Name,
        terms: &BudgetTerms,
        numbers: (Timestamp, i128, i128),
    ) {
        self.remember_account(account);
        self.tallies.note_set(account, self.undo.is_some());
        let (period_start, spent, held) = numbers;
        let budgets = &mut self.rare_account(account).budgets;
        let place = budgets.binary_search_by(|budget| budget.name.cmp(name));
        let alerted = match place {
            Ok(at)
                if budgets[at].terms.counts_like(terms)
                    && budgets[at].period_start == period_start =>
            {
                let kept = budgets[at].alerted.iter().copied();
                kept.filter(|percent| terms.thresholds.contains(percent)).collect()
            }
            Ok(_) | Err(_) => Vec::new(),
        };
        let budget =
            Budget { name: name.clone(), terms: terms.clone(), period_start, spent, held, alerted };
        match place {
            Ok(at) => budgets[at] = budget,
            Err(at) => budgets.insert(at, budget),
        }
    }

    pub(in crate::ledger) fn apply_budget_removed(&mut self, account: AccountNo, name: &Name) {
        self.remember_account(account);
        self.rare_account(account).budgets.retain(|budget| budget.name != *name);
    }

    pub(in crate::ledger) fn apply_threshold(
        &mut self,
        account: AccountNo,
        name: &Name,
        percent: u16,
    ) {
        self.remember_account(account);
        let now = self.now;
        for budget in &mut self.rare_account(account).budgets {
            if budget.name == *name {
                budget.roll(now);
                budget.alerted.push(percent);
            }
        }
    }
}

/// Whether the decision has already pushed a threshold.
fn is_pushed(events: &[Event], number: AccountNo, name: &Name, threshold: u16) -> bool {
    events.iter().any(|event| {
        if let Event::BudgetThresholdReached { account, budget, percent, used: _ } = event {
            (*account, budget, *percent) == (number, name, threshold)
        } else {
            false
        }
    })
}

impl Hold {
    /// What it spent and holds of what it drew at or after `start`. Nothing if it was forgotten and came back for a
    /// refund: its refunds relieve no budget, so none counts it.
    pub(super) fn usage_since(&self, start: Timestamp, unit: BudgetUnit) -> (i128, i128) {
        if self.is_revived() {
            return (0, 0);
        }
        match unit {
            BudgetUnit::Credits => self.credits_since(start),
            BudgetUnit::GpuHours => self.gpu_time_since(start),
        }
    }

    /// The spent and held parts of what it drew at or after `start`, in micro-credits.
    fn credits_since(&self, start: Timestamp) -> (i128, i128) {
        let (mut spent, mut held) = (0, 0);
        let mut refunded = self.refunded;
        for slice in self.slices.iter().rev() {
            let returned = slice.captured.min(refunded);
            refunded -= returned;
            if self.drawn_at(slice) >= start {
                spent += i128::from(slice.captured - returned);
                held += if self.is_open() { i128::from(slice.room()) } else { 0 };
            }
        }
        let uncollected = self.rare.iter().flat_map(|rare| &rare.uncollected);
        let late: u64 = uncollected.filter(|(at, _)| *at >= start).map(|(_, amount)| amount).sum();
        (spent + i128::from(late), held)
    }

    /// Like [`Hold::credits_since`] for GPU time, in thousandths of GPU-milliseconds.
    fn gpu_time_since(&self, start: Timestamp) -> (i128, i128) {
        let Some(rare) = &self.rare else { return (0, 0) };
        let (mut spent, mut held) = (0, 0);
        let mut used = rare.gpu_spent;
        for (at, drawn) in &rare.draws {
            let of_this = used.min(*drawn);
            used -= of_this;
            if *at >= start {
                spent += of_this;
                held += if self.is_open() { drawn - of_this } else { 0 };
            }
        }
        (spent, held)
    }
}

#[cfg(test)]
pub(in crate::ledger) mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::credits::Credits;
    use crate::ledger::accounts::tally::COUNT_STEP;
    use crate::ledger::command::{
        AccountKind, AccountSettings, Cause, Command, Context, Envelope, GrantKind, IssueGrant,
        OnExpiry, PlaceHold, Policy, RecalledHold, Refund, RefundOf, Usage,
    };
    use crate::ledger::holds::hold::HoldKind;
    use crate::ledger::invariant;
    use crate::machine::{Machine, Preparation, execute};

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
        let grant = IssueGrant {
            id: "g".into(),
            account: tenant.into(),
            amount: credits(1_000_000),
            kind: GrantKind::Purchase,
            effective_at: None,
            expires_at: None,
            priority: 100,
            restriction: None,
            reference: None,
            metadata: None,
        };
        run(ledger, &Command::IssueGrant(grant));
        for number in 0..count {
            // Every second hold is in the team.
            let account = if number % 2 == 0 { tenant.into() } else { team.as_str().into() };
            let hold = PlaceHold {
                id: format!("h{number}").as_str().into(),
                account,
                amount: credits(10),
                ttl_ms: None,
                context: Context::default(),
                on_expiry: OnExpiry::HonorHold,
                rate: None,
                gpu_ms: 0,
                reference: None,
            };
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
        let (tenant, hold): (Name, Name) = ("acme".into(), format!("h{number}").as_str().into());
        let usage = |micros| Usage::Total(credits(micros));
        let cause = Cause::Holder;
        let new = PlaceHold {
            id: format!("new-{number}").as_str().into(),
            account: if number.is_multiple_of(2) { "acme" } else { "acme:nlp" }.into(),
            amount: credits(3),
            ttl_ms: None,
            context: Context::default(),
            on_expiry: OnExpiry::HonorHold,
            rate: None,
            gpu_ms: 7,
            reference: None,
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
        execute(ledger, now, &Envelope::default(), &command, events)
            .expect("the command is accepted");
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

    #[test]
    fn a_count_follows_holds_that_are_forgotten_or_changed_before_it_is_used() {
        let mut ledger = Ledger::new();
        let policy =
            Policy { retention_ms: 60_000, idempotency_ttl_ms: 60_000, ..Policy::default() };
        run(&mut ledger, &Command::SetPolicy(policy));
        tenant_with_holds(&mut ledger, "acme", 10_000);
        let (set, terms) = budget_of("acme", BudgetUnit::Credits, BudgetPeriod::Total);
        for number in (1..4_000).step_by(4) {
            change(&mut ledger, Timestamp::from_millis(1_577_836_800_000), number);
        }
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
        let mut ledger = Ledger::new();
        let policy =
            Policy { retention_ms: 60_000, idempotency_ttl_ms: 60_000, ..Policy::default() };
        run(&mut ledger, &Command::SetPolicy(policy));
        tenant_with_holds(&mut ledger, "acme", 10_000);
        let (set, terms) = budget_of("acme", BudgetUnit::Credits, BudgetPeriod::Total);
        for number in (1..4_000).step_by(4) {
            change(&mut ledger, Timestamp::from_millis(1_577_836_800_000), number);
        }
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
            let settled =
                execute(&mut ledger, later, &Envelope::default(), &settle, &mut Vec::new());
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
            let mut ledger = Ledger::new();
            let policy =
                Policy { retention_ms: 60_000, idempotency_ttl_ms: 60_000, ..Policy::default() };
            run(&mut ledger, &Command::SetPolicy(policy));
            tenant_with_holds(&mut ledger, "acme", 1);
            let now = ledger.now;
            let (tenant, hold): (Name, Name) = ("acme".into(), "h0".into());
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
}
