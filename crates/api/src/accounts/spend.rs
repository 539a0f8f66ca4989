//! Spending by period, and amounts over time.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use utoipa::{IntoParams, ToSchema};

use crate::amount::Sum;
use crate::time::Time;

/// The length of a period, in UTC.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Interval {
    /// Hours.
    Hour,
    /// Days.
    #[default]
    Day,
    /// Weeks that begin on Monday.
    Week,
    /// Calendar months.
    Month,
}

/// What spending is grouped by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SpendBy {
    /// One series.
    #[default]
    None,
    /// The account that spent.
    Account,
    /// The account itself, and each account directly below it with all that lies below that.
    Subtree,
    /// The GPU type.
    GpuType,
    /// The priority class.
    Class,
    /// The region.
    Region,
    /// The job.
    Job,
    /// The value of a label of the job.
    Label(String),
}

impl fmt::Display for SpendBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SpendBy::None => "none",
            SpendBy::Account => "account",
            SpendBy::Subtree => "subtree",
            SpendBy::GpuType => "gpu_type",
            SpendBy::Class => "class",
            SpendBy::Region => "region",
            SpendBy::Job => "job",
            SpendBy::Label(name) => return write!(f, "label:{name}"),
        })
    }
}

/// A text that names no group.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Error)]
#[error("must be none, account, subtree, gpu_type, class, region, job or label:NAME")]
pub struct UnknownSpendBy;

impl FromStr for SpendBy {
    type Err = UnknownSpendBy;

    fn from_str(text: &str) -> Result<SpendBy, UnknownSpendBy> {
        Ok(match text {
            "none" => SpendBy::None,
            "account" => SpendBy::Account,
            "subtree" => SpendBy::Subtree,
            "gpu_type" => SpendBy::GpuType,
            "class" => SpendBy::Class,
            "region" => SpendBy::Region,
            "job" => SpendBy::Job,
            _ => match text.strip_prefix("label:") {
                Some(name) if !name.is_empty() => SpendBy::Label(name.to_owned()),
                Some(_) | None => return Err(UnknownSpendBy),
            },
        })
    }
}

impl TryFrom<String> for SpendBy {
    type Error = UnknownSpendBy;

    fn try_from(text: String) -> Result<SpendBy, UnknownSpendBy> {
        text.parse()
    }
}

impl From<SpendBy> for String {
    fn from(by: SpendBy) -> String {
        by.to_string()
    }
}

/// Which spending.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SpendQuery {
    /// The first instant; rounded down to the hour. 30 days before `to` if absent.
    pub from: Option<Time>,
    /// The first instant after the period; rounded up to the hour. Now if absent.
    pub to: Option<Time>,
    /// The length of the periods; a day if absent. At most 1000 of them.
    #[param(inline)]
    pub interval: Option<Interval>,
    /// `none` (the default), `account`, `subtree`, `gpu_type`, `class`, `region`, `job` or
    /// `label:NAME`.
    #[param(value_type = Option<String>,
        pattern = "^(none|account|subtree|gpu_type|class|region|job|label:.+)$")]
    pub by: Option<SpendBy>,
    /// The number of series; 10 if absent. All others are in `other`.
    #[param(minimum = 1, maximum = 100)]
    pub k: Option<u32>,
    /// Wait until history has reached this position.
    pub min_position: Option<u64>,
}

/// An amount at an instant, or in the period that begins at it.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AmountPoint {
    /// The instant.
    pub at: Time,
    /// The amount.
    pub amount: Sum,
}

/// Spending of one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SpendSeries {
    /// The group; `null` for spending that belongs to none, such as a charge without a GPU type.
    pub key: Option<String>,
    /// The sum of the points.
    pub total: Sum,
    /// One point for each period, oldest first.
    pub points: Vec<AmountPoint>,
}

/// Spending of an account and all below it. Credits count when they were captured, charged or
/// collected; a refund counts, negative, when it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Spend {
    /// The account.
    pub account: String,
    /// The first instant of the period: a whole hour.
    pub from: Time,
    /// The first instant after the period: a whole hour.
    pub to: Time,
    /// The length of the periods.
    pub interval: Interval,
    /// What it is grouped by.
    #[schema(value_type = String)]
    pub by: SpendBy,
    /// The largest groups, largest first.
    pub series: Vec<SpendSeries>,
    /// All other groups together.
    pub other: Sum,
    /// All other groups together, by period.
    pub other_points: Vec<AmountPoint>,
    /// Everything: the `spent` of a statement for the same period.
    pub total: Sum,
    /// Everything, by period.
    pub points: Vec<AmountPoint>,
    /// The ledger's time.
    pub as_of: Time,
    /// The position that history had reached.
    pub position: u64,
}

/// An amount of an account's own credits.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccountMetric {
    /// Credits that are free.
    Available,
    /// Credits that open holds of any account hold.
    Held,
    /// Credits spent by any account since the account was opened, less refunds.
    Spent,
    /// Credits that expired since the account was opened.
    Expired,
}

/// Which series.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AccountSeriesQuery {
    /// The amount.
    #[param(inline)]
    pub metric: AccountMetric,
    /// The first instant; 30 days before `to` if absent.
    pub from: Option<Time>,
    /// The last instant; now if absent or later.
    pub to: Option<Time>,
    /// The number of points; 200 if absent.
    #[param(minimum = 2, maximum = 500)]
    pub points: Option<u32>,
    /// Wait until history has reached this position.
    pub min_position: Option<u64>,
}

/// An amount of an account's own credits at evenly spaced instants, exact at each of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccountSeries {
    /// The account.
    pub account: String,
    /// The amount.
    pub metric: AccountMetric,
    /// The points, oldest first.
    pub points: Vec<AmountPoint>,
    /// The ledger's time.
    pub as_of: Time,
    /// The position that history had reached.
    pub position: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read_as_written() {
        for text in
            ["none", "account", "subtree", "gpu_type", "class", "region", "job", "label:a:b"]
        {
            let by: SpendBy = text.parse().expect("a group");
            assert_eq!(by.to_string(), text);
        }
        for wrong in ["", "label", "label:", "Account", "day"] {
            assert!(wrong.parse::<SpendBy>().is_err(), "{wrong}");
        }
    }
}
