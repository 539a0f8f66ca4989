//! Calls that a cell carries out, repeated under the same idempotency key.

use serde_json::{Value, json};

use crate::agent::{Agent, offer};
use crate::server::{Answer, Server};
use crate::world::*;

const MANUAL: [&str; 2] = ["--clock", "manual"];

async fn keyed(server: &Server, method: &str, path: &str, body: Value, key: &str) -> Answer {
    server.send(method, path, body, &server.root, &[("Idempotency-Key", key)]).await
}

#[track_caller]
fn same(first: &Answer, again: &Answer) {
    assert_eq!((again.status, &again.body), (first.status, &first.body));
    assert!(again.is_replayed() && !first.is_replayed());
}

#[tokio::test]
async fn a_repeated_preempt_stops_a_job_once_also_over_kill_nine() {
    let mut server = priced(&[]).await;
    let mut node = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, small("j")).await;
    node.run(&server, 60).await;
    let path = "/v1/jobs/j/preempt";
    let first = keyed(&server, "POST", path, json!({}), "once").await;
    assert_eq!(first.status, 200, "{}", first.body);
    node.beat(&server).await;
    node.run(&server, 60).await;
    assert!(node.runs_job("j"), "it was queued again and runs");
    same(&first, &keyed(&server, "POST", path, json!({}), "once").await);
    server.crash_and_restart(&MANUAL);
    same(&first, &keyed(&server, "POST", path, json!({}), "once").await);
    node.run(&server, 30).await;
    assert!(node.runs_job("j"));
    let attempts = job(&server, "j").await["attempts"].as_array().expect("attempts").len();
    assert_eq!(attempts, 2);
    // Another request under the same key is refused, and changes nothing.
    submit(&server, small("k")).await;
    let other = keyed(&server, "POST", "/v1/jobs/k/preempt", json!({}), "once").await;
    other.problem("idempotency_key_reused");
    keyed(&server, "POST", path, json!({}), "twice").await.expect(200);
    node.beat(&server).await;
    assert!(!node.runs_job("j"));
    cancel(&server, "j").await;
    cancel(&server, "k").await;
    node.beat(&server).await;
    check_books(&server, 1_000_000_000, &["j", "k"]).await;
}

#[tokio::test]
async fn a_conflict_is_kept_as_well_and_what_is_not_found_is_not() {
    let server = priced(&[]).await;
    submit(&server, small("j")).await;
    let path = "/v1/jobs/j/preempt";
    let first = keyed(&server, "POST", path, json!({}), "early").await;
    assert_eq!(first.status, 409);
    let late = "/v1/nodes/n1/drain";
    keyed(&server, "POST", late, json!({}), "late").await.problem("not_found");
    let mut node = Agent::register(&server, "n1", "H100", 1).await;
    node.run(&server, 60).await;
    same(&first, &keyed(&server, "POST", path, json!({}), "early").await);
    node.run(&server, 30).await;
    assert!(node.runs_job("j"));
    keyed(&server, "POST", late, json!({}), "late").await.expect(200);
}

#[tokio::test]
async fn calls_about_nodes_and_regions_take_effect_once() {
    let mut server = priced(&[]).await;
    Agent::register(&server, "n1", "H100", 1).await;
    let window = json!({ "from": "2030-01-01T00:00:00Z", "to": "2030-01-02T00:00:00Z" });
    let plan = "/v1/regions/default/maintenance";
    let calls = [
        ("POST", "/v1/nodes/n1/drain", json!({})),
        ("POST", "/v1/nodes/n1/resume", json!({})),
        ("PUT", plan, window.clone()),
        ("DELETE", plan, Value::Null),
        ("DELETE", "/v1/nodes/n1", Value::Null),
        ("POST", "/v1/nodes", offer("n1", "default", "H100", 1)),
    ];
    let mut first = Vec::new();
    for (place, (method, path, body)) in calls.iter().enumerate() {
        let key = format!("k{place}");
        let answer = keyed(&server, method, path, body.clone(), &key).await;
        assert!((200..300).contains(&answer.status), "{method} {path}: {}", answer.body);
        same(&answer, &keyed(&server, method, path, body.clone(), &key).await);
        first.push(answer);
    }
    server.crash_and_restart(&MANUAL);
    server.call("PUT", plan, window).await.expect(200);
    for (place, (method, path, body)) in calls.iter().enumerate() {
        let key = format!("k{place}");
        same(&first[place], &keyed(&server, method, path, body.clone(), &key).await);
        let other = keyed(&server, "POST", "/v1/nodes/n1/drain", json!({ "force": true }), &key);
        other.await.problem("idempotency_key_reused");
    }
    let node = server.get("/v1/nodes/n1").await;
    // Its one registration is counted above that of the deleted node.
    assert_eq!((&node["state"], &node["incarnation"]), (&json!("ready"), &json!(2)));
    server.get(plan).await;
    verify(&server);
}

#[tokio::test]
async fn keys_are_forgotten_after_a_week() {
    let server = priced(&[]).await;
    Agent::register(&server, "n1", "H100", 1).await;
    let drain = || keyed(&server, "POST", "/v1/nodes/n1/drain", json!({}), "week");
    assert!(!drain().await.is_replayed());
    server.advance(7 * 24 * 3600).await;
    assert!(drain().await.is_replayed());
    server.advance(1).await;
    assert!(!drain().await.is_replayed());
}
