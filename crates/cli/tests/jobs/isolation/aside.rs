//! A message between machines that always fails, on a complete server.

use std::time::Duration;

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::server::Server;
use crate::world::{check_books, furnish, small, state, submit};

async fn ready(server: &Server) -> Value {
    server.send("GET", "/readyz", Value::Null, "", &[]).await.expect(200)
}

/// Sends heartbeats until a condition holds.
async fn beat_until(agent: &mut Agent, server: &Server, is_so: impl AsyncFn(&Agent) -> bool) {
    loop {
        agent.beat(server).await;
        if is_so(agent).await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_message_that_panics_is_set_aside_and_the_next_ones_arrive() {
    let mut server = Server::under(&["env", "BURSAR_DEBUG_PANIC=Receive {&UsageMetered("]);
    furnish(&server).await;
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, small("j")).await;
    beat_until(&mut agent, &server, async |agent| agent.runs_job("j")).await;
    agent.work(1);
    beat_until(&mut agent, &server, async |_| {
        ready(&server).await["set_aside"]["ledger-0"].as_u64().is_some_and(|count| count > 0)
    })
    .await;
    // What ends the attempt says all of its usage.
    agent.finish(&server, "j", 0).await;
    while state(&server, "j").await != "succeeded" {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    while ready(&server).await["set_aside_kinds"] != json!({ "ledger-0": ["message"] }) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    check_books(&server, 1_000_000_000, &["j"]).await;

    server.crash_and_restart(&[]);
    let said = ready(&server).await;
    assert!(said["set_aside"]["ledger-0"].as_u64().is_some_and(|count| count > 0), "{said}");
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, small("next")).await;
    beat_until(&mut agent, &server, async |agent| agent.runs_job("next")).await;
    agent.work(1);
    agent.finish(&server, "next", 0).await;
    while state(&server, "next").await != "succeeded" {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
