//! Rankings of accounts and jobs.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::amount::Sum;
use crate::time::Time;

/// What to rank.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TopKind {
    /// Accounts of kind user.
    User,
    /// Accounts of kind project.
    Project,
    /// Accounts of kind team.
    Team,
    /// Accounts of kind org.
    Org,
    /// Jobs.
    Job,
}

/// The value to rank by.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TopBy {
    /// Credits spent in the window.
    Spent,
    /// Credits available now.
    Available,
    /// Credits held now.
    Held,
    /// GPU time in the window.
    GpuSeconds,
}

/// Which ranking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TopQuery {
    /// What to rank; users if absent.
    #[param(inline)]
    pub kind: Option<TopKind>,
    /// The value to rank by; `spent` if absent.
    #[param(inline)]
    pub by: Option<TopBy>,
    /// How far to look back: `24h`, `30m`, `7d`; a day if absent.
    #[param(pattern = "^[1-9][0-9]{0,8}[smhd]$")]
    pub window: Option<String>,
    /// The number of entries; 10 if absent.
    #[param(minimum = 1, maximum = 100)]
    pub k: Option<u32>,
    /// Validated, but without effect: `k` is the number of entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 100)]
    pub limit: Option<u32>,
    /// Without effect: the list has one page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// One entry of a ranking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TopEntry {
    /// The account or job.
    pub id: String,
    /// The amount.
    pub value: Sum,
}

/// A ranking, largest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Top {
    /// The entries.
    pub data: Vec<TopEntry>,
    /// Always false.
    pub has_more: bool,
    /// Always absent.
    pub next_cursor: Option<String>,
    /// The time of the ranked values.
    pub as_of: Time,
    /// The position that history had reached.
    pub position: u64,
}
