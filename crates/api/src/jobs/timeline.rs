//! What happened to a job, step by step.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::amount::Sum;
use crate::time::Time;

/// A part of an amount, by the grant that gave it or got it back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Slice {
    /// The grant.
    pub grant: String,
    /// How much.
    pub amount: Sum,
}

/// One thing that happened to a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimelineEntry {
    /// When.
    pub at: Time,
    /// What, such as `job_submitted`, `hold_placed` or `placement_proposed`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Who decided it: `ledger`, or the name of a region.
    pub source: String,
    /// The position in that journal.
    pub position: u64,
    /// In words.
    pub detail: String,
    /// The attempt that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<String>,
    /// The hold that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<String>,
    /// How many credits moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount: Option<Sum>,
    /// The grants that they came from or went to, in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<Vec<Slice>>,
}

/// Everything that happened to a job, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Timeline {
    /// The steps.
    pub data: Vec<TimelineEntry>,
    /// Whether there are more.
    pub has_more: bool,
    /// What to pass as `cursor` to get them.
    pub next_cursor: Option<String>,
    /// The ledger's time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Time>,
    /// The ledger's position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
}
