//! What an account can spend now: its own credits and those above it, and the budgets that limit it.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::balance::Expiring;
use super::budget::{BudgetMode, BudgetUnit};
use crate::amount::Sum;
use crate::credits::grant::ByKind;
use crate::time::Time;

/// For which purpose.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EffectiveQuery {
    /// Compute `spendable` for this GPU type.
    pub gpu_type: Option<String>,
    /// Compute `spendable` for this region.
    pub region: Option<String>,
    /// Compute `spendable` for this priority class.
    pub class: Option<String>,
    /// Wait until the ledger has reached this position.
    pub min_position: Option<u64>,
}

/// What an account can spend now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Effective {
    /// The account.
    pub account: String,
    /// The most that its own credits and those above it let a hold draw.
    pub spendable: Sum,
    /// The most that credits and hard budgets let a hold draw.
    pub largest_hold: Sum,
    /// The account's own credits.
    pub own: FreeCredits,
    /// Credits of the accounts above it, nearest first; accounts without any are left out.
    pub inherited: Vec<FreeCredits>,
    /// What open holds and jobs of this account and all below it still hold, whichever account owns
    /// the credits.
    pub held_by_me: Sum,
    /// What this account and all below it have spent, less refunds, whichever account owns the
    /// credits.
    pub spent_by_me: Sum,
    /// Usage that credits did not cover.
    pub uncollected: Sum,
    /// The budgets of this account and of those above it, nearest first.
    pub budgets: Vec<PathBudget>,
    /// The ledger's time.
    pub as_of: Time,
    /// The ledger's position.
    pub position: u64,
}

/// Free credits of one account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FreeCredits {
    /// The account that owns them.
    pub account: String,
    /// Effective, unexpired and not held. Restricted credits count, also where the purpose excludes
    /// them.
    pub available: Sum,
    /// `available` by kind of grant.
    pub by_kind: ByKind,
    /// Those that will expire, soonest first, at most twenty entries.
    pub expiring: Vec<Expiring>,
}

/// A budget that limits an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PathBudget {
    /// The account whose subtree it covers.
    pub account: String,
    /// Its name within that account.
    pub name: String,
    /// The unit of the amounts.
    pub unit: BudgetUnit,
    /// What happens at the limit.
    pub mode: BudgetMode,
    /// The limit.
    pub limit: Sum,
    /// Spent and held in this period.
    pub used: Sum,
    /// What remains of the limit; never negative.
    pub remaining: Sum,
    /// When the next period begins; absent for `total`.
    pub period_end: Option<Time>,
    /// Whether it is the first to refuse a draw: every hard budget without anything left, or else
    /// the hard budget in credits with the least left.
    pub binds: bool,
}
