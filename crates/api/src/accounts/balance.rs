//! Balances: now, in the past and in the future.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::amount::Sum;
use crate::credits::grant::{ByKind, GrantKind};
use crate::time::Time;

/// Which balance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct BalanceQuery {
    /// The instant. A past one gives the balance at that time; a future one assumes no more spending.
    pub at: Option<Time>,
    /// Compute `spendable` for this GPU type.
    pub gpu_type: Option<String>,
    /// Compute `spendable` for this region.
    pub region: Option<String>,
    /// Compute `spendable` for this priority class.
    pub class: Option<String>,
    /// Wait until the ledger has reached this position.
    pub min_position: Option<u64>,
    /// Allow a slightly stale answer; `as_of` and `position` give its time and position.
    pub stale_ok: Option<bool>,
}

/// The balance of an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Balance {
    /// The account.
    pub account: String,
    /// Credits of its own grants that are effective, unexpired and not held.
    pub available: Sum,
    /// Credits of its own grants that open holds of any account still hold.
    pub held: Sum,
    /// `available` by kind of grant.
    pub by_kind: ByKind,
    /// The most that a hold of this account could draw.
    pub spendable: Sum,
    /// Credits that will expire, soonest first, at most twenty entries.
    pub expiring: Vec<Expiring>,
    /// Usage that credits did not cover.
    pub uncollected: Sum,
    /// The ledger's time.
    pub as_of: Time,
    /// The ledger's position.
    pub position: u64,
}

/// Credits that will expire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Expiring {
    /// The last instant at which they can be spent.
    pub expires_at: Time,
    /// The amount.
    pub amount: Sum,
    /// The kind of their grant.
    pub kind: GrantKind,
}
