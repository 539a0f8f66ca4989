//! Nodes: what agents say, and what operators do with them.

pub mod regions;

use std::time::Duration;

use bursar_api::List;
use bursar_api::nodes::node::{
    DrainNode, Heartbeat, HeartbeatQuery, LogChunk, LogKept, Node, NodeFilter, Orders,
    RegisterNode, Registration, ResumeNode,
};

use crate::call::{Call, Method, Nothing, path};

/// How much longer than its wait the answer to a long poll may take.
const SLACK: Duration = Duration::from_secs(15);

/// Adds a node, or says that its agent started again.
pub fn register(node: &RegisterNode) -> Call<Registration> {
    Call::post("/v1/nodes", node)
}

/// Reports what a node runs and asks what it must do, at once.
pub fn heartbeat(id: &str, heartbeat: &Heartbeat) -> Call<Orders> {
    Call::post(path(&["v1", "nodes", id, "heartbeat"]), heartbeat)
}

/// Reports what a node runs and waits up to so many seconds for something new to do.
pub fn heartbeat_and_wait(id: &str, beat: &Heartbeat, wait_seconds: u32) -> Call<Orders> {
    let query = HeartbeatQuery { wait_seconds: Some(wait_seconds) };
    let longest = Duration::from_secs(u64::from(wait_seconds)) + SLACK;
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

/// Stops placing work on a node.
pub fn drain(id: &str, drain: &DrainNode) -> Call<Node> {
    Call::post(path(&["v1", "nodes", id, "drain"]), drain)
}

/// Places work on a node again.
pub fn resume(id: &str) -> Call<Node> {
    Call::post(path(&["v1", "nodes", id, "resume"]), &ResumeNode {})
}

/// Forgets a node on which nothing runs.
pub fn delete(id: &str) -> Call<Nothing> {
    Call::new(Method::Delete, path(&["v1", "nodes", id]))
}
