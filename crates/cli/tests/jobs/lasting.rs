//! Long requests: long polls, streams, followed logs, reads that wait for a position. They take
//! no capacity from other requests, are bounded, and end with their key.

use serde_json::{Value, json};

use crate::server::{Answer, Server, read};
use crate::world::{furnish, small, submit};

/// Creates an agent's key of a tenant and nodes; returns the key.
async fn nodes(server: &Server, scope: &str, count: u32) -> String {
    let key = server.key("agent", scope).await;
    for number in 0..count {
        let node = json!({
            "id": format!("n{number}"), "region": "default", "cpus": 1, "memory_gib": 1,
            "gpus": [{ "uuid": format!("GPU-{number}"), "type": "H100", "memory_gib": 80 }],
        });
        server.send("POST", "/v1/nodes", node, &key, &[]).await.expect(201);
    }
    key
}

/// A report of a node that waits for orders.
async fn poll(client: reqwest::Client, url: String, key: String, node: u32, seq: u32) -> Answer {
    let report = json!({ "incarnation": 1, "seq": seq, "attempts": [] });
    let path = format!("{url}/v1/nodes/n{node}/heartbeat?wait_seconds=20");
    let request = client.post(path).bearer_auth(key).json(&report);
    read(request.send().await.expect("the server is there")).await
}

fn spawn(server: &Server, key: &str, node: u32, seq: u32) -> tokio::task::JoinHandle<Answer> {
    tokio::spawn(poll(server.client.clone(), server.url.clone(), key.to_owned(), node, seq))
}

#[tokio::test]
async fn waiting_polls_of_one_tenant_do_not_shed_requests_of_another() {
    let limits = "[limits]\nin_flight = 8\nwaiting = 64\n";
    let server = Server::configured(limits, &["--clock", "manual"]);
    furnish(&server).await;
    server.grant("other", "umbra", "10").await;
    let hold = json!({ "id": "h", "account": "umbra", "amount": "1" });
    server.call("POST", "/v1/holds", hold).await.expect(201);
    let key = nodes(&server, "acme", 17).await;
    let mut polls = Vec::new();
    for node in 0..16 {
        polls.push(spawn(&server, &key, node, 1));
        let now = f64::from(node + 1);
        server.until_metric("bursar_http_waiting", |waiting| waiting == now).await;
    }
    let umbra = server.key("submitter", "umbra").await;
    let settle = json!({ "total": "0.5" });
    server.send("POST", "/v1/holds/h/settle", settle, &umbra, &[]).await.expect(200);
    server.send("GET", "/v1/accounts/umbra", Value::Null, &umbra, &[]).await.expect(200);
    let refused = poll(server.client.clone(), server.url.clone(), key.clone(), 16, 1).await;
    let problem = refused.problem("rate_limited");
    assert!(problem["detail"].as_str().is_some_and(|said| said.contains("report was taken")));
    // A node without a place to wait still reports.
    let report = json!({ "incarnation": 1, "seq": 2, "attempts": [] });
    let path = "/v1/nodes/n16/heartbeat";
    server.send("POST", path, report, &key, &[]).await.expect(200);
    polls.iter().for_each(tokio::task::JoinHandle::abort);
    server.until_metric("bursar_http_waiting", |waiting| waiting == 0.0).await;
}

#[tokio::test]
async fn a_newer_poll_of_a_node_ends_the_older_one() {
    let server = Server::start();
    furnish(&server).await;
    let key = nodes(&server, "acme", 1).await;
    let older = spawn(&server, &key, 0, 1);
    server.until_metric("bursar_http_waiting", |waiting| waiting == 1.0).await;
    let newer = spawn(&server, &key, 0, 2);
    let orders = older.await.expect("answered").expect(200);
    assert_eq!(orders["orders"], json!([]));
    assert!(!newer.is_finished());
    newer.abort();
}

#[tokio::test]
async fn streams_of_a_key_are_limited() {
    let server = Server::configured("[limits]\nwaiting = 64\n", &["--clock", "manual"]);
    furnish(&server).await;
    let viewer = server.key("viewer", "acme").await;
    let open = async || {
        let request = server.client.get(format!("{}/v1/events", server.url)).bearer_auth(&viewer);
        request.send().await.expect("the server is there")
    };
    let streams = [open().await, open().await];
    assert!(streams.iter().all(|stream| stream.status() == 200));
    read(open().await).await.problem("rate_limited");
    drop(streams);
    server.until_metric("bursar_http_waiting", |waiting| waiting == 0.0).await;
    assert_eq!(open().await.status(), 200);
}

/// A key of a tenant: its id and its secret.
async fn made(server: &Server, body: Value) -> (String, String) {
    let made = server.call("POST", "/v1/keys", body).await.expect(201);
    let text = |field: &str| made[field].as_str().expect("text").to_owned();
    (text("id"), text("key"))
}

/// All kinds of long requests, started with one admin key.
struct Lasting {
    events: reqwest::Response,
    logs: reqwest::Response,
    poll: tokio::task::JoinHandle<Answer>,
}

impl Lasting {
    async fn begin(server: &Server, key: &str) -> Lasting {
        let get = |path: &str| server.client.get(format!("{}{path}", server.url)).bearer_auth(key);
        let events = get("/v1/events").send().await.expect("the server is there");
        let logs = get("/v1/jobs/j/logs?follow=true").send().await.expect("the server is there");
        assert_eq!((events.status().as_u16(), logs.status().as_u16()), (200, 200));
        let poll = spawn(server, key, 0, 1);
        server.until_metric("bursar_http_waiting", |waiting| waiting == 3.0).await;
        Lasting { events, logs, poll }
    }

    /// All of them end because of the key.
    async fn ends(self) {
        let said = self.events.text().await.expect("it ends in order");
        let last = said.trim().rsplit("\n\n").next().expect("an event");
        assert!(last.contains("event: problem") && last.contains("unauthenticated"), "{said}");
        assert!(
            last.contains("\"request_id\":\"req_") && last.contains("\"type\":\"http"),
            "{last}"
        );
        assert!(!last.contains("id:"), "the last event stays the one to go on behind: {said}");
        self.logs.bytes().await.expect_err("the output is broken off, not complete");
        self.poll.await.expect("answered").problem("unauthenticated");
    }
}

/// A server with a job that waits for a GPU type which no node has.
async fn with_a_waiting_job() -> Server {
    let server = Server::start();
    furnish(&server).await;
    nodes(&server, "acme", 1).await;
    let gpus = json!({ "types": ["A100"], "count": 1 });
    submit(&server, crate::world::with(small("j"), "gpus", gpus)).await;
    server
}

#[tokio::test]
async fn a_revoked_key_ends_its_waiting_requests() {
    let server = with_a_waiting_job().await;
    let (id, key) =
        made(&server, json!({ "role": "admin", "scope": "acme", "name": "short" })).await;
    let lasting = Lasting::begin(&server, &key).await;
    revoke(&server, &id).await;
    lasting.ends().await;
    server.until_metric("bursar_http_waiting", |waiting| waiting == 0.0).await;
}

async fn revoke(server: &Server, id: &str) {
    let revoked = server.call("DELETE", &format!("/v1/keys/{id}"), Value::Null).await;
    assert!(revoked.status < 300, "{revoked:?}");
}

#[tokio::test]
async fn a_revoked_key_ends_a_read_that_waits_for_a_position() {
    let server = Server::start();
    furnish(&server).await;
    for path in ["/v1/accounts/acme/balance", "/v1/accounts/acme"] {
        loop {
            let body = json!({ "role": "viewer", "scope": "acme", "name": "short" });
            let (id, key) = made(&server, body).await;
            let now = server.get("/v1/accounts/acme/balance").await["position"].as_u64();
            let ahead = now.expect("a position") + 500;
            let wait = server.client.get(format!("{}{path}?min_position={ahead}", server.url));
            let wait = wait.bearer_auth(key);
            let wait = tokio::spawn(async move { read(wait.send().await.expect("sent")).await });
            server.until_metric("bursar_http_waiting", |waiting| waiting == 1.0).await;
            revoke(&server, &id).await;
            let answer = wait.await.expect("answered");
            // On a slow machine it may have been over before.
            if answer.body["code"] != "unavailable" {
                answer.problem("unauthenticated");
                break;
            }
        }
    }
}

#[tokio::test]
async fn an_expired_key_ends_its_waiting_requests() {
    let server = with_a_waiting_job().await;
    let now = server.get("/v1/clock").await["now"].as_str().expect("a time").to_owned();
    let expires_at = now.replace("T00:00:0", "T00:00:3");
    assert_ne!(now, expires_at);
    let body = json!({
        "role": "admin", "scope": "acme", "name": "short", "expires_at": expires_at
    });
    let (_, key) = made(&server, body).await;
    let lasting = Lasting::begin(&server, &key).await;
    server.advance(60).await;
    lasting.ends().await;
}
