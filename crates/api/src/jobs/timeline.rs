//! The timeline of a job.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::amount::Sum;
use crate::time::Time;

/// The part of an amount that came from or returned to one grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Slice {
    /// The grant.
    pub grant: String,
    /// The amount.
    pub amount: Sum,
}

/// One entry of a job's timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimelineEntry {
    /// When.
    pub at: Time,
    /// What, such as `job_submitted`, `hold_placed` or `placement_proposed`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The source of the entry: `ledger`, or the name of a region.
    pub source: String,
    /// The position in that journal.
    pub position: u64,
    /// A description.
    pub detail: String,
    /// The attempt concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<String>,
    /// The hold concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<String>,
    /// The credits moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount: Option<Sum>,
    /// The grants that the credits came from or returned to, in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<Vec<Slice>>,
}

/// The timeline of a job, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Timeline {
    /// The entries.
    pub data: Vec<TimelineEntry>,
    /// Whether there are more.
    pub has_more: bool,
    /// The `cursor` of the next page.
    pub next_cursor: Option<String>,
    /// The ledger's time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Time>,
    /// The ledger's position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
}
