//! Nodes and their agents.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::time::Time;

/// A GPU of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// What the driver calls it.
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

/// Adds a node, or says that its agent started again. All GPUs of a node are of one type.
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
    /// Its rack: nodes that are close to each other.
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
    /// Labels that jobs may ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}

/// What an agent must know after it registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Registration {
    /// The node.
    pub node: String,
    /// The number that each report must carry.
    pub incarnation: u32,
    /// How often to report.
    pub heartbeat_seconds: u32,
    /// After so long without a report, what runs on the node is lost.
    pub lease_seconds: u32,
    /// When that would be.
    pub lease_until: Time,
    /// What tells the region's journal from all others. Ids of attempts mean something in it alone:
    /// what an agent knows of attempts of another store is not about this one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
}

/// What an attempt does on a node.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AttemptState {
    /// It runs.
    Running,
    /// It ended well.
    Succeeded,
    /// It ended badly.
    Failed,
    /// It was stopped or killed, or was never started here.
    Stopped,
}

/// What an agent says of one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttemptReport {
    /// The attempt.
    pub id: String,
    /// What it does.
    pub state: AttemptState,
    /// GPU-milliseconds since it runs here: wall milliseconds by devices.
    pub gpu_ms_total: u64,
    /// What its process ended with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Anything to say about the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1024)]
    pub message: Option<String>,
    /// The end of its output, kept if no output was sent before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 65536)]
    pub log_tail: Option<String>,
}

/// An agent's report on everything it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"incarnation": 1, "seq": 1, "attempts": []}))]
pub struct Heartbeat {
    /// The number that the registration answered.
    #[schema(minimum = 1)]
    pub incarnation: u32,
    /// Rises by one with each report of an incarnation, from 1.
    #[schema(minimum = 1)]
    pub seq: u64,
    /// Every attempt that the agent has and was not told to forget.
    #[schema(max_items = 1024)]
    pub attempts: Vec<AttemptReport>,
}

/// What to do with an attempt.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OrderType {
    /// Start it.
    Start,
    /// Ask it to stop, and kill it after its grace.
    Stop,
    /// Kill it.
    Kill,
    /// Stop reporting it.
    Forget,
}

/// What an agent must know to run a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunSpec {
    /// The account that pays.
    pub account: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What to run.
    #[serde(default)]
    pub command: Vec<String>,
    /// The environment that it gets.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Where it runs.
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
    /// The place of this node among them, from 0.
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
    /// The longest it may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_runtime_seconds: Option<u64>,
    /// Its index in its array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array_index: Option<u32>,
}

/// What a node must do. Repeated with every answer until the reports show that it is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Order {
    /// What to do.
    #[serde(rename = "type")]
    pub kind: OrderType,
    /// The attempt.
    pub attempt: String,
    /// The job; absent if it is not known any more.
    pub job: Option<String>,
    /// What to run, with `start`.
    pub spec: Option<RunSpec>,
    /// The GPUs to use, with `start`.
    pub gpus: Vec<String>,
    /// How long it has until it is killed, with `stop`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_seconds: Option<u32>,
    /// Why, with `stop` and `kill`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The answer to a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Orders {
    /// What to do.
    pub orders: Vec<Order>,
    /// What runs on the node is lost if it does not report by then.
    pub lease_until: Time,
}

/// How long a report may wait for orders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct HeartbeatQuery {
    /// Wait up to so long until there is a new order; not at all if absent.
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
    /// The number that the registration answered.
    #[schema(minimum = 1)]
    pub incarnation: u32,
    /// The attempt.
    pub attempt: String,
    /// Where in the output it belongs, in bytes.
    pub offset: u64,
    /// The bytes, in base64.
    #[schema(max_length = 1400000)]
    pub data: String,
}

/// How far the output of an attempt is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogKept {
    /// Where the next piece belongs.
    pub next_offset: u64,
}

/// Whether a node takes work.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It takes work.
    Ready,
    /// It takes no new work, and something still runs.
    Draining,
    /// It takes no new work, and nothing runs.
    Drained,
    /// It is in a maintenance window.
    Maintenance,
    /// It was silent for too long.
    Lost,
}

/// A GPU of a node, with what is used of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeGpu {
    /// What the driver calls it.
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
    /// The account whose jobs it runs, with all below it; `*` for everybody's.
    pub scope: String,
    /// Whether it takes work.
    pub state: NodeState,
    /// The number of its agent's last start.
    pub incarnation: u32,
    /// Its GPUs.
    pub gpus: Vec<NodeGpu>,
    /// Its cores.
    pub cpus: u32,
    /// Its main memory.
    pub memory_gib: u32,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// What runs there, or keeps GPUs there.
    pub attempts: Vec<String>,
    /// What runs there is lost if it does not report by then.
    pub lease_until: Time,
    /// Only after a restore: nothing is placed on it before, because an agent of the future that was
    /// lost may still run something there.
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
    /// Where to go on.
    pub cursor: Option<String>,
}

/// Stops placing work on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"force": false}))]
pub struct DrainNode {
    /// Whether what runs there is stopped, even what is not preemptible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
}

/// Places work on a node again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResumeNode {}
