//! Submitting, finding and watching jobs.

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::world::{
    blocker_types, cancel, job, micros, priced, small, state, submit, verify, with,
};

#[tokio::test]
async fn the_same_submission_again_is_the_same_job() {
    let server = priced(&[]).await;
    let first = submit(&server, small("j")).await;
    let again = server.call("POST", "/v1/jobs", small("j")).await.expect(200);
    assert_eq!((&again["id"], &again["hold"]), (&first["id"], &first["hold"]));
    let other = with(small("j"), "max_runtime_seconds", json!(60));
    server.call("POST", "/v1/jobs", other).await.problem("already_exists");
    let mut unnamed = small("x");
    unnamed.as_object_mut().expect("an object").remove("id");
    let root = server.root.clone();
    let key = [("Idempotency-Key", "k1")];
    let made = server.send("POST", "/v1/jobs", unnamed.clone(), &root, &key).await;
    let repeated = server.send("POST", "/v1/jobs", unnamed.clone(), &root, &key).await;
    assert!(repeated.is_replayed());
    let (made, repeated) = (made.expect(201), repeated.expect(201));
    assert_eq!(made["id"], repeated["id"]);
    assert!(made["id"].as_str().expect("an id").starts_with("job_"));
    let reused = server.send("POST", "/v1/jobs", small("y"), &root, &key).await;
    reused.problem("idempotency_key_reused");
    let listed = server.get("/v1/jobs").await;
    assert_eq!(listed["data"].as_array().expect("a list").len(), 2);
}

#[tokio::test]
async fn a_job_says_whether_it_resumes() {
    let server = priced(&[]).await;
    let silent = submit(&server, small("starts-over")).await;
    assert_eq!(silent["spec"]["resumable"], json!(false));
    let resumes = submit(&server, with(small("resumes"), "resumable", json!(true))).await;
    assert_eq!(resumes["spec"]["resumable"], json!(true));
    assert_eq!(server.get("/v1/jobs/resumes").await["spec"]["resumable"], json!(true));
    let other = server.call("POST", "/v1/jobs", small("resumes")).await;
    other.problem("already_exists");
}

#[tokio::test]
async fn invalid_fields_are_rejected_and_named() {
    let server = priced(&[]).await;
    for (field, value, param) in [
        ("gpus", json!({ "types": ["H100"], "count": 0 }), "gpus.count"),
        ("gpus", json!({ "types": ["H100"], "count": 65 }), "gpus.count"),
        ("gpus", json!({ "types": ["H100"], "count": 1, "share": "0.5" }), "gpus.share"),
        ("gpus", json!({ "types": ["H100"], "share": "1.5" }), "gpus.share"),
        ("gpus", json!({ "types": ["H100"], "share": "0.0001" }), "gpus.share"),
        ("gpus", json!({ "types": [] }), "gpus.types"),
        ("max_runtime_seconds", json!(0), "max_runtime_seconds"),
        ("max_runtime_seconds", Value::Null, "max_runtime_seconds"),
        ("class", json!("nonsense"), "class"),
        ("regions", json!(["nowhere"]), "regions"),
        ("nodes", json!(0), "nodes"),
        ("array", json!(0), "array"),
        ("array", json!(1001), "array"),
        ("concurrency_group", json!({ "name": "g", "limit": 0 }), "concurrency_group.limit"),
        ("labels", json!({ "a=b": "c" }), "labels"),
        ("env", json!({ "LD_PRELOAD=x": "y" }), "env"),
        ("env", json!({ "": "y" }), "env"),
        ("env", json!({ "A\0B": "y" }), "env"),
        ("env", json!({ "A": "x\0y" }), "env"),
        ("command", json!(["echo", "a\0b"]), "command"),
        ("command", json!([""]), "command"),
        ("command", json!(["echo", "x".repeat(131_072)]), "command"),
        // Linux starts no process with a longer variable.
        ("env", json!({ "A": "x".repeat(131_070) }), "env"),
        ("workdir", json!("/data\0"), "workdir"),
        ("resumable", json!("yes"), "resumable"),
        ("colour", json!("red"), "colour"),
    ] {
        let refused = server.call("POST", "/v1/jobs", with(small("j"), field, value)).await;
        let problem = refused.problem("invalid_field");
        assert_eq!(problem["param"], param, "{problem}");
        assert_eq!(problem["status"], 422, "{problem}");
    }
    let broken = with(small("j"), "labels", json!({ "team": "a\nb" }));
    let problem = server.call("POST", "/v1/jobs", broken).await.problem("invalid_field");
    assert!(problem["detail"].as_str().is_some_and(|text| text.contains("control")), "{problem}");
    submit(&server, with(small("long"), "env", json!({ "A": "x".repeat(131_069) }))).await;
    cancel(&server, "long").await;
    let unpriced = with(small("j"), "gpus", json!({ "types": ["B200"] }));
    let problem = server.call("POST", "/v1/jobs", unpriced).await.problem("unsatisfiable");
    assert_eq!(blocker_types(&problem), ["gpu_type"]);
    let unknown = with(small("j"), "account", json!("acme:missing"));
    server.call("POST", "/v1/jobs", unknown).await.problem("not_found");
}

#[tokio::test]
async fn a_job_that_no_node_can_serve_yet_waits_and_says_why() {
    let server = priced(&[]).await;
    let large = with(small("large"), "gpus", json!({ "types": ["H100"], "count": 16 }));
    submit(&server, large).await;
    submit(&server, with(small("labelled"), "node_labels", json!({ "zone": "b" }))).await;
    assert_eq!(blocker_types(&job(&server, "large").await), ["gpu_type"]);
    let _agent = Agent::register(&server, "n1", "H100", 8).await;
    assert_eq!(blocker_types(&job(&server, "large").await), ["gpu_type"]);
    assert!(blocker_types(&job(&server, "labelled").await).contains(&"memory".to_owned()));
    let _larger = Agent::register(&server, "n2", "H100", 16).await;
    assert_eq!(state(&server, "large").await, "starting");
}

#[tokio::test]
async fn jobs_are_found_by_account_state_and_label_page_by_page() {
    let server = priced(&[]).await;
    for number in 0..5 {
        let body = with(small(&format!("j{number}")), "labels", json!({ "n": number.to_string() }));
        submit(&server, body).await;
    }
    submit(&server, with(small("top"), "account", json!("acme"))).await;
    cancel(&server, "j1").await;
    let ids = |list: &Value| -> Vec<String> {
        let data = list["data"].as_array().expect("a list").iter();
        data.map(|job| job["id"].as_str().expect("an id").to_owned()).collect()
    };
    let of = server.get("/v1/jobs?account=acme:nlp").await;
    assert_eq!(ids(&of), ["j4", "j3", "j2", "j1", "j0"]);
    assert_eq!(ids(&server.get("/v1/jobs?account=acme&limit=1").await), ["top"]);
    assert_eq!(ids(&server.get("/v1/jobs?state=cancelled").await), ["j1"]);
    assert_eq!(ids(&server.get("/v1/jobs?label=n=3").await), ["j3"]);
    assert_eq!(ids(&server.get("/v1/jobs?label=n").await).len(), 5);
    let mut walked = Vec::new();
    let mut path = "/v1/jobs?limit=2".to_owned();
    loop {
        let page = server.get(&path).await;
        walked.extend(ids(&page));
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/v1/jobs?limit=2&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(walked, ["top", "j4", "j3", "j2", "j1", "j0"]);
}

#[tokio::test]
async fn a_tenant_sees_and_touches_only_its_own_jobs() {
    let server = priced(&[]).await;
    submit(&server, small("j")).await;
    let theirs = server.key("admin", "umbra").await;
    for (method, path) in [
        ("GET", "/v1/jobs/j"),
        ("GET", "/v1/jobs/j/why"),
        ("GET", "/v1/jobs/j/timeline"),
        ("GET", "/v1/jobs/j/logs"),
        ("POST", "/v1/jobs/j/cancel"),
        ("POST", "/v1/jobs/j/preempt"),
    ] {
        let body = if method == "POST" { json!({}) } else { Value::Null };
        server.send(method, path, body, &theirs, &[]).await.problem("not_found");
    }
    let list = server.send("GET", "/v1/jobs", Value::Null, &theirs, &[]).await.expect(200);
    assert_eq!(list["data"], json!([]));
    server.send("POST", "/v1/jobs", small("k"), &theirs, &[]).await.problem("not_found");
    let submitter = server.key("submitter", "acme:nlp").await;
    server.send("POST", "/v1/jobs", small("k"), &submitter, &[]).await.expect(201);
    let above = with(small("l"), "account", json!("acme"));
    server.send("POST", "/v1/jobs", above, &submitter, &[]).await.problem("not_found");
    server
        .send("POST", "/v1/jobs/k/preempt", json!({}), &submitter, &[])
        .await
        .problem("forbidden");
    server.send("POST", "/v1/jobs/k/cancel", json!({}), &submitter, &[]).await.expect(200);
}

#[tokio::test]
async fn an_agents_key_speaks_for_its_own_node_only() {
    let server = priced(&["--region", "eu", "--region", "us"]).await;
    let body = json!({ "role": "agent", "scope": "*", "name": "n", "region": "eu", "node": "n1" });
    let made = server.call("POST", "/v1/keys", body).await.expect(201);
    let key = made["key"].as_str().expect("shown once").to_owned();
    let node = |id: &str, region: &str| json!({ "id": id, "region": region, "gpus": [], "cpus": 1, "memory_gib": 1 });
    server.send("POST", "/v1/nodes", node("n1", "eu"), &key, &[]).await.expect(201);
    server.send("POST", "/v1/nodes", node("n2", "eu"), &key, &[]).await.problem("forbidden");
    server.send("POST", "/v1/nodes", node("n1", "us"), &key, &[]).await.problem("forbidden");
    server.call("POST", "/v1/nodes", node("n2", "eu")).await.expect(201);
    let beat = json!({ "incarnation": 1, "seq": 1, "attempts": [] });
    server.send("POST", "/v1/nodes/n1/heartbeat", beat.clone(), &key, &[]).await.expect(200);
    server
        .send("POST", "/v1/nodes/n2/heartbeat", beat.clone(), &key, &[])
        .await
        .problem("forbidden");
    server.send("GET", "/v1/jobs", Value::Null, &key, &[]).await.problem("forbidden");
    let viewer = server.key("viewer", "*").await;
    server.send("POST", "/v1/nodes/n1/heartbeat", beat, &viewer, &[]).await.problem("forbidden");
}

#[tokio::test]
async fn a_quote_says_what_a_job_would_cost_and_changes_nothing() {
    let server = priced(&[]).await;
    let _agent = Agent::register(&server, "n1", "A100", 4).await;
    let body = with(small("j"), "gpus", json!({ "types": ["H100", "A100"], "count": 2 }));
    let quote = server.call("POST", "/v1/quotes", body.clone()).await.expect(200);
    assert_eq!(quote["admissible"], true, "{quote}");
    assert_eq!(quote["hold"], "12");
    assert_eq!(quote["spendable_after"], "988");
    let offers = quote["offers"].as_array().expect("a list");
    let of = |place: usize, field: &str| offers[place][field].clone();
    assert_eq!(
        (of(0, "gpu_type"), of(0, "per_hour"), of(0, "hold")),
        (json!("H100"), json!("12"), json!("12"))
    );
    assert_eq!(
        (of(1, "gpu_type"), of(1, "per_hour"), of(1, "hold")),
        (json!("A100"), json!("6"), json!("6"))
    );
    assert_eq!(of(0, "estimated_start_at"), Value::Null, "no node has any");
    assert_eq!(of(1, "estimated_start_at"), "2020-01-01T00:00:00.000Z");
    assert_eq!(server.get("/v1/jobs").await["data"], json!([]));
    // A key has no effect: nothing is kept under it, and it is free for a change.
    let key = [("Idempotency-Key", "q")];
    for price in ["6", "7"] {
        server.call("PUT", "/v1/prices/H100", json!({ "per_gpu_hour": price })).await.expect(200);
        let sent = server.send("POST", "/v1/quotes", body.clone(), &server.root, &key).await;
        assert!(!sent.is_replayed());
        assert_eq!(sent.expect(200)["offers"][0]["per_gpu_hour"], price);
    }
    server.call("PUT", "/v1/prices/H100", json!({ "per_gpu_hour": "6" })).await.expect(200);
    let charge = json!({ "account": "acme", "amount": "1" });
    server.send("POST", "/v1/charges", charge, &server.root, &key).await.expect(201);
    let class = json!({
        "rank": 50, "preempts": [], "grace_seconds": 10, "default_preemptible": false,
        "price_multiplier": "1.5"
    });
    server.call("PUT", "/v1/classes/rush", class).await.expect(200);
    let rushed = server.call("POST", "/v1/quotes", with(body, "class", json!("rush"))).await;
    assert_eq!(rushed.expect(200)["offers"][0]["per_gpu_hour"], "9");
}

#[tokio::test]
async fn a_quote_estimates_the_start_of_its_first_eight_offers() {
    let server = priced(&[]).await;
    let models: Vec<String> = (0..10).map(|number| format!("T{number}")).collect();
    for model in &models {
        let price = json!({ "per_gpu_hour": "1" });
        server.call("PUT", &format!("/v1/prices/{model}"), price).await.expect(200);
        let _agent = Agent::register(&server, &format!("n-{model}"), model, 1).await;
    }
    let body = with(small("j"), "gpus", json!({ "types": models, "count": 1 }));
    let quote = server.call("POST", "/v1/quotes", body).await.expect(200);
    let offers = quote["offers"].as_array().expect("a list");
    let estimated: Vec<bool> =
        offers.iter().map(|offer| offer["estimated_start_at"].is_string()).collect();
    assert_eq!(estimated, [vec![true; 8], vec![false; 2]].concat(), "{quote}");
}

#[tokio::test]
async fn a_timeline_tells_every_step_in_order_with_the_money() {
    let server = priced(&[]).await;
    let mut agent = Agent::running(&server, "j", 60).await;
    agent.finish(&server, "j", 0).await;
    let timeline = server.get("/v1/jobs/j/timeline").await;
    let steps = timeline["data"].as_array().expect("a list");
    let kinds: Vec<&str> = steps.iter().filter_map(|step| step["type"].as_str()).collect();
    let place = |kind: &str| {
        kinds.iter().position(|found| *found == kind).unwrap_or_else(|| panic!("{kind}: {kinds:?}"))
    };
    let order = [
        "job_submitted",
        "hold_placed",
        "job_queued",
        "placement_proposed",
        "attempt_confirmed",
        "placement_confirmed",
        "member_started",
        "attempt_started",
        "usage_metered",
        "hold_captured",
        "member_ended",
        "hold_closed",
    ];
    for pair in order.windows(2) {
        assert!(place(pair[0]) < place(pair[1]), "{pair:?} in {kinds:?}");
    }
    assert_eq!(kinds.last(), Some(&"job_ended"), "{kinds:?}");
    assert!(steps.windows(2).all(|pair| pair[0]["at"].as_str() <= pair[1]["at"].as_str()));
    let placed = &steps[place("hold_placed")];
    assert_eq!((&placed["source"], &placed["amount"]), (&json!("ledger"), &json!("6")));
    assert_eq!(placed["slices"], json!([{ "grant": "funds", "amount": "6" }]));
    let closed = &steps[place("hold_closed")];
    assert_eq!(closed["slices"][0]["grant"], "funds");
    let ended = job(&server, "j").await;
    assert_eq!(micros(&closed["amount"]), micros(&ended["returned"]));
    assert_eq!(steps[place("job_queued")]["source"], "default");
}

#[tokio::test]
async fn what_a_job_prints_can_be_read_and_followed() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, small("j")).await;
    agent.beat(&server).await;
    let attempt = agent.attempt_of("j");
    // "hello\n" and "world\n".
    let chunk = |offset: u64, data: &str| json!({ "incarnation": agent.incarnation, "attempt": attempt, "offset": offset, "data": data });
    let first = server.call("POST", "/v1/nodes/n1/logs", chunk(0, "aGVsbG8K")).await.expect(200);
    assert_eq!(first["next_offset"], 6);
    let again = server.call("POST", "/v1/nodes/n1/logs", chunk(0, "aGVsbG8K")).await.expect(200);
    assert_eq!(again["next_offset"], 6);
    let gap = server.call("POST", "/v1/nodes/n1/logs", chunk(100, "aGVsbG8K")).await.expect(200);
    assert_eq!(gap["next_offset"], 6);
    let wrong = server.call("POST", "/v1/nodes/n1/logs", chunk(6, "!")).await;
    assert_eq!(wrong.problem("invalid_field")["param"], "data");
    let foreign = json!({
        "incarnation": agent.incarnation, "attempt": "att_00000000000000000000002", "offset": 0,
        "data": ""
    });
    server.call("POST", "/v1/nodes/n1/logs", foreign).await.problem("not_found");
    let read = server.call("GET", "/v1/jobs/j/logs", Value::Null).await;
    assert_eq!(read.headers["content-type"], "text/plain; charset=utf-8");
    assert_eq!(read.expect(200), "hello\n");
    let follow = server.client.get(format!("{}/v1/jobs/j/logs?follow=true", server.url));
    let mut following = follow.bearer_auth(&server.root).send().await.expect("an answer");
    let piece = following.chunk().await.expect("a piece").expect("not the end");
    assert_eq!(&piece[..], b"hello\n");
    server.call("POST", "/v1/nodes/n1/logs", chunk(6, "d29ybGQK")).await.expect(200);
    let piece = following.chunk().await.expect("a piece").expect("not the end");
    assert_eq!(&piece[..], b"world\n");
    agent.finish(&server, "j", 0).await;
    assert_eq!(following.chunk().await.expect("the end"), None);
    verify(&server);
}

#[tokio::test]
async fn jobs_can_be_submitted_and_cancelled_in_a_batch() {
    let server = priced(&[]).await;
    let batch = json!({ "atomic": true, "operations": [
        { "method": "POST", "path": "/v1/jobs", "body": small("a") },
        { "method": "POST", "path": "/v1/jobs", "body": small("b") },
        { "method": "POST", "path": "/v1/jobs/a/cancel", "body": {} },
    ]});
    let results = server.call("POST", "/v1/batch", batch).await.expect(200);
    let statuses: Vec<u64> = results["results"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|r| r["status"].as_u64())
        .collect();
    assert_eq!(statuses, [201, 201, 200]);
    assert_eq!(
        (state(&server, "a").await, state(&server, "b").await),
        ("cancelled".into(), "queued".into())
    );
    verify(&server);
}

#[tokio::test]
async fn jobs_show_in_the_feed_the_rankings_and_the_metrics() {
    let server = priced(&[]).await;
    let mut agent = Agent::running(&server, "j", 60).await;
    agent.finish(&server, "j", 0).await;
    let entries = server.get("/v1/accounts/acme/entries").await;
    let of_job = entries["data"].as_array().expect("a list").iter().filter(|e| e["job"] == "j");
    assert!(of_job.count() >= 3, "{entries}");
    let audit = server.get("/v1/audit?job=j").await;
    let mut commands = audit["data"].as_array().expect("a list").iter().map(|one| &one["command"]);
    assert_eq!(commands.next_back(), Some(&json!("submit_job")), "{audit}");
    let top = server.get("/v1/top?kind=job&by=spent").await;
    assert_eq!(top["data"][0]["id"], "j");
    assert_eq!(top["data"][0]["value"], job(&server, "j").await["charged"]);
    let top = server.get("/v1/top?kind=job&by=gpu_seconds").await;
    assert_eq!(top["data"][0]["value"], "60");
    let metrics = server.send("GET", "/metrics", Value::Null, "", &[]).await.expect(200);
    let metrics = metrics.as_str().expect("text");
    for line in [
        "bursar_nodes{region=\"default\"} 1",
        "bursar_gpus{region=\"default\",gpu_type=\"H100\",state=\"free\"} 1.0",
        "bursar_jobs_waiting{region=\"default\"} 0",
        "bursar_writer_serving{machine=\"cell-default\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is missing in {metrics}");
    }
    let ready = server.send("GET", "/readyz", Value::Null, "", &[]).await.expect(200);
    assert_eq!(ready["machines"]["cell-default"], "serving");
    let feed = server.client.get(format!("{}/v1/events?after=0", server.url));
    let mut feed = feed.bearer_auth(&server.root).send().await.expect("an answer");
    let mut text = String::new();
    while !text.contains("\"job_ended\"") {
        let piece = feed.chunk().await.expect("a piece").expect("the feed has no end");
        text.push_str(&String::from_utf8_lossy(&piece));
    }
    assert!(text.contains("\"job_submitted\""), "{text}");
}
