//! On the wall clock messages are delivered immediately.

use std::time::Duration;

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::server::Server;
use crate::world::{check_charges, job, small, submit, verify};

/// Waits until a job is in a state: the test fails by its own timeout if it never is.
async fn until(server: &Server, id: &str, state: &str) -> Value {
    loop {
        let found = job(server, id).await;
        if found["state"] == state {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_waiting_agent_receives_the_order_to_start_a_new_job_immediately() {
    let server = Server::with(&[]);
    let price = json!({ "per_gpu_hour": "6" });
    server.call("PUT", "/v1/prices/H100", price).await.expect(200);
    server.tree().await;
    server.grant("funds", "acme", "1000").await;
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    let report = agent.report_again();
    let too_long = server.call("POST", "/v1/nodes/n1/heartbeat?wait_seconds=61", report).await;
    assert_eq!(too_long.problem("invalid_field")["param"], "wait_seconds");
    let report = agent.report();
    let waiting = server.call("POST", "/v1/nodes/n1/heartbeat?wait_seconds=20", report);
    let coming = submit(&server, small("j"));
    let (received, submitted) = tokio::join!(waiting, coming);
    assert_eq!(submitted["state"], "queued");
    let orders = received.expect(200)["orders"].as_array().expect("orders").clone();
    assert_eq!((orders.len(), &orders[0]["type"]), (1, &json!("start")));
    agent.obey(&orders);
    agent.beat(&server).await;
    until(&server, "j", "running").await;

    // Nothing new: the poll is answered when something is, here the end that was asked for.
    let report = agent.report();
    let waiting = server.call("POST", "/v1/nodes/n1/heartbeat?wait_seconds=20", report);
    let cancelling = server.call("POST", "/v1/jobs/j/cancel", json!({}));
    let (received, cancelled) = tokio::join!(waiting, cancelling);
    assert_eq!(cancelled.expect(200)["state"], "stopping");
    let orders = received.expect(200)["orders"].as_array().expect("orders").clone();
    assert_eq!((orders.len(), &orders[0]["type"]), (1, &json!("stop")));
    agent.obey(&orders);
    agent.beat(&server).await;
    let ended = until(&server, "j", "cancelled").await;
    check_charges(&ended);
    let data = server.data().to_owned();
    assert!(data.join("cell-default.db").exists());
    verify(&server);
}

#[tokio::test]
async fn a_price_set_ahead_reaches_the_cells_by_itself() {
    let server = Server::with(&[]);
    let now: bursar_api::Time =
        serde_json::from_value(server.get("/v1/prices").await["as_of"].clone()).expect("a time");
    let soon = bursar_api::Time::from_millis(now.millis() + 500);
    let price = json!({ "per_gpu_hour": "6", "effective_at": soon });
    server.call("PUT", "/v1/prices/H100", price).await.expect(200);
    loop {
        let received = crate::funding::catalog::events(&server, "default", "price_set");
        if let Some((at, event)) = received.first() {
            let at: bursar_api::Time = serde_json::from_value(json!(at)).expect("a time");
            assert!(at >= soon, "not before it counts");
            assert_eq!(event["price"], 6_000_000);
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
