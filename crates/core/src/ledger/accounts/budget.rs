//! Budgets: limits on what a subtree draws in a calendar period.
//!
//! A draw counts in the period in which it was made. Captures move it from held to spent in that
//! period; returns and refunds subtract it there. A budget keeps numbers for its current period
//! only. Periods follow from time, so no timer resets a budget.

use bursar_seeded::{Bug, seeded};

use super::account::Path;
use crate::ledger::command::{BudgetMode, BudgetPeriod, BudgetTerms, BudgetUnit};
use crate::ledger::credits::price::{HOUR_MS, WHOLE_GPU};
use crate::ledger::event::Event;
use crate::ledger::id::AccountNo;
use crate::ledger::refusal::{Blocker, Refusal, Resource};
use crate::ledger::reply::{BudgetReply, Reply};
use crate::ledger::state::Ledger;
use crate::name::{AccountPath, BudgetName};
use crate::time::{DAY_MS, Timestamp, days_from_civil};
use usage::is_pushed;

/// The most budgets of one account. A draw checks all of them on its path, and a refusal may name
/// each.
pub const MAX_BUDGETS: usize = 16;

/// One budget and its numbers for the period that began at `period_start`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Its name, unique within its account.
    pub name: BudgetName,
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

impl BudgetPeriod {
    /// The days of the calendar period that contains an instant: the first, and the first of the
    /// next period, in days since 1970. `None` for a period without end.
    pub fn days_of(self, at: Timestamp) -> Option<(i64, i64)> {
        let day = at.millis().div_euclid(DAY_MS);
        Some(match self {
            BudgetPeriod::Total => return None,
            BudgetPeriod::Day => (day, day + 1),
            BudgetPeriod::Week => {
                // 1970-01-01 was a Thursday, the fourth day of a week that begins on Monday.
                let monday = day - (day + 3).rem_euclid(7);
                (monday, monday + 7)
            }
            BudgetPeriod::Month => {
                let (year, month, _) = at.civil_date();
                let (next_year, next_month) =
                    if month == 12 { (year + 1, 1) } else { (year, month + 1) };
                (days_from_civil(year, month, 1), days_from_civil(next_year, next_month, 1))
            }
        })
    }
}

impl BudgetUnit {
    /// A number of a budget in millionths of a credit or of a GPU-hour, rounded down.
    pub fn micros(self, number: i128) -> i128 {
        match self {
            BudgetUnit::Credits => number,
            // From thousandths of a GPU-millisecond to millionths of a GPU-hour.
            BudgetUnit::GpuHours => {
                number / (i128::from(HOUR_MS) * i128::from(WHOLE_GPU) / 1_000_000)
            }
        }
    }
}

impl BudgetTerms {
    /// The period that contains `at`: its start and the start of the next one.
    pub fn period_of(&self, at: Timestamp) -> (Timestamp, Option<Timestamp>) {
        let offset = i64::from(self.utc_offset_minutes) * 60_000;
        let local = Timestamp::from_millis(at.millis() + offset);
        let Some((first, next)) = self.period.days_of(local) else {
            return (Timestamp::MIN, None);
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
                if seeded(Bug::BudgetIgnoresHeld) {
                    held = 0;
                }
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
        path: &AccountPath,
        name: &BudgetName,
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
        path: &AccountPath,
        name: &BudgetName,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let account = self.existing_account(path)?;
        if !self.account(account).budgets().iter().any(|b| b.name == *name) {
            return Err(Refusal::NotFound { what: Resource::Budget, name: name.clone().into() });
        }
        events.push(Event::BudgetRemoved { account, budget: name.clone() });
        Ok(Reply::Done)
    }

    pub(in crate::ledger) fn apply_budget_set(
        &mut self,
        account: AccountNo,
        name: &BudgetName,
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

    pub(in crate::ledger) fn apply_budget_removed(
        &mut self,
        account: AccountNo,
        name: &BudgetName,
    ) {
        self.remember_account(account);
        self.rare_account(account).budgets.retain(|budget| budget.name != *name);
    }

    pub(in crate::ledger) fn apply_threshold(
        &mut self,
        account: AccountNo,
        name: &BudgetName,
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

#[cfg(test)]
pub(in crate::ledger) mod tests;
mod usage;
