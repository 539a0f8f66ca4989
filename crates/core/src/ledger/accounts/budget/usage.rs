//! What a budget counts of holds that were placed before it was set.

use super::MAX_BUDGETS;
use crate::ledger::command::{BudgetTerms, BudgetUnit};
use crate::ledger::event::Event;
use crate::ledger::holds::hold::Hold;
use crate::ledger::id::AccountNo;
use crate::ledger::state::Ledger;
use crate::ledger::undo::Undo;
use crate::name::BudgetName;
use crate::time::Timestamp;

impl Ledger {
    /// Whether the usage of the subtree must be counted to set a budget.
    pub(in crate::ledger::accounts) fn must_count(
        &self,
        account: AccountNo,
        name: &BudgetName,
        terms: &BudgetTerms,
    ) -> bool {
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
            super::tests::LOOKED_AT.set(super::tests::LOOKED_AT.get() + 1);
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
        (spent + self.past_usage.since(account, start, terms.unit), held)
    }

    /// Whether the current group has opened an account.
    pub(in crate::ledger::accounts) fn is_new_in_group(&self, account: AccountNo) -> bool {
        let Some(steps) = self.undo.as_deref() else { return false };
        let opened = steps.iter().filter(|step| matches!(step, Undo::AccountOpened)).count();
        account.index() + opened >= self.accounts.len()
    }
}

/// Whether the decision has already pushed a threshold.
pub(super) fn is_pushed(
    events: &[Event],
    number: AccountNo,
    name: &BudgetName,
    threshold: u16,
) -> bool {
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
    pub(in crate::ledger::accounts) fn usage_since(
        &self,
        start: Timestamp,
        unit: BudgetUnit,
    ) -> (i128, i128) {
        if self.is_revived() {
            return (0, 0);
        }
        match unit {
            BudgetUnit::Credits => self.credits_since(start),
            BudgetUnit::GpuHours => self.gpu_time_since(start),
        }
    }

    /// Calls `each` with the instant of a draw and what was spent of it: credits, and GPU time in thousandths of
    /// GPU-milliseconds. For closed holds.
    pub(in crate::ledger::accounts) fn each_spent(
        &self,
        mut each: impl FnMut(Timestamp, i128, i128),
    ) {
        let mut refunded = self.refunded;
        for slice in self.slices.iter().rev() {
            let returned = slice.captured.min(refunded);
            refunded -= returned;
            each(self.drawn_at(slice), i128::from(slice.captured - returned), 0);
        }
        let Some(details) = &self.details else { return };
        for (at, amount) in &details.uncollected {
            each(*at, i128::from(*amount), 0);
        }
        let mut used = details.gpu_spent;
        for (at, drawn) in &details.draws {
            let of_this = used.min(*drawn);
            used -= of_this;
            each(*at, 0, of_this);
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
        let uncollected = self.details.iter().flat_map(|details| &details.uncollected);
        let late: u64 = uncollected.filter(|(at, _)| *at >= start).map(|(_, amount)| amount).sum();
        (spent + i128::from(late), held)
    }

    /// Like [`Hold::credits_since`] for GPU time, in thousandths of GPU-milliseconds.
    fn gpu_time_since(&self, start: Timestamp) -> (i128, i128) {
        let Some(details) = &self.details else { return (0, 0) };
        let (mut spent, mut held) = (0, 0);
        let mut used = details.gpu_spent;
        for (at, drawn) in &details.draws {
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
