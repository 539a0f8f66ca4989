//! Waiting jobs write no records while nothing changes.

use serde_json::json;

use crate::agent::Agent;
use crate::server::Server;
use crate::world::{priced, small, state, submit, verify, with};

const DAY: u64 = 86_400;

/// How many records the journal of the region has.
async fn records(server: &Server) -> u64 {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_bursar"))
        .args(["admin", "export", "--region", "default", "--data"])
        .arg(server.data())
        .output()
        .expect("the binary is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").lines().count() as u64
}

#[tokio::test]
async fn waiting_jobs_write_no_records() {
    let server = priced(&[]).await;
    // One that no node serves, one that is too large, and two behind a node that falls silent.
    let agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, with(small("a"), "gpus", json!({ "types": ["A100"] }))).await;
    submit(&server, with(small("large"), "nodes", json!(2))).await;
    submit(&server, small("b")).await;
    submit(&server, with(small("c"), "class", json!("high"))).await;
    drop(agent);
    server.advance(3600).await;
    let before = records(&server).await;
    server.advance(40 * DAY).await;
    let after = records(&server).await;
    assert!(after - before <= 20, "{before} and {after}: forty days in which nothing happened");
    for id in ["a", "large", "b", "c"] {
        assert_eq!(state(&server, id).await, "queued", "{id}");
    }
    let mut agent = Agent::register(&server, "n2", "H100", 1).await;
    agent.beat(&server).await;
    assert_eq!(state(&server, "c").await, "running", "a node that comes is used at once");
    verify(&server);
}
