//! Nodes: requests of agents and of operators.

pub mod regions;

use std::time::Duration;

use bursar_api::List;
use bursar_api::nodes::node::{
    DrainNode, Heartbeat, HeartbeatQuery, LogChunk, LogKept, Node, NodeFilter, Orders,
    RegisterNode, Registration, ResumeNode,
};

use crate::call::{Call, Method, Nothing, path};

/// How much longer than its wait the answer to a long poll may take.
const MAX_ANSWER_DELAY: Duration = Duration::from_secs(15);

/// Registers a node, at first and at each start of its agent.
pub fn register(node: &RegisterNode) -> Call<Registration> {
    Call::post("/v1/nodes", node)
}

/// Sends a heartbeat and returns the orders immediately.
pub fn heartbeat(id: &str, heartbeat: &Heartbeat) -> Call<Orders> {
    Call::post(path(&["v1", "nodes", id, "heartbeat"]), heartbeat)
}

/// Sends a heartbeat and waits up to `wait_seconds` for new orders.
pub fn heartbeat_and_wait(id: &str, beat: &Heartbeat, wait_seconds: u32) -> Call<Orders> {
    let query = HeartbeatQuery { wait_seconds: Some(wait_seconds) };
    let longest = Duration::from_secs(u64::from(wait_seconds)) + MAX_ANSWER_DELAY;
    heartbeat(id, beat).with_query(&query).with_timeout(longest)
}

/// Sends output of an attempt.
pub fn send_log(id: &str, chunk: &LogChunk) -> Call<LogKept> {
    Call::post(path(&["v1", "nodes", id, "logs"]), chunk)
}

/// Reads a node.
pub fn show(id: &str) -> Call<Node> {
    Call::get(path(&["v1", "nodes", id]))
}

/// Lists nodes, by name.
pub fn list(filter: &NodeFilter) -> Call<List<Node>> {
    Call::get("/v1/nodes").with_query(filter)
}

/// Drains a node: no new attempts are placed on it.
pub fn drain(id: &str, drain: &DrainNode) -> Call<Node> {
    Call::post(path(&["v1", "nodes", id, "drain"]), drain)
}

/// Resumes a node: new attempts are placed on it again.
pub fn resume(id: &str) -> Call<Node> {
    Call::post(path(&["v1", "nodes", id, "resume"]), &ResumeNode {})
}

/// Removes a node without running attempts.
pub fn delete(id: &str) -> Call<Nothing> {
    Call::new(Method::Delete, path(&["v1", "nodes", id]))
}
