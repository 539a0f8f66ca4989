//! The id of an array names all of its jobs.

use serde_json::json;

use crate::agent::Agent;
use crate::server::Server;
use crate::world::{cancel, furnish, job, priced, small, state, submit, verify, with};

#[tokio::test]
async fn the_id_of_an_array_names_all_of_its_jobs() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 2).await;
    let body = with(small("arr"), "array", json!(3));
    let made = submit(&server, body.clone()).await;
    let job_ids = json!(["arr.0", "arr.1", "arr.2"]);
    assert_eq!((&made["id"], &made["array"]), (&json!("arr.0"), &job_ids));
    agent.beat(&server).await;
    let read = server.get("/v1/jobs/arr").await;
    assert_eq!((&read["id"], &read["array"]), (&json!("arr.0"), &job_ids));
    assert_eq!(read["state"], "running");
    assert_eq!(server.get("/v1/jobs/arr.1").await["array"], job_ids);
    assert_eq!(server.get("/v1/jobs/arr/why").await["job"], "arr.0");
    server.get("/v1/jobs/arr/timeline").await;

    let cancelled = server.call("POST", "/v1/jobs/arr/cancel", json!({})).await.expect(200);
    assert_eq!((&cancelled["id"], &cancelled["array"]), (&json!("arr.0"), &job_ids));
    agent.beat(&server).await;
    for id in ["arr.0", "arr.1", "arr.2"] {
        assert_eq!(state(&server, id).await, "cancelled", "{id}");
    }
    server.call("POST", "/v1/jobs/arr/cancel", json!({})).await.expect(200);
    let again = server.call("POST", "/v1/jobs", body).await.expect(200);
    assert_eq!((&again["id"], &again["array"]), (&made["id"], &made["array"]));
    let other = with(small("arr"), "array", json!(2));
    server.call("POST", "/v1/jobs", other).await.problem("already_exists");
    server.call("POST", "/v1/jobs", small("arr")).await.problem("already_exists");
    submit(&server, small("one.0")).await;
    server.call("GET", "/v1/jobs/one", json!(null)).await.problem("not_found");
    server.call("GET", "/v1/jobs/ar", json!(null)).await.problem("not_found");
    verify(&server);
}

#[tokio::test]
async fn a_job_may_come_after_a_whole_array() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 2).await;
    submit(&server, with(small("arr"), "array", json!(2))).await;
    submit(&server, with(small("then"), "after", json!(["arr"]))).await;
    agent.beat(&server).await;
    agent.finish(&server, "arr.0", 0).await;
    let why = server.get("/v1/jobs/then/why").await;
    assert_eq!(crate::world::blocker_types(&why), ["dependency"]);
    agent.finish(&server, "arr.1", 0).await;
    agent.beat(&server).await;
    assert_eq!(state(&server, "then").await, "running");
    verify(&server);
}

#[tokio::test]
async fn an_array_may_have_the_longest_id() {
    let server = priced(&[]).await;
    let id = "i".repeat(64);
    let made = submit(&server, with(small(&id), "array", json!(12))).await;
    assert_eq!(made["array"][11], format!("{id}.11"));
    assert_eq!(server.get(&format!("/v1/jobs/{id}.11")).await["state"], "queued");
    let path = format!("/v1/jobs/{id}/cancel");
    server.call("POST", &path, json!({})).await.expect(200);
    assert_eq!(state(&server, &format!("{id}.11")).await, "cancelled");
    verify(&server);
}

#[tokio::test]
async fn an_answer_about_a_job_says_the_position_that_it_saw_or_none() {
    let server = priced(&[]).await;
    let position = |answer: &crate::server::Answer| {
        let header = answer.headers.get("bursar-position").expect("a position");
        header.to_str().expect("digits").parse::<u64>().expect("digits")
    };
    // The first answer is given again as it was, so the position is in the header alone.
    let made = server.call("POST", "/v1/jobs", small("j")).await;
    assert_eq!(made.body["ledger_position"], json!(null));
    assert!(position(&made) > 0);
    assert!(server.get("/v1/jobs/j").await["ledger_position"].as_u64() >= Some(position(&made)));
    let cancelled = server.call("POST", "/v1/jobs/j/cancel", json!({})).await;
    assert_eq!(cancelled.body["ledger_position"], json!(null));
    assert!(position(&cancelled) > position(&made));
}

#[tokio::test]
async fn an_array_whose_first_job_is_forgotten_is_shown_and_cancelled_by_its_id() {
    let server = Server::configured("[ledger]\nclosed_memory = 0\n", &["--clock", "manual"]);
    furnish(&server).await;
    // No node has its GPU type.
    let waiting = with(small("a"), "gpus", json!({ "types": ["A100"] }));
    submit(&server, with(waiting, "array", json!(3))).await;
    cancel(&server, "a.0").await;
    let first = job(&server, "a").await;
    for _ in 0..3 {
        server.advance(20 * 86_400).await;
    }
    let charge = json!({ "id": "last", "account": "acme", "amount": "1" });
    server.call("POST", "/v1/charges", charge).await.expect(201);
    server.until_forgotten().await;
    let shown = job(&server, "a").await;
    for field in ["id", "state", "hold", "returned", "array", "ended_at"] {
        assert_eq!(shown[field], first[field], "{field}");
    }
    let timeline = server.get("/v1/jobs/a/timeline").await;
    assert!(timeline["data"].as_array().is_some_and(|steps| steps.len() > 1), "{timeline}");
    assert_eq!(state(&server, "a.1").await, "queued");
    assert_eq!(cancel(&server, "a").await["id"], "a.1");
    for id in ["a.1", "a.2"] {
        assert_eq!(state(&server, id).await, "cancelled");
    }
}
