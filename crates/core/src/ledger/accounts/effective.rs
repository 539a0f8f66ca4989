//! The credits and budgets that decide what an account can spend now: its own, and those of the
//! accounts above it.

use super::budget::Budget;
use super::view::{Expiring, soonest};
use crate::ledger::command::{BudgetMode, BudgetUnit, Context, KindAmounts};
use crate::ledger::id::AccountNo;
use crate::ledger::state::Ledger;
use crate::time::Timestamp;

/// Free credits of one account on the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeCredits {
    /// The account that owns them.
    pub account: AccountNo,
    /// All of them.
    pub available: i128,
    /// By kind.
    pub by_kind: KindAmounts,
    /// Those that will expire, soonest first, at most twenty entries.
    pub expiring: Vec<Expiring>,
}

/// A budget on the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathBudget {
    /// The account whose subtree it covers.
    pub account: AccountNo,
    /// The budget.
    pub budget: Budget,
    /// Whether it is the first to refuse a draw.
    pub binds: bool,
}

/// What an account can spend now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    /// The amount that its credits and those above it allow to be drawn.
    pub spendable: i128,
    /// The amount that credits and hard budgets in credits allow to be drawn.
    pub largest_hold: i128,
    /// The credits of the account itself.
    pub own: FreeCredits,
    /// The credits of the accounts above it, nearest first; those without any are left out.
    pub inherited: Vec<FreeCredits>,
    /// The budgets on the path, nearest account first.
    pub budgets: Vec<PathBudget>,
}

impl Ledger {
    /// What an account can spend now in a context.
    pub fn effective(&self, account: AccountNo, context: &Context, now: Timestamp) -> Effective {
        let path = self.path(account);
        let spendable = self.spendable(account, context);
        let room = i128::try_from(self.budget_room(now, &path)).unwrap_or(i128::MAX);
        let above = path.iter().skip(1).map(|above| self.free_credits(*above));
        Effective {
            spendable,
            largest_hold: spendable.min(room),
            own: self.free_credits(account),
            inherited: above.filter(|credits| credits.available > 0).collect(),
            budgets: self.path_budgets(account, now),
        }
    }

    /// The free credits of an account's own grants.
    pub(super) fn free_credits(&self, account: AccountNo) -> FreeCredits {
        let own = self.account(account);
        let mut by_kind = KindAmounts::default();
        let mut expiring: Vec<Expiring> = Vec::new();
        for ((rank, bucket), ()) in own.open.iter() {
            let amount = i128::from(self.bucket(*bucket).line.free());
            by_kind[rank.kind as usize] += amount;
            if let Some(expires_at) = rank.expires_at() {
                expiring.push(Expiring { expires_at, kind: rank.kind, amount });
            }
        }
        FreeCredits { account, available: own.available, by_kind, expiring: soonest(expiring) }
    }

    /// The budgets of an account and of those above it, nearest first. Those that bind are marked:
    /// every hard budget with nothing left, or else the hard budget in credits with the least left.
    pub fn path_budgets(&self, account: AccountNo, now: Timestamp) -> Vec<PathBudget> {
        let mut all = Vec::new();
        for account in self.path(account) {
            for budget in self.account(account).budgets() {
                let binds = is_hard(budget) && remaining(budget, now) <= 0;
                all.push(PathBudget { account, budget: budget.clone(), binds });
            }
        }
        if !all.iter().any(|one| one.binds) {
            let counted = |one: &&mut PathBudget| {
                is_hard(&one.budget) && one.budget.terms.unit == BudgetUnit::Credits
            };
            let least = all.iter_mut().filter(counted);
            if let Some(least) = least.min_by_key(|one| remaining(&one.budget, now)) {
                least.binds = true;
            }
        }
        all
    }
}

fn is_hard(budget: &Budget) -> bool {
    budget.terms.mode == BudgetMode::Hard
}

fn remaining(budget: &Budget, now: Timestamp) -> i128 {
    budget.terms.limit_units() - budget.used(now)
}
