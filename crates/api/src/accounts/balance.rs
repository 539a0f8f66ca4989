//! What an account has, had and will have.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::amount::Sum;
use crate::time::Time;

/// Which balance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct BalanceQuery {
    /// In the past: as it was then. In the future: if nothing is spent until then.
    pub at: Option<Time>,
    /// Spendable on this GPU type.
    pub gpu_type: Option<String>,
    /// Spendable in this region.
    pub region: Option<String>,
    /// Spendable in this priority class.
    pub class: Option<String>,
    /// Wait until the ledger has come this far.
    pub min_position: Option<u64>,
    /// Answer from a copy that may be a little behind; `as_of` and `position` say how far it is.
    pub stale_ok: Option<bool>,
}

/// What an account has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Balance {
    /// The account.
    pub account: String,
    /// Its own grants' credits that are effective, unexpired and free.
    pub available: Sum,
    /// What open holds, whoever placed them, still keep of its own grants.
    pub held: Sum,
    /// `available` by kind of grant.
    pub by_kind: ByKind,
    /// What a hold of this account could draw.
    pub spendable: Sum,
    /// What will expire, soonest first, at most twenty entries.
    pub expiring: Vec<Expiring>,
    /// Usage that no credits could be found for.
    pub uncollected: Sum,
    /// The ledger's time.
    pub as_of: Time,
    /// The ledger's position.
    pub position: u64,
}

/// Amounts by kind of grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ByKind {
    /// Paid for.
    pub purchase: Sum,
    /// Given.
    pub grant: Sum,
    /// Given under conditions.
    pub promotion: Sum,
    /// Given because the platform failed.
    pub compensation: Sum,
}

/// Credits that will expire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Expiring {
    /// The last instant at which they can be spent.
    pub expires_at: Time,
    /// How much.
    pub amount: Sum,
    /// Where they come from.
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
    /// How much.
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
    /// What the account had available afterwards.
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
    /// Where to go on.
    pub cursor: Option<String>,
    /// Wait until history has come this far.
    pub min_position: Option<u64>,
}

/// Which time a statement covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StatementQuery {
    /// The first instant that counts.
    pub from: Time,
    /// The first instant that no longer counts.
    pub to: Time,
}

/// Opening balance, movements, closing balance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Statement {
    /// The account.
    pub account: String,
    /// The first instant that counts.
    pub from: Time,
    /// The first instant that no longer counts.
    pub to: Time,
    /// What was available just before `from`.
    pub opening: Sum,
    /// What happened, summed by type; signed, so that opening + movements = closing.
    pub movements: Vec<StatementLine>,
    /// What was available just before `to`.
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
    /// The change of what is available.
    pub amount: Sum,
    /// How many movements.
    pub count: u64,
}

/// How long the credits last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Forecast {
    /// The account.
    pub account: String,
    /// What was spent per hour over the last day.
    pub burn_per_hour: Sum,
    /// How long `spendable` lasts at that rate; absent if nothing is being spent.
    pub runway_seconds: Option<u64>,
    /// What will expire unspent at that rate.
    pub at_risk: Sum,
    /// What can be spent now.
    pub spendable: Sum,
    /// The ledger's time.
    pub as_of: Time,
    /// The ledger's position.
    pub position: u64,
}
