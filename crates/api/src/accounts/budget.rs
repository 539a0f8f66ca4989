//! Budgets: limits on what a subtree draws in a calendar period.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::amount::{Amount, Sum};
use crate::time::Time;

/// The unit of a budget.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BudgetUnit {
    /// Credits.
    #[default]
    Credits,
    /// GPU-hours of job holds.
    GpuHours,
}

/// The calendar period of a budget.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BudgetPeriod {
    /// One period without end.
    Total,
    /// From midnight to midnight.
    Day,
    /// From Monday to Sunday.
    Week,
    /// A calendar month.
    Month,
}

/// What happens at the limit.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BudgetMode {
    /// Further draws are rejected.
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
    /// The unit of the limit; credits if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<BudgetUnit>,
    /// The calendar period.
    pub period: BudgetPeriod,
    /// What happens at the limit.
    pub mode: BudgetMode,
    /// Percentages of the limit at which to alert, ascending; 50, 80 and 100 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 16)]
    pub thresholds: Option<Vec<u16>>,
    /// The offset of the calendar from UTC in minutes; 0 if absent.
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
    /// The unit of the limit.
    pub unit: BudgetUnit,
    /// The calendar period.
    pub period: BudgetPeriod,
    /// What happens at the limit.
    pub mode: BudgetMode,
    /// Percentages of the limit at which to alert.
    pub thresholds: Vec<u16>,
    /// The offset of the calendar from UTC in minutes.
    pub utc_offset_minutes: i16,
    /// Credits spent in this period.
    pub spent: Sum,
    /// Credits held in this period.
    pub held: Sum,
    /// Spent and held.
    pub used: Sum,
    /// What remains of the limit; never negative.
    pub remaining: Sum,
    /// When the period began; absent for `total`.
    pub period_start: Option<Time>,
    /// When the next period begins; absent for `total`.
    pub period_end: Option<Time>,
    /// The ledger's time; only on reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Time>,
    /// The ledger's position; only on reads.
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

/// The budgets of an account and of all below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BudgetTree {
    /// The account.
    pub account: String,
    /// The account itself, and every account below it that has a budget; each after the one above it.
    pub levels: Vec<BudgetLevel>,
    /// Whether there are more than 500 levels. Ask for an account further down then.
    pub has_more: bool,
    /// The ledger's time.
    pub as_of: Time,
    /// The ledger's position.
    pub position: u64,
}

/// One account of a tree of budgets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BudgetLevel {
    /// The account.
    pub account: String,
    /// How many accounts are above it: 0 for an org.
    pub depth: u32,
    /// Its budgets, by name.
    pub budgets: Vec<Budget>,
    /// The budgets that are the first to refuse a draw of this account: its own or those above it.
    /// Every hard budget with nothing left, or else the hard budget in credits with the least left.
    pub binding: Vec<BindingBudget>,
}

/// A budget that refuses draws first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BindingBudget {
    /// The account that has it.
    pub account: String,
    /// Its name there.
    pub name: String,
    /// What remains of the limit; never negative.
    pub remaining: Sum,
}
