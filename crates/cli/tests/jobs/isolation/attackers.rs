//! Hostile agents: attempts of other nodes, earlier incarnations, names and GPUs of
//! another owner, output without end.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::agent::{Agent, offer};
use crate::server::Server;
use crate::world::*;

/// The files beside the journals that name attempts.
fn kept(server: &Server) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(server.data().join("logs"));
    entries.into_iter().flatten().map(|entry| entry.expect("a file").path()).collect()
}

/// This many letters x in base64.
fn base64_of_x(bytes: usize) -> String {
    let rest = ["", "eA==", "eHg="][bytes % 3];
    "eHh4".repeat(bytes / 3) + rest
}

async fn attempt_of(server: &Server, id: &str) -> Value {
    job(server, id).await["attempts"][0].clone()
}

#[tokio::test]
async fn an_agent_that_names_attempts_of_other_nodes_gets_only_orders_to_forget() {
    let server = priced(&[]).await;
    let key = server.key("agent", "umbra").await;
    // The same name and the same GPUs as the attacked node.
    let mut victim = Agent::register(&server, "n1", "H100", 1).await;
    let mut attacker = Agent::register_under(&server, &key, "default", "n1", "H100", 1).await;
    submit(&server, small("a")).await;
    victim.beat(&server).await;
    let attempt = victim.attempt_of("a");
    for state in ["running", "succeeded", "failed", "stopped"] {
        attacker.seq += 1;
        let report = json!({ "incarnation": 1, "seq": attacker.seq, "attempts": [{
            "id": attempt, "state": state, "gpu_ms_total": 999_999_999, "exit_code": 0,
            "message": "planted", "log_tail": "planted"
        }]});
        let said = attacker.send(&server, report).await.expect(200);
        let forget = json!({ "type": "forget", "attempt": attempt });
        let orders = said["orders"].as_array().expect("orders");
        assert_eq!(orders.len(), 1, "{said}");
        for (field, value) in forget.as_object().expect("fields") {
            assert_eq!(&orders[0][field], value, "{said}");
        }
        assert!(orders[0]["job"].is_null() && orders[0]["spec"].is_null(), "{said}");
    }
    let chunk = json!({ "incarnation": 1, "attempt": attempt, "offset": 0,
        "data": "cGxhbnRlZA==" });
    let post = async |body: Value| server.send("POST", "/v1/nodes/n1/logs", body, &key, &[]).await;
    post(chunk.clone()).await.problem("not_found");
    for unknown in ["att_1", "att_00000000000000000000001", "att_..", "../x"] {
        post(with(chunk.clone(), "attempt", unknown.into())).await.problem("not_found");
    }
    assert_eq!(kept(&server), Vec::<PathBuf>::new(), "nothing of its reports was stored");
    assert_eq!(state(&server, "a").await, "running");
    victim.run(&server, 60).await;
    // Only the node's own report about the end is used.
    let run = victim.runs.get_mut(&attempt).expect("it runs");
    (run.state, run.exit_code) = ("failed", Some(1));
    let mut report = victim.report();
    report["attempts"][0]["message"] = "out of memory".into();
    report["attempts"][0]["log_tail"] = "last line".into();
    victim.send(&server, report).await.expect(200);
    let orders = victim.ask(&server).await;
    assert_eq!(orders[0]["type"], "forget", "{orders:?}");
    assert_eq!(orders[0]["job"], "a", "an order about its own attempt names the job: {orders:?}");
    victim.obey(&orders);
    // One thread writes: what comes later is written later.
    let own = json!({ "incarnation": 1, "attempt": attempt, "offset": 9, "data": "" });
    let sent = server.call("POST", "/v1/nodes/n1/logs", own).await.expect(200);
    assert_eq!(sent["next_offset"], 9);
    let ended = attempt_of(&server, "a").await;
    assert_eq!((&ended["message"], &ended["gpu_ms"]), (&json!("out of memory"), &json!(60_000)));
    let logs = server.send("GET", "/v1/jobs/a/logs", Value::Null, &server.root, &[]).await;
    assert_eq!(logs.body, "last line");
    check_books(&server, 1_000_000_000, &["a"]).await;
}

#[tokio::test]
async fn a_poll_of_an_earlier_start_ends_when_the_agent_starts_again() {
    let server = priced(&[]).await;
    let old = Agent::register(&server, "n1", "H100", 1).await;
    server.advance(10).await;
    let lease = server.get("/v1/nodes/n1").await["lease_until"].clone();
    let body = json!({ "incarnation": 1, "seq": 1, "attempts": [] });
    let path = "/v1/nodes/n1/heartbeat?wait_seconds=60";
    let parked = server.send("POST", path, body, &server.root, &[]);
    let restart = async {
        // Not before the report of the poll is taken, which renews the lease.
        while server.get("/v1/nodes/n1").await["lease_until"] == lease {}
        let again = offer("n1", "default", "H100", 1);
        server.call("POST", "/v1/nodes", again).await.expect(201);
        submit(&server, small("a")).await;
    };
    let (parked, ()) = tokio::join!(parked, restart);
    parked.problem("stale_incarnation");
    let mut new = Agent { incarnation: 2, seq: 0, ..old };
    new.beat(&server).await;
    assert!(new.runs_job("a"), "the order went to the agent that was started last");
}

#[tokio::test]
async fn owners_may_use_the_same_names_and_gpus_without_seeing_each_other() {
    let server = priced(&["--region", "default", "--region", "other"]).await;
    let keys = [
        (server.root.clone(), "*"),
        (server.key("agent", "acme:nlp").await, "acme"),
        (server.key("agent", "umbra").await, "umbra"),
    ];
    let mut answers = Vec::new();
    for (key, _) in &keys {
        let body = offer("n1", "default", "H100", 1);
        let answer = server.send("POST", "/v1/nodes", body, key, &[]).await.expect(201);
        answers.push((answer["node"].clone(), answer["incarnation"].clone()));
    }
    assert!(answers.iter().all(|answer| *answer == (json!("n1"), json!(1))), "{answers:?}");
    // Each agent reports for its own node; the platform's agent needs no header.
    for (key, _) in &keys {
        let body = json!({ "incarnation": 1, "seq": 1, "attempts": [] });
        server.send("POST", "/v1/nodes/n1/heartbeat", body, key, &[]).await.expect(200);
    }
    // Somewhere else a name is free to those who do not have it there.
    let body = offer("n2", "other", "H100", 1);
    server.send("POST", "/v1/nodes", body, &keys[1].0, &[]).await.expect(201);
    let body = offer("n2", "default", "H100", 1);
    server.send("POST", "/v1/nodes", body.clone(), &keys[1].0, &[]).await.problem("conflict");
    server.send("POST", "/v1/nodes", body, &keys[2].0, &[]).await.expect(201);

    let viewer = server.key("viewer", "umbra").await;
    let seen = server.send("GET", "/v1/nodes/n1", Value::Null, &viewer, &[]).await.expect(200);
    assert_eq!(seen["scope"], "umbra", "within a tenant its own node comes first");
    let problem = server.call("GET", "/v1/nodes/n1", Value::Null).await.problem("ambiguous_id");
    let detail = problem["detail"].as_str().expect("text");
    assert!(["*", "acme", "umbra"].iter().all(|owner| detail.contains(owner)), "{detail}");
    server.call("POST", "/v1/nodes/n1/drain", json!({})).await.problem("ambiguous_id");
    let window = json!({ "from": "2030-01-01T00:00:00Z", "to": "2030-01-02T00:00:00Z",
        "nodes": ["n1"] });
    let plan = "/v1/regions/default/maintenance";
    server.call("PUT", plan, window.clone()).await.problem("ambiguous_id");
    for (_, owner) in &keys {
        let header = [("Bursar-Tenant", *owner)];
        let send = async |method: &str, path: &str, body: Value| {
            server.send(method, path, body, &server.root, &header).await
        };
        let node = send("GET", "/v1/nodes/n1", Value::Null).await.expect(200);
        let scope = if *owner == "acme" { "acme:nlp" } else { owner };
        assert_eq!(node["scope"], scope);
        let drained = send("POST", "/v1/nodes/n1/drain", json!({})).await.expect(200);
        assert_eq!((&drained["state"], &drained["scope"]), (&json!("drained"), &json!(scope)));
        assert_eq!(send("PUT", plan, window.clone()).await.expect(200)["nodes"], json!(["n1"]));
    }
    let header = [("Bursar-Tenant", "missing")];
    server
        .send("GET", "/v1/nodes/n1", Value::Null, &server.root, &header)
        .await
        .problem("not_found");

    // Every node is on one page of the list, in the order of names.
    let (mut cursor, mut listed) = (String::new(), Vec::new());
    loop {
        let page = server.get(&format!("/v1/nodes?limit=1{cursor}")).await;
        let node = &page["data"][0];
        listed.push(format!("{} {}", node["id"], node["scope"]).replace('"', ""));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(listed, ["n1 *", "n1 acme:nlp", "n1 umbra", "n2 acme:nlp", "n2 umbra"]);
    verify(&server);
}

#[tokio::test]
async fn messages_and_output_of_an_agent_are_bounded() {
    let server = priced(&[]).await;
    let mut node = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, small("a")).await;
    node.beat(&server).await;
    let attempt = node.attempt_of("a");
    let chunk = |bytes: usize| {
        json!({ "incarnation": 1, "attempt": attempt, "offset": 0,
            "data": base64_of_x(bytes) })
    };
    let post = async |body: Value| server.call("POST", "/v1/nodes/n1/logs", body).await;
    let refused = post(chunk((1 << 20) + 1)).await.problem("invalid_field");
    assert_eq!(refused["param"], "data");
    assert_eq!(post(chunk(1 << 20)).await.expect(200)["next_offset"], 1 << 20);
    let long = with(json!({ "state": "running", "gpu_ms_total": 0 }), "id", "x".repeat(65).into());
    let body = json!({ "incarnation": 1, "seq": 100, "attempts": [long] });
    node.send(&server, body).await.problem("invalid_field");
    let run = node.runs.get_mut(&attempt).expect("it runs");
    (run.state, run.exit_code) = ("failed", Some(1));
    let mut report = node.report();
    report["attempts"][0]["message"] = "y".repeat(1 << 20).into();
    node.send(&server, report).await.expect(200);
    post(chunk(0)).await.expect(200);
    let message = attempt_of(&server, "a").await["message"].clone();
    assert_eq!(message, "y".repeat(4096));
    for (field, value) in [
        ("rack", json!("r".repeat(65))),
        ("gpus", json!([{ "uuid": "u".repeat(129), "type": "H100", "memory_gib": 80 }])),
        ("gpus", json!([{ "uuid": "u", "type": "H".repeat(65), "memory_gib": 80 }])),
    ] {
        let body = with(offer("n2", "default", "H100", 1), field, value);
        server.call("POST", "/v1/nodes", body).await.problem("invalid_field");
    }
}

/// The id that an attempt would have if ids only counted: 64 bits of job, 16 of cell, 32 of number.
fn counted(job: u128, cell: u128, number: u128) -> String {
    let alphabet = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let bits = (job << 48) | (cell << 32) | number;
    let digit = |place: u32| char::from(alphabet[(bits >> (5 * place) & 31) as usize]);
    let digits: String = (0..23).rev().map(digit).collect();
    format!("att_{digits}")
}

#[tokio::test]
async fn ids_of_attempts_are_not_guessed_and_stay_what_they_are() {
    let mut server = priced(&[]).await;
    let mut node = Agent::register(&server, "n1", "H100", 2).await;
    for id in ["a", "b"] {
        submit(&server, small(id)).await;
    }
    node.beat(&server).await;
    let (first, second) = (node.attempt_of("a"), node.attempt_of("b"));
    let alike = first.bytes().zip(second.bytes()).skip(4).filter(|(a, b)| a == b).count();
    assert!(first.len() == 30 && alike < 13, "{first} {second}");
    let other = Server::with(&["--clock", "manual"]);
    furnish(&other).await;
    let mut elsewhere = Agent::register(&other, "n1", "H100", 2).await;
    submit(&other, small("a")).await;
    elsewhere.beat(&other).await;
    assert_ne!(elsewhere.attempt_of("a"), first, "every store has a secret of its own");
    for guess in (0..4).flat_map(|job| (0..3).map(move |cell| counted(job, cell, 1))) {
        let chunk = json!({ "incarnation": 1, "attempt": guess, "offset": 0, "data": "" });
        server.call("POST", "/v1/nodes/n1/logs", chunk).await.problem("not_found");
    }
    let chunk = json!({ "incarnation": 1, "attempt": first, "offset": 0, "data": "eHh4" });
    server.call("POST", "/v1/nodes/n1/logs", chunk).await.expect(200);
    server.crash_and_restart(&["--clock", "manual"]);
    node.run(&server, 30).await;
    assert!(node.runs_job("a") && node.runs_job("b"), "the agent's ids are still known");
    assert_eq!(attempt_of(&server, "a").await["id"], first);
    let shown = server.get("/v1/nodes/n1").await;
    let mut listed: Vec<&str> =
        shown["attempts"].as_array().expect("ids").iter().filter_map(Value::as_str).collect();
    listed.sort_unstable();
    let mut expected = [first.as_str(), second.as_str()];
    expected.sort_unstable();
    assert_eq!(listed, expected);
    let path = format!("/v1/jobs/a/logs?attempt={first}");
    let logs = server.call("GET", &path, Value::Null).await;
    assert_eq!((logs.status, &logs.body), (200, &json!("xxx")));
    let timeline = server.get("/v1/jobs/a/timeline").await;
    let entries = timeline["data"].as_array().expect("entries");
    let named: Vec<&Value> =
        entries.iter().map(|entry| &entry["attempt"]).filter(|id| !id.is_null()).collect();
    assert!(named.len() > 2 && named.iter().all(|id| **id == first), "{timeline}");
    for id in ["a", "b"] {
        node.finish(&server, id, 0).await;
    }
    check_books(&server, 1_000_000_000, &["a", "b"]).await;
}

#[tokio::test]
async fn gpu_types_of_tenants_are_not_metric_labels() {
    let server = priced(&[]).await;
    let key = server.key("agent", "umbra").await;
    Agent::register(&server, "p1", "Own", 1).await;
    for (node, gpus) in [("u1", "Made-up-1"), ("u2", "Made-up-2"), ("u3", "A100")] {
        Agent::register_under(&server, &key, "default", node, gpus, 1).await;
    }
    let metrics = server.call("GET", "/metrics", Value::Null).await.body;
    let text = metrics.as_str().expect("text");
    for (gpu_type, named) in [("Own", true), ("A100", true), ("other", true), ("Made-up", false)] {
        assert_eq!(text.contains(&format!("gpu_type=\"{gpu_type}")), named, "{gpu_type}: {text}");
    }
}

#[tokio::test]
async fn without_space_for_output_agents_keep_it_and_jobs_continue() {
    // No file system has this much free.
    let lines = "[logs]\nmin_free_bytes = 4611686018427387904\n";
    let server = Server::configured(lines, &["--clock", "manual"]);
    furnish(&server).await;
    let mut node = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, small("a")).await;
    node.beat(&server).await;
    let attempt = node.attempt_of("a");
    let chunk = json!({ "incarnation": 1, "attempt": attempt, "offset": 0, "data": "eHh4" });
    let refused = server.call("POST", "/v1/nodes/n1/logs", chunk).await;
    assert!(refused.headers.contains_key("retry-after"));
    let refused = refused.problem("storage_full");
    assert!(refused["detail"].as_str().is_some_and(|said| said.contains("keep it")), "{refused}");
    // A reader sees why nothing is there, and an operator sees it too.
    let read = server.call("GET", "/v1/jobs/a/logs", Value::Null).await;
    assert!(read.body.to_string().contains("too little room"), "{}", read.body);
    let ready = server.send("GET", "/readyz", Value::Null, "", &[]).await.expect(200);
    assert!(ready["logs"].as_str().is_some_and(|said| said.contains("make room")), "{ready}");
    server.until_metric("bursar_log_no_room", |value| value == 1.0).await;
    server.until_metric("bursar_log_pieces_refused_total", |value| value >= 1.0).await;
    // Heartbeats, usage and charges continue.
    node.run(&server, 60).await;
    node.finish(&server, "a", 0).await;
    assert_eq!(state(&server, "a").await, "succeeded");
    verify(&server);
}
