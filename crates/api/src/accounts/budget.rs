//! Budgets: limits on what a subtree draws in a calendar period.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::amount::{Amount, Sum};
use crate::time::Time;

/// What a budget counts.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BudgetUnit {
    /// Credits.
    #[default]
    Credits,
    /// GPU-hours of job holds.
    GpuHours,
}

/// When a budget starts anew.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BudgetPeriod {
    /// Never.
    Total,
    /// At midnight.
    Day,
    /// At midnight before Monday.
    Week,
    /// At midnight before the first of a month.
    Month,
}

/// What reaching the limit means.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BudgetMode {
    /// Nothing more can be drawn.
    Hard,
    /// Alerts only.
    Soft,
}

/// Sets or replaces a budget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"limit": "500", "period": "month", "mode": "hard"}))]
pub struct SetBudget {
    /// The limit, in credits or GPU-hours.
    pub limit: Amount,
    /// What is counted; credits if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<BudgetUnit>,
    /// When counting starts anew.
    pub period: BudgetPeriod,
    /// What reaching the limit means.
    pub mode: BudgetMode,
    /// Percentages of the limit at which to alert, ascending; 50, 80 and 100 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 16)]
    pub thresholds: Option<Vec<u16>>,
    /// Minutes to add to UTC before looking at the calendar; 0 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = -1440, maximum = 1440)]
    pub utc_offset_minutes: Option<i16>,
}

/// A budget and its numbers in the current period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Budget {
    /// Its name within its account.
    pub name: String,
    /// The account whose subtree it covers.
    pub account: String,
    /// The limit.
    pub limit: Sum,
    /// What is counted.
    pub unit: BudgetUnit,
    /// When counting starts anew.
    pub period: BudgetPeriod,
    /// What reaching the limit means.
    pub mode: BudgetMode,
    /// Percentages of the limit at which to alert.
    pub thresholds: Vec<u16>,
    /// Minutes to add to UTC before looking at the calendar.
    pub utc_offset_minutes: i16,
    /// What is spent in this period.
    pub spent: Sum,
    /// What is held in this period.
    pub held: Sum,
    /// Spent and held.
    pub used: Sum,
    /// What is left; never negative.
    pub remaining: Sum,
    /// When the period began; absent for `total`.
    pub period_start: Option<Time>,
    /// When the next one begins; absent for `total`.
    pub period_end: Option<Time>,
    /// The ledger's time, on reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Time>,
    /// The ledger's position, on reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
}

/// All budgets of an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Budgets {
    /// The budgets, by name.
    pub data: Vec<Budget>,
    /// Always false: an account has few budgets.
    pub has_more: bool,
    /// Always absent.
    pub next_cursor: Option<String>,
    /// The ledger's time.
    pub as_of: Time,
    /// The ledger's position.
    pub position: u64,
}
