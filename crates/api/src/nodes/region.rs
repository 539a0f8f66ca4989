//! Regions, their queues and their maintenance.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::amount::Sum;
use crate::problem::Blocker;
use crate::time::Time;

/// GPUs of one type in a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RegionGpus {
    /// The type.
    #[serde(rename = "type")]
    pub kind: String,
    /// How many there are.
    pub total: u32,
    /// How many are in use, with shares as decimals.
    pub used: Sum,
    /// How many are free on ready nodes.
    pub free: Sum,
}

/// A region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Region {
    /// Its name.
    pub id: String,
    /// Registered nodes.
    pub nodes: u32,
    /// Ready nodes.
    pub nodes_ready: u32,
    /// Its GPUs, by type.
    pub gpus: Vec<RegionGpus>,
    /// Jobs that have GPUs.
    pub running_jobs: u64,
    /// Jobs that wait.
    pub waiting_jobs: u64,
    /// Among accounts in the key's scope with waiting jobs, the one furthest from its entitlement;
    /// absent if no job waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_error: Option<ShareError>,
}

/// How far the share of an account is from its entitlement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ShareError {
    /// The account.
    pub account: String,
    /// What it has received less its entitlement, as parts of the region: `0.1` is ten percent more.
    pub difference: Sum,
}

/// A waiting job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueEntry {
    /// Its place, from 1.
    pub position: u64,
    /// The job.
    pub job: String,
    /// The account that pays.
    pub account: String,
    /// Its priority class.
    pub class: String,
    /// When it was submitted.
    pub created_at: Time,
    /// When it can start if running jobs use their full time limits.
    pub estimated_start_at: Option<Time>,
    /// Everything that blocks it.
    pub blockers: Vec<Blocker>,
}

/// The fair share of an account. Shares are parts of the whole region, from `0` to `1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ShareEntry {
    /// The account.
    pub account: String,
    /// Its weight among its siblings.
    pub weight: Sum,
    /// Decayed usage of its subtree, in credits.
    pub usage: Sum,
    /// Its target share while it and its siblings compete.
    pub entitled: Sum,
    /// Its actual share.
    pub received: Sum,
    /// Its present spending, in credits per hour.
    pub per_hour: Sum,
    /// GPUs that it has now.
    pub gpus: Sum,
    /// Jobs that have GPUs.
    pub running_jobs: u32,
    /// Jobs that wait.
    pub waiting_jobs: u32,
}

/// The queue of a region: waiting jobs in order, and what blocks them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Queue {
    /// The region.
    pub region: String,
    /// The jobs that compete, in order.
    pub data: Vec<QueueEntry>,
    /// Whether there are more.
    pub has_more: bool,
    /// The `cursor` of the next page.
    pub next_cursor: Option<String>,
    /// The fair share of each account, parents before children.
    pub shares: Vec<ShareEntry>,
    /// The region's time.
    pub as_of: Time,
}

/// A page of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct QueueQuery {
    /// How many entries at most: 1 to 100, 25 if absent.
    #[param(minimum = 1, maximum = 100)]
    pub limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Schedules maintenance of nodes of a region. Replaces an earlier schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "from": "2026-01-31T12:00:00.000Z", "to": "2026-01-31T14:00:00.000Z", "nodes": ["node-1"]
}))]
pub struct PlanMaintenance {
    /// When it begins.
    pub from: Time,
    /// When it ends.
    pub to: Time,
    /// The nodes; every node registered now if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 10000)]
    pub nodes: Option<Vec<String>>,
}

/// A maintenance window of a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Maintenance {
    /// The region.
    pub region: String,
    /// When it begins.
    pub from: Time,
    /// When it ends.
    pub to: Time,
    /// The nodes.
    pub nodes: Vec<String>,
}
