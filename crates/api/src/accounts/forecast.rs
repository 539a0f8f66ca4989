//! Forecasts: how long credits last, what a month will cost, what expires unspent.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::amount::Sum;
use crate::credits::grant::GrantKind;
use crate::time::Time;

/// What a forecast is based on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ForecastQuery {
    /// The time over which spending is measured, such as `1h` or `7d`; at most 366 days, `24h` if
    /// absent. It begins with a whole hour.
    #[param(pattern = "^[1-9][0-9]{0,8}[smhd]$")]
    pub window: Option<String>,
}

/// How long the credits last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Forecast {
    /// The account.
    pub account: String,
    /// The time over which spending was measured, as it was asked for.
    pub window: String,
    /// When that time began: at a whole hour. It ends now.
    pub measured_from: Time,
    /// Spending per hour of the account and all below it in the window.
    pub burn_per_hour: Sum,
    /// How long `spendable` lasts at that rate; absent if nothing is being spent.
    pub runway_seconds: Option<u64>,
    /// When `spendable` is used up at that rate; absent if nothing is being spent, or after the year
    /// 9999.
    pub runs_out_at: Option<Time>,
    /// What the attempts that have GPUs now cost per hour, of the account and all below it, at
    /// their pinned prices. Jobs that run outside Bursar are not counted.
    #[serde(default)]
    pub running_per_hour: Sum,
    /// How long `spendable` lasts if exactly these attempts go on; absent if there are none.
    #[serde(default)]
    pub running_runway_seconds: Option<u64>,
    /// What the account and all below it spent since the month began, in UTC.
    pub month_spent: Sum,
    /// What they will have spent when the month ends, at that rate.
    pub month_projected: Sum,
    /// When the month ends.
    pub month_end: Time,
    /// Credits that will expire unspent at that rate.
    pub at_risk: Sum,
    /// The account's own credits that will expire, soonest first, at most twenty entries.
    pub expiring: Vec<ExpiringUnspent>,
    /// Credits that can be spent now.
    pub spendable: Sum,
    /// The ledger's time.
    pub as_of: Time,
    /// The ledger's position.
    pub position: u64,
}

/// Credits that will expire, and how much of them unspent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExpiringUnspent {
    /// The last instant at which they can be spent.
    pub expires_at: Time,
    /// The amount.
    pub amount: Sum,
    /// The kind of their grant.
    pub kind: GrantKind,
    /// How much of the amount will expire unspent at the rate of the forecast.
    pub at_risk: Sum,
}
