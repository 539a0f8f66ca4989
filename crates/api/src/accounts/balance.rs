//! Balances: now, in the past and in the future.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::amount::Sum;
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

/// Amounts by kind of grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ByKind {
    /// Bought credits.
    pub purchase: Sum,
    /// Credits issued without payment.
    pub grant: Sum,
    /// Credits issued without payment and with restrictions.
    pub promotion: Sum,
    /// Credits issued after a platform failure.
    pub compensation: Sum,
}

/// Credits that will expire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Expiring {
    /// The last instant at which they can be spent.
    pub expires_at: Time,
    /// The amount.
    pub amount: Sum,
    /// The kind of their grant.
    pub kind: crate::credits::grant::GrantKind,
}

/// A movement of an account's credits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Entry {
    /// Its id.
    pub id: String,
    /// When.
    pub at: Time,
    /// What happened: `granted`, `held`, `captured`, `returned`, `expired`, `revoked`, `refunded`,
    /// `reissued`, `moved`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// The amount.
    pub amount: Sum,
    /// The grant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
    /// The hold or charge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<String>,
    /// The job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The account's available credits after the movement.
    pub balance_after: Sum,
}

/// Which entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EntriesQuery {
    /// How many entries at most: 1 to 100, 25 if absent.
    #[param(minimum = 1, maximum = 100)]
    pub limit: Option<u32>,
    /// The cursor of the next page.
    pub cursor: Option<String>,
    /// Wait until history has reached this position.
    pub min_position: Option<u64>,
}

/// The period of a statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StatementQuery {
    /// The first instant of the period.
    pub from: Time,
    /// The first instant after the period.
    pub to: Time,
}

/// Opening balance, movements, closing balance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Statement {
    /// The account.
    pub account: String,
    /// The first instant of the period.
    pub from: Time,
    /// The first instant after the period.
    pub to: Time,
    /// Available credits just before `from`.
    pub opening: Sum,
    /// Signed sums of the movements by type: opening + movements = closing.
    pub movements: Vec<StatementLine>,
    /// Available credits just before `to`.
    pub closing: Sum,
    /// The ledger's time.
    pub as_of: Time,
    /// The position that history had reached.
    pub position: u64,
}

/// Movements of one type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StatementLine {
    /// What happened.
    #[serde(rename = "type")]
    pub kind: String,
    /// The change of the available credits.
    pub amount: Sum,
    /// The number of movements.
    pub count: u64,
}

/// How long the credits last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Forecast {
    /// The account.
    pub account: String,
    /// Spending per hour over the last day.
    pub burn_per_hour: Sum,
    /// How long `spendable` lasts at that rate; absent if nothing is being spent.
    pub runway_seconds: Option<u64>,
    /// Credits that will expire unspent at that rate.
    pub at_risk: Sum,
    /// Credits that can be spent now.
    pub spendable: Sum,
    /// The ledger's time.
    pub as_of: Time,
    /// The ledger's position.
    pub position: u64,
}
