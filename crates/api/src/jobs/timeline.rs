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

/// Why an attempt was preempted: the rule of the scheduler, and the numbers that decided at that
/// moment. Numbers of accounts that the key cannot see are left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Preemption {
    /// The number of the rule in the description of the scheduler.
    pub rule: u8,
    /// Its name: `class`, `share` or `guests`.
    pub name: String,
    /// The rule and its numbers in words.
    pub detail: String,
    /// The job that took the GPUs, if the key can see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Rule `class`: the rank of the job's own class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_rank: Option<u8>,
    /// Rule `class`: the rank of the other job's class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_class_rank: Option<u8>,
    /// Rule `share`: decayed usage of the job's account per unit of weight, in credits. Two accounts
    /// are compared where their paths part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Sum>,
    /// Rule `share`: what the other job's account would have used after one quantum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_usage: Option<Sum>,
    /// Rule `share`: how long the attempt had run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran_seconds: Option<u64>,
    /// Rule `share`: how long it was protected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protected_seconds: Option<u64>,
    /// Rule `guests`: from when the nodes were reserved for the other job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_from: Option<Time>,
}

/// One entry of a job's timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimelineEntry {
    /// When it happened.
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
    /// If the attempt was preempted: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemption: Option<Preemption>,
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
