//! What forgotten holds and charges have spent, so that a budget that is set later still counts it.
//!
//! Kept for each account over its subtree, by the quarter of an hour in which it was drawn: periods of budgets begin at
//! full quarters of an hour in every time zone. A period that begins elsewhere counts its whole first quarter. What was
//! drawn more than [`KEPT_MS`] ago counts only in budgets without a period, and is kept as one sum.

use std::collections::BTreeMap;

use crate::ledger::command::BudgetUnit;
use crate::ledger::holds::hold::Hold;
use crate::ledger::id::AccountNo;
use crate::ledger::state::Ledger;
use crate::ledger::undo::Undo;
use crate::time::Timestamp;

const QUARTER_MS: i64 = 15 * 60_000;
/// Longer than any period.
const KEPT_MS: i64 = 33 * 24 * 3_600_000;
/// The place of everything that was drawn earlier.
const EARLIER: i64 = i64::MIN;

/// Spent credits and GPU time.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PastSpending {
    /// In micro-credits.
    pub credits: i128,
    /// In thousandths of GPU-milliseconds.
    pub gpu: i128,
}

/// By account and quarter of an hour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PastUsage {
    /// By account and the number of the quarter since the epoch.
    pub by_quarter: BTreeMap<(AccountNo, i64), PastSpending>,
}

fn quarter(at: Timestamp) -> i64 {
    at.millis().div_euclid(QUARTER_MS)
}

impl PastUsage {
    /// What the holds of a subtree spent that were drawn at or after an instant.
    pub(super) fn since(&self, account: AccountNo, start: Timestamp, unit: BudgetUnit) -> i128 {
        let first = if start == Timestamp::MIN { EARLIER } else { quarter(start) };
        let spent = self.by_quarter.range((account, first)..=(account, i64::MAX));
        spent
            .map(|(_, spent)| match unit {
                BudgetUnit::Credits => spent.credits,
                BudgetUnit::GpuHours => spent.gpu,
            })
            .sum()
    }

    /// Whether it knows exactly what was drawn since an instant.
    pub(in crate::ledger) fn is_exact_since(start: Timestamp) -> bool {
        start == Timestamp::MIN || start.millis().rem_euclid(QUARTER_MS) == 0
    }

    /// The place of what was drawn in a quarter: its own while it has one.
    fn place(&self, account: AccountNo, drawn: i64, oldest: i64) -> i64 {
        let own = drawn >= oldest || self.by_quarter.contains_key(&(account, drawn));
        if own { drawn } else { EARLIER }
    }
}

impl Ledger {
    /// Adds what a closed hold or charge spent, or takes it off again.
    pub(in crate::ledger) fn enter_past_usage(&mut self, hold: &Hold, sign: i128) {
        let oldest = quarter(self.now.plus_millis(-KEPT_MS));
        let mut spent: BTreeMap<i64, PastSpending> = BTreeMap::new();
        hold.each_spent(|at, credits, gpu| {
            let drawn = spent.entry(quarter(at)).or_default();
            drawn.credits += sign * credits;
            drawn.gpu += sign * gpu;
        });
        for account in self.path(hold.account) {
            for (drawn, spent) in &spent {
                let place = self.past_usage.place(account, *drawn, oldest);
                self.add_past_usage((account, place), *spent);
            }
            self.merge_past_usage(account, oldest);
        }
    }

    fn add_past_usage(&mut self, place: (AccountNo, i64), more: PastSpending) {
        let before = self.past_usage.by_quarter.get(&place).copied();
        let sum = before.unwrap_or_default();
        let sum = PastSpending { credits: sum.credits + more.credits, gpu: sum.gpu + more.gpu };
        self.set_past_usage(place, Some(sum).filter(|sum| *sum != PastSpending::default()));
        self.remember(|| Undo::PastUsage(place, before));
    }

    /// Sets one entry, or removes it.
    pub(in crate::ledger) fn set_past_usage(
        &mut self,
        place: (AccountNo, i64),
        spent: Option<PastSpending>,
    ) {
        match spent {
            Some(spent) => _ = self.past_usage.by_quarter.insert(place, spent),
            None => _ = self.past_usage.by_quarter.remove(&place),
        }
    }

    /// Adds quarters that no period reaches any more to the sum of all earlier ones.
    fn merge_past_usage(&mut self, account: AccountNo, oldest: i64) {
        // Nothing is merged in a group, which may be undone.
        while self.undo.is_none() {
            let past = (account, EARLIER + 1)..(account, oldest);
            let Some((place, spent)) = self.past_usage.by_quarter.range(past).next() else {
                return;
            };
            let (place, spent) = (*place, *spent);
            self.past_usage.by_quarter.remove(&place);
            self.add_past_usage((account, EARLIER), spent);
        }
    }
}
