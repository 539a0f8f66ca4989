//! Statements: two balances, what moved between them, and what was spent.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use utoipa::{IntoParams, ToSchema};

use super::spend::{SpendBy, UnknownSpendBy};
use crate::amount::Sum;
use crate::time::Time;

/// What the spending of a statement is grouped by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum StatementBy {
    /// As in reports of spending.
    Group(SpendBy),
    /// The day, in UTC.
    Day,
}

impl Default for StatementBy {
    fn default() -> StatementBy {
        StatementBy::Group(SpendBy::Subtree)
    }
}

impl fmt::Display for StatementBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StatementBy::Group(by) => by.fmt(f),
            StatementBy::Day => f.write_str("day"),
        }
    }
}

/// A text that names no group of a statement.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Error)]
#[error("must be subtree, account, gpu_type, class, region, job, day, none or label:NAME")]
pub struct UnknownStatementBy;

impl FromStr for StatementBy {
    type Err = UnknownStatementBy;

    fn from_str(text: &str) -> Result<StatementBy, UnknownStatementBy> {
        if text == "day" {
            return Ok(StatementBy::Day);
        }
        text.parse().map(StatementBy::Group).map_err(|_: UnknownSpendBy| UnknownStatementBy)
    }
}

impl TryFrom<String> for StatementBy {
    type Error = UnknownStatementBy;

    fn try_from(text: String) -> Result<StatementBy, UnknownStatementBy> {
        text.parse()
    }
}

impl From<StatementBy> for String {
    fn from(by: StatementBy) -> String {
        by.to_string()
    }
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
    /// What `spending` is grouped by: `subtree` (the default: the account itself and each account
    /// directly below it), `account`, `gpu_type`, `class`, `region`, `job`, `day`, `none` or
    /// `label:NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<String>,
        pattern = "^(none|account|subtree|gpu_type|class|region|job|day|label:.+)$")]
    pub by: Option<StatementBy>,
    /// The number of lines of `spending`; 100 if absent. All others are in `other`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 100)]
    pub k: Option<u32>,
}

/// Opening balance, movements, closing balance; and spending.
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
    /// Credits of its own grants that were held just before `from`.
    pub held_opening: Sum,
    /// Signed sums of the movements of the account's own credits by type: opening + movements =
    /// closing.
    pub movements: Vec<StatementLine>,
    /// Available credits just before `to`.
    pub closing: Sum,
    /// Credits of its own grants that were held just before `to`.
    pub held_closing: Sum,
    /// The account's own credits that any account spent in the period, less refunds: the sum of
    /// `spent_change`.
    pub spent: Sum,
    /// What the account and all below it spent in the period, whichever account owns the credits.
    pub spending: Spending,
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
    /// The change of the held credits.
    pub held_change: Sum,
    /// The change of the spent credits: spending is positive, a refund negative.
    pub spent_change: Sum,
    /// The number of movements.
    pub count: u64,
}

/// Spending of an account and all below it: the lines and `other` add up to `total`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Spending {
    /// What it is grouped by.
    #[schema(value_type = String)]
    pub by: StatementBy,
    /// The groups with the most spending, largest first; days in order of time.
    pub lines: Vec<SpendingLine>,
    /// All other groups together.
    pub other: Sum,
    /// Everything.
    pub total: Sum,
}

/// Spending of one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SpendingLine {
    /// The group; `null` for spending that belongs to none, such as a charge without a job.
    pub key: Option<String>,
    /// What it spent, less refunds.
    pub amount: Sum,
}
