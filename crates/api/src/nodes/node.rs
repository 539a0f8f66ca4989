//! Nodes and their agents.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::time::Time;

/// A GPU of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// The UUID that the driver reports.
    #[schema(min_length = 1, max_length = 128)]
    pub uuid: String,
    /// Its type.
    #[serde(rename = "type")]
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub kind: String,
    /// Its memory.
    #[schema(minimum = 1, maximum = 4096)]
    pub memory_gib: u32,
}

/// Registers a node, at first and at each start of its agent. All GPUs of a node have one type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "id": "node-1", "region": "default", "rack": "r1", "cpus": 64, "memory_gib": 512,
    "gpus": [{"uuid": "GPU-0", "type": "H100", "memory_gib": 80}]
}))]
pub struct RegisterNode {
    /// Its name.
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub id: String,
    /// Its region.
    pub region: String,
    /// Its rack. Nodes of one rack are close to each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 64)]
    pub rack: Option<String>,
    /// Its GPUs, in a fixed order.
    #[schema(max_items = 64)]
    pub gpus: Vec<Gpu>,
    /// Its cores.
    #[schema(maximum = 65535)]
    pub cpus: u32,
    /// Its main memory.
    #[schema(maximum = 1048576)]
    pub memory_gib: u32,
    /// Labels that jobs may require.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}

/// The result of a registration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Registration {
    /// The node.
    pub node: String,
    /// The incarnation that each heartbeat must carry.
    pub incarnation: u32,
    /// The heartbeat interval.
    pub heartbeat_seconds: u32,
    /// The lease: after this time without a heartbeat the node and its attempts are lost.
    pub lease_seconds: u32,
    /// When the lease ends.
    pub lease_until: Time,
    /// The identity of the region's store. Attempt ids are valid within one store only, so an
    /// agent must not report attempts of another store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
}

/// The state of an attempt on a node.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AttemptState {
    /// It runs.
    Running,
    /// Its command succeeded.
    Succeeded,
    /// Its command failed.
    Failed,
    /// It was stopped or killed, or was never started here.
    Stopped,
}

/// An agent's report on one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttemptReport {
    /// The attempt.
    pub id: String,
    /// The state.
    pub state: AttemptState,
    /// GPU-milliseconds on this node: wall milliseconds multiplied by devices.
    pub gpu_ms_total: u64,
    /// The exit code of its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// A message about the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1024)]
    pub message: Option<String>,
    /// The end of its output; stored if no output was sent before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 65536)]
    pub log_tail: Option<String>,
}

/// A heartbeat: an agent's report on all its attempts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"incarnation": 1, "seq": 1, "attempts": []}))]
pub struct Heartbeat {
    /// The incarnation from the registration.
    #[schema(minimum = 1)]
    pub incarnation: u32,
    /// The sequence number: starts at 1 and grows by one with each heartbeat of an incarnation.
    #[schema(minimum = 1)]
    pub seq: u64,
    /// Every attempt that the agent has and was not ordered to forget.
    #[schema(max_items = 1024)]
    pub attempts: Vec<AttemptReport>,
}

/// Kinds of order.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OrderType {
    /// Start it.
    Start,
    /// Signal it to stop, and kill it after its grace period.
    Stop,
    /// Kill it.
    Kill,
    /// Stop reporting it.
    Forget,
}

impl OrderType {
    /// As in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            OrderType::Start => "start",
            OrderType::Stop => "stop",
            OrderType::Kill => "kill",
            OrderType::Forget => "forget",
        }
    }
}

/// What an agent needs to run a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunSpec {
    /// The account that pays.
    pub account: String,
    /// Display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What to run.
    #[serde(default)]
    pub command: Vec<String>,
    /// Environment variables.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// How many nodes run it.
    #[serde(default)]
    pub nodes: u32,
    /// Their names, by rank.
    #[serde(default)]
    pub node_names: Vec<String>,
    /// The rank of this node, from 0.
    #[serde(default)]
    pub rank: u32,
    /// The part of one GPU that it may use; whole GPUs if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<crate::Amount>,
    /// Cores on this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Main memory on this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_gib: Option<u32>,
    /// The time limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_runtime_seconds: Option<u64>,
    /// Its index in its array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array_index: Option<u32>,
    /// Which attempt of the job this is, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_number: Option<u32>,
}

/// An order to a node. Repeated in every answer until a heartbeat shows that it was carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Order {
    /// What to do.
    #[serde(rename = "type")]
    pub kind: OrderType,
    /// The attempt.
    pub attempt: String,
    /// The job; absent if it is no longer known.
    pub job: Option<String>,
    /// What to run, with `start`.
    pub spec: Option<RunSpec>,
    /// The GPUs to use, with `start`.
    pub gpus: Vec<String>,
    /// The grace period before it is killed, with `stop`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_seconds: Option<u32>,
    /// The reason, with `stop` and `kill`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The answer to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Orders {
    /// What to do.
    pub orders: Vec<Order>,
    /// The end of the lease: without a heartbeat by then, the node and its attempts are lost.
    pub lease_until: Time,
}

/// How long a heartbeat may wait for orders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct HeartbeatQuery {
    /// How long to wait for a new order; 0 if absent.
    #[param(maximum = 60)]
    pub wait_seconds: Option<u32>,
}

/// Output of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "incarnation": 1, "attempt": "att_0000000000001000000000001", "offset": 0, "data": "aGVsbG8K"
}))]
pub struct LogChunk {
    /// The incarnation from the registration.
    #[schema(minimum = 1)]
    pub incarnation: u32,
    /// The attempt.
    pub attempt: String,
    /// The offset in the output, in bytes.
    pub offset: u64,
    /// The bytes, in base64.
    #[schema(max_length = 1400000)]
    pub data: String,
}

/// How much output of an attempt is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogKept {
    /// The offset of the next part.
    pub next_offset: u64,
}

/// The state of a node.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It accepts new attempts.
    Ready,
    /// It accepts no new attempts; some still run.
    Draining,
    /// It accepts no new attempts; none runs.
    Drained,
    /// It is in a maintenance window.
    Maintenance,
    /// Its lease ended without a heartbeat.
    Lost,
}

/// A GPU of a node and how much of it is in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeGpu {
    /// The UUID that the driver reports.
    pub uuid: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its memory.
    pub memory_gib: u32,
    /// The part of it that is in use, from `0` to `1`.
    pub used: crate::amount::Sum,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// Its name.
    pub id: String,
    /// Its region.
    pub region: String,
    /// Its rack.
    pub rack: Option<String>,
    /// The account whose subtree may use the node; `*` for every account.
    pub scope: String,
    /// The state.
    pub state: NodeState,
    /// The incarnation of its agent.
    pub incarnation: u32,
    /// Its GPUs.
    pub gpus: Vec<NodeGpu>,
    /// Its cores.
    pub cpus: u32,
    /// Its main memory.
    pub memory_gib: u32,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Attempts that run there or occupy GPUs there.
    pub attempts: Vec<String>,
    /// The end of the lease: without a heartbeat by then, the node and its attempts are lost.
    pub lease_until: Time,
    /// Only after a restore: no attempt is placed on the node before this instant, because its agent
    /// may still run attempts that the restored store does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_until: Option<Time>,
}

/// Which nodes to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct NodeFilter {
    /// Only those of this region.
    pub region: Option<String>,
    /// How many entries at most: 1 to 100, 25 if absent.
    #[param(minimum = 1, maximum = 100)]
    pub limit: Option<u32>,
    /// The cursor of the next page.
    pub cursor: Option<String>,
}

/// Drains a node: no new attempts are placed on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"force": false}))]
pub struct DrainNode {
    /// Whether running attempts are stopped, including those that are not preemptible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
}

/// Resumes a node: new attempts are placed on it again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResumeNode {}
