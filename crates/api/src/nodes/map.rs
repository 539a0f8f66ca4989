//! The map of a region, and its figures over time.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::node::NodeState;
use crate::amount::Sum;
use crate::time::Time;

/// What a job has of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GpuUse {
    /// The job; `other` if the key cannot see it.
    pub job: String,
    /// The account that pays; `other` if the key cannot see it.
    pub account: String,
    /// The part of the GPU, from `0` to `1`.
    pub share: Sum,
    /// Whether the job was reported running there. A GPU that is kept for a job and not used yet, or
    /// not given back yet, is idle.
    pub running: bool,
}

/// A GPU on the map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MapGpu {
    /// The UUID that the driver reports.
    pub uuid: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The jobs that have it.
    pub used: Vec<GpuUse>,
}

/// A node on the map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MapNode {
    /// Its name.
    pub id: String,
    /// Its rack.
    pub rack: Option<String>,
    /// Its state.
    pub state: NodeState,
    /// Its GPUs, in the order of the devices.
    pub gpus: Vec<MapGpu>,
}

/// The largest gang of one GPU type that would fit now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LargestGang {
    /// The GPU type.
    #[serde(rename = "type")]
    pub kind: String,
    /// All its GPUs: `nodes` times `gpus_per_node`.
    pub gpus: u32,
    /// On how many nodes.
    pub nodes: u32,
    /// How many whole GPUs on each.
    pub gpus_per_node: u32,
}

/// The nodes and GPUs of a region, and the jobs that have them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RegionMap {
    /// The region.
    pub region: String,
    /// The nodes that the key can see, by name.
    pub nodes: Vec<MapNode>,
    /// Whether there are more nodes.
    pub has_more: bool,
    /// The `cursor` of the next page.
    pub next_cursor: Option<String>,
    /// For each GPU type the largest gang that would fit on ready nodes now, if credits, quotas and
    /// reservations allow it.
    pub largest_gang: Vec<LargestGang>,
    /// The region's time.
    pub as_of: Time,
}

/// A page of a map.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MapQuery {
    /// How many nodes at most: 1 to 1000, 250 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// A figure of a region.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RegionMetric {
    /// GPUs that jobs have, with shares as decimals, on nodes that the key can see.
    GpusAllocated,
    /// GPUs of nodes that are ready, on nodes that the key can see.
    GpusUsable,
    /// Jobs in the key's scope that wait.
    JobsWaiting,
    /// Jobs in the key's scope that have GPUs.
    JobsRunning,
}

/// Selects a figure and a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RegionSeriesQuery {
    /// The figure.
    #[param(inline)]
    pub metric: RegionMetric,
    /// The first instant; a day before `to` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Time>,
    /// The last instant; now if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Time>,
    /// How many points: 2 to 1000, 200 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 2, maximum = 1000)]
    pub points: Option<u32>,
}

/// A figure at an instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RegionPoint {
    /// The instant.
    pub at: Time,
    /// The figure then.
    pub value: Sum,
}

/// A figure of a region over time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RegionSeries {
    /// The region.
    pub region: String,
    /// The figure.
    pub metric: RegionMetric,
    /// Evenly spaced instants, oldest first. Instants of which nothing is known are left out.
    pub points: Vec<RegionPoint>,
    /// The region's time.
    pub as_of: Time,
}
