//! Regions, dependencies, arrays, groups, quotas, drains and maintenance.

use serde_json::json;

use crate::agent::Agent;
use crate::world::{
    blocker_types, cancel, check_books, job, priced, small, state, submit, verify, with,
};

const GRANTED: u128 = 1_000_000_000;

#[tokio::test]
async fn a_job_for_two_regions_starts_once_in_the_one_that_has_room() {
    let server = priced(&["--region", "eu", "--region", "us"]).await;
    let regions = server.get("/v1/regions").await;
    let names: Vec<&str> = regions["data"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|r| r["id"].as_str())
        .collect();
    assert_eq!(names, ["eu", "us"]);
    submit(&server, small("anywhere")).await;
    submit(&server, with(small("here"), "regions", json!(["us"]))).await;
    let mut eu = Agent::register_in(&server, "eu", "e1", "H100", 4).await;
    assert_eq!(state(&server, "anywhere").await, "starting");
    assert_eq!(job(&server, "anywhere").await["region"], "eu");
    assert_eq!(state(&server, "here").await, "queued");
    let mut us = Agent::register_in(&server, "us", "u1", "H100", 4).await;
    eu.beat(&server).await;
    us.beat(&server).await;
    assert_eq!(job(&server, "here").await["region"], "us");
    assert!(!us.runs_job("anywhere"), "it runs once");
    for _ in 0..2 {
        server.advance(30).await;
        eu.work(30);
        us.work(30);
        eu.beat(&server).await;
        us.beat(&server).await;
    }
    eu.finish(&server, "anywhere", 0).await;
    us.finish(&server, "here", 0).await;
    let elsewhere = json!({
        "id": "e1", "region": "us", "gpus": [], "cpus": 1, "memory_gib": 1
    });
    server.call("POST", "/v1/nodes", elsewhere).await.problem("conflict");
    check_books(&server, GRANTED, &["anywhere", "here"]).await;
}

#[tokio::test]
async fn a_lost_job_may_go_on_in_another_region() {
    let server = priced(&["--region", "eu", "--region", "us"]).await;
    let mut eu = Agent::register_in(&server, "eu", "e1", "H100", 1).await;
    submit(&server, small("j")).await;
    eu.beat(&server).await;
    eu.run(&server, 30).await;
    server.advance(91).await;
    assert_eq!(state(&server, "j").await, "queued");
    let mut us = Agent::register_in(&server, "us", "u1", "H100", 1).await;
    us.beat(&server).await;
    let running = job(&server, "j").await;
    assert_eq!((&running["state"], &running["region"]), (&json!("running"), &json!("us")));
    eu.register_again(&server, "eu", "H100", 1).await;
    eu.beat(&server).await;
    assert!(!eu.runs_job("j"));
    us.run(&server, 30).await;
    us.finish(&server, "j", 0).await;
    check_books(&server, GRANTED, &["j"]).await;
}

#[tokio::test]
async fn a_job_waits_for_its_dependencies() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 4).await;
    submit(&server, small("first")).await;
    submit(&server, with(small("second"), "after", json!(["first"]))).await;
    submit(&server, with(small("third"), "after", json!(["second"]))).await;
    let waiting = job(&server, "second").await;
    assert_eq!(
        (&waiting["state"], blocker_types(&waiting)),
        (&json!("queued"), vec!["dependency".into()])
    );
    agent.beat(&server).await;
    agent.run(&server, 30).await;
    agent.finish(&server, "first", 0).await;
    agent.beat(&server).await;
    assert_eq!(state(&server, "second").await, "running");
    agent.run(&server, 30).await;
    agent.finish(&server, "second", 1).await;
    assert_eq!(state(&server, "third").await, "cancelled", "what it came after failed");
    let refused = server.call("POST", "/v1/jobs", with(small("late"), "after", json!(["second"])));
    refused.await.problem("conflict");
    let unknown = server.call("POST", "/v1/jobs", with(small("late"), "after", json!(["missing"])));
    assert!(matches!(unknown.await.status, 404 | 422));
    check_books(&server, GRANTED, &["first", "second", "third"]).await;
}

#[tokio::test]
async fn an_array_is_submitted_whole_or_not_at_all() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 8).await;
    let made = submit(&server, with(small("a"), "array", json!(3))).await;
    assert_eq!(made["array"], json!(["a.0", "a.1", "a.2"]));
    let again = server.call("POST", "/v1/jobs", with(small("a"), "array", json!(3))).await;
    assert_eq!(again.expect(200)["array"], made["array"]);
    let orders = agent.ask(&server).await;
    let mut indexes: Vec<u64> =
        orders.iter().filter_map(|order| order["spec"]["array_index"].as_u64()).collect();
    indexes.sort_unstable();
    assert_eq!(indexes, [0, 1, 2]);
    agent.obey(&orders);
    agent.beat(&server).await;
    agent.run(&server, 30).await;
    for id in ["a.0", "a.1", "a.2"] {
        agent.finish(&server, id, 0).await;
    }
    let dear = with(small("b"), "array", json!(1000));
    server.call("POST", "/v1/jobs", dear).await.problem("insufficient_credits");
    server.call("GET", "/v1/jobs/b.0", json!(null)).await.problem("not_found");
    check_books(&server, GRANTED, &["a.0", "a.1", "a.2"]).await;
}

#[tokio::test]
async fn a_concurrency_group_limits_running_jobs() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 8).await;
    let group = json!({ "name": "g", "limit": 1 });
    for id in ["a", "b"] {
        submit(&server, with(small(id), "concurrency_group", group.clone())).await;
    }
    agent.beat(&server).await;
    assert_eq!(
        (state(&server, "a").await, state(&server, "b").await),
        ("running".into(), "queued".into())
    );
    assert!(blocker_types(&job(&server, "b").await).contains(&"group".to_owned()));
    agent.run(&server, 30).await;
    agent.finish(&server, "a", 0).await;
    agent.beat(&server).await;
    assert_eq!(state(&server, "b").await, "running");
    agent.finish(&server, "b", 0).await;
    check_books(&server, GRANTED, &["a", "b"]).await;
}

#[tokio::test]
async fn quotas_limit_what_runs_and_what_waits() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 8).await;
    let quota = json!({ "gpus": { "H100": 1 }, "waiting_jobs": 2 });
    let set = server.call("PUT", "/v1/accounts/acme:nlp/quota", quota).await.expect(200);
    assert_eq!(set["gpus"], json!({ "H100": 1 }));
    submit(&server, small("a")).await;
    submit(&server, small("b")).await;
    submit(&server, small("c")).await;
    agent.beat(&server).await;
    assert_eq!(
        (state(&server, "a").await, state(&server, "b").await),
        ("running".into(), "queued".into())
    );
    assert!(blocker_types(&job(&server, "b").await).contains(&"quota".to_owned()));
    let refused = server.call("POST", "/v1/jobs", small("d")).await.problem("conflict");
    assert_eq!(blocker_types(&refused), ["quota"]);
    server.call("DELETE", "/v1/accounts/acme:nlp/quota", json!(null)).await.expect(204);
    agent.beat(&server).await;
    for id in ["a", "b", "c"] {
        assert_eq!(state(&server, id).await, "running");
        agent.finish(&server, id, 0).await;
    }
    check_books(&server, GRANTED, &["a", "b", "c"]).await;
}

#[tokio::test]
async fn a_frozen_account_starts_nothing_new_and_what_runs_goes_on() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, small("runs")).await;
    submit(&server, small("waits")).await;
    agent.beat(&server).await;
    server.call("POST", "/v1/accounts/acme/freeze", json!({})).await.expect(200);
    agent.run(&server, 30).await;
    agent.finish(&server, "runs", 0).await;
    agent.beat(&server).await;
    let waiting = job(&server, "waits").await;
    assert_eq!(waiting["state"], "queued");
    assert!(blocker_types(&waiting).contains(&"frozen".to_owned()), "{waiting}");
    server.call("POST", "/v1/jobs", small("more")).await.problem("account_frozen");
    let quote = server.call("POST", "/v1/quotes", small("more")).await.expect(200);
    let frozen = blocker_types(&quote).iter().filter(|kind| *kind == "frozen").count();
    assert_eq!(frozen, 1, "each reason once: {quote}");
    server.call("POST", "/v1/accounts/acme/unfreeze", json!({})).await.expect(200);
    agent.beat(&server).await;
    assert_eq!(state(&server, "waits").await, "running");
    agent.finish(&server, "waits", 0).await;
    check_books(&server, GRANTED, &["runs", "waits"]).await;
}

#[tokio::test]
async fn a_drained_node_gets_no_new_work_and_a_forced_drain_empties_it() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 2).await;
    submit(&server, with(small("keeps"), "preemptible", json!(false))).await;
    agent.beat(&server).await;
    let drained = server.call("POST", "/v1/nodes/n1/drain", json!({})).await.expect(200);
    assert_eq!(drained["state"], "draining");
    submit(&server, small("waits")).await;
    let waiting = job(&server, "waits").await;
    assert!(blocker_types(&waiting).contains(&"drain".to_owned()), "{waiting}");
    agent.run(&server, 30).await;
    assert_eq!(state(&server, "keeps").await, "running", "it is not preemptible");
    server.call("DELETE", "/v1/nodes/n1", json!(null)).await.problem("conflict");
    server.call("POST", "/v1/nodes/n1/drain", json!({ "force": true })).await.expect(200);
    assert_eq!(state(&server, "keeps").await, "stopping");
    agent.beat(&server).await;
    let out = job(&server, "keeps").await;
    assert_eq!(
        (&out["state"], &out["attempts"][0]["end_reason"]),
        (&json!("queued"), &json!("drained"))
    );
    assert_eq!(server.get("/v1/nodes/n1").await["state"], "drained");
    server.call("POST", "/v1/nodes/n1/resume", json!({})).await.expect(200);
    agent.beat(&server).await;
    for id in ["keeps", "waits"] {
        assert_eq!(state(&server, id).await, "running");
        agent.finish(&server, id, 0).await;
    }
    server.call("DELETE", "/v1/nodes/n1", json!(null)).await.expect(204);
    server.call("GET", "/v1/nodes/n1", json!(null)).await.problem("not_found");
    check_books(&server, GRANTED, &["keeps", "waits"]).await;
}

#[tokio::test]
async fn before_a_maintenance_only_short_jobs_start() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 2).await;
    let plan = json!({ "from": "2020-01-01T00:30:00Z", "to": "2020-01-01T01:00:00Z" });
    let planned = server.call("PUT", "/v1/regions/default/maintenance", plan).await.expect(200);
    assert_eq!(planned["nodes"], json!(["n1"]));
    submit(&server, small("long")).await;
    submit(&server, with(small("short"), "max_runtime_seconds", json!(600))).await;
    agent.beat(&server).await;
    assert_eq!(
        (state(&server, "long").await, state(&server, "short").await),
        ("queued".into(), "running".into())
    );
    assert!(blocker_types(&job(&server, "long").await).contains(&"reservation".to_owned()));
    agent.run(&server, 60).await;
    agent.finish(&server, "short", 0).await;
    agent.run(&server, 1800).await;
    assert_eq!(server.get("/v1/nodes/n1").await["state"], "maintenance");
    server.call("DELETE", "/v1/regions/default/maintenance", json!(null)).await.expect(204);
    agent.beat(&server).await;
    assert_eq!(state(&server, "long").await, "running");
    cancel(&server, "long").await;
    agent.beat(&server).await;
    check_books(&server, GRANTED, &["long", "short"]).await;
}

#[tokio::test]
async fn a_gang_starts_on_all_its_nodes_or_on_none() {
    let server = priced(&[]).await;
    let mut first = Agent::register(&server, "n1", "H100", 2).await;
    let body =
        with(with(small("g"), "nodes", json!(2)), "gpus", json!({ "types": ["H100"], "count": 2 }));
    assert_eq!(submit(&server, body).await["hold"]["amount"], "24");
    assert_eq!(blocker_types(&job(&server, "g").await), ["gang"]);
    first.beat(&server).await;
    assert!(first.runs.is_empty());
    let mut second = Agent::register(&server, "n2", "H100", 2).await;
    let (one, two) = (first.ask(&server).await, second.ask(&server).await);
    assert_eq!(one[0]["spec"]["node_names"], two[0]["spec"]["node_names"]);
    assert_ne!(one[0]["spec"]["rank"], two[0]["spec"]["rank"]);
    first.obey(&one);
    second.obey(&two);
    for agent in [&mut first, &mut second] {
        agent.beat(&server).await;
    }
    server.advance(30).await;
    for agent in [&mut first, &mut second] {
        agent.work(30);
        agent.beat(&server).await;
    }
    first.finish(&server, "g", 0).await;
    assert_eq!(state(&server, "g").await, "running", "the other half still runs");
    second.finish(&server, "g", 0).await;
    let ended = job(&server, "g").await;
    assert_eq!(
        (&ended["state"], &ended["attempts"][0]["gpu_ms"]),
        (&json!("succeeded"), &json!(120_000))
    );
    check_books(&server, GRANTED, &["g"]).await;
}

#[tokio::test]
async fn the_queue_shows_each_tenant_its_own_and_the_shares() {
    let server = priced(&[]).await;
    server.grant("theirs", "umbra", "100").await;
    submit(&server, small("ours")).await;
    submit(&server, with(small("theirs"), "account", json!("umbra"))).await;
    let queue = server.get("/v1/regions/default/queue").await;
    let jobs = |queue: &serde_json::Value| -> Vec<String> {
        let data = queue["data"].as_array().expect("a list").iter();
        data.map(|entry| entry["job"].as_str().expect("a job").to_owned()).collect()
    };
    assert_eq!(jobs(&queue).len(), 2);
    let key = server.key("viewer", "umbra").await;
    let own =
        server.send("GET", "/v1/regions/default/queue", json!(null), &key, &[]).await.expect(200);
    assert_eq!(jobs(&own), ["theirs"]);
    let shares = own["shares"].as_array().expect("a list");
    assert!(
        shares
            .iter()
            .all(|share| share["account"].as_str().is_some_and(|a| a.starts_with("umbra")))
    );
    verify(&server);
}

/// Of the accounts in a queue's shares with waiting jobs, the one furthest from its entitlement.
fn furthest(queue: &serde_json::Value) -> Option<(String, f64)> {
    let number = |share: &serde_json::Value, field: &str| -> f64 {
        share[field].as_str().expect("a number").parse().expect("a decimal")
    };
    let shares = queue["shares"].as_array().expect("a list").iter();
    let waiting = shares.filter(|share| share["waiting_jobs"] != 0);
    let gap = |share: &serde_json::Value| number(share, "received") - number(share, "entitled");
    let gaps =
        waiting.map(|share| (share["account"].as_str().expect("a path").to_owned(), gap(share)));
    gaps.max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))
}

#[tokio::test]
async fn a_region_names_the_account_furthest_from_its_share_that_the_key_sees() {
    let server = priced(&[]).await;
    server.grant("theirs", "umbra", "100").await;
    let region = async |key: &str| {
        let list = server.send("GET", "/v1/regions", json!(null), key, &[]).await.expect(200);
        list["data"][0]["share_error"].clone()
    };
    assert_eq!(region(&server.root).await, json!(null), "no job waits");
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, small("ours")).await;
    agent.beat(&server).await;
    server.advance(600).await;
    agent.beat(&server).await;
    submit(&server, small("more")).await;
    submit(&server, with(small("theirs"), "account", json!("umbra"))).await;
    let umbra = server.key("viewer", "umbra").await;
    for key in [&server.root, &umbra] {
        let queue = server.send("GET", "/v1/regions/default/queue", json!(null), key, &[]).await;
        let (_, gap) = furthest(&queue.expect(200)).expect("jobs wait");
        let error = region(key).await;
        let difference: f64 =
            error["difference"].as_str().expect("a number").parse().expect("a decimal");
        assert!((difference.abs() - gap.abs()).abs() < 1e-9, "{error} {gap}");
        assert!(difference.abs() > 0.1, "{error}");
    }
    let own = region(&umbra).await;
    assert!(own["account"].as_str().is_some_and(|account| account == "umbra"), "{own}");
}

/// The jobs of the region's queue, in order, each with what it waits for.
async fn queue(server: &crate::server::Server) -> Vec<(String, Vec<String>)> {
    let queue = server.get("/v1/regions/default/queue").await;
    let entries = queue["data"].as_array().expect("a list").iter();
    let listed = entries.enumerate().map(|(place, entry)| {
        assert_eq!(entry["position"], place + 1, "{queue}");
        (entry["job"].as_str().expect("a job").to_owned(), blocker_types(entry))
    });
    listed.collect()
}

#[tokio::test]
async fn the_queue_lists_every_waiting_job_and_all_its_blockers() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 8).await;
    let group = json!({ "name": "g", "limit": 1 });
    let sized = |id, count| with(small(id), "gpus", json!({ "types": ["H100"], "count": count }));
    for id in ["first", "second"] {
        submit(&server, with(sized(id, 6), "concurrency_group", group.clone())).await;
    }
    agent.beat(&server).await;
    submit(&server, sized("large", 8)).await;
    submit(&server, with(small("later"), "after", json!(["second"]))).await;
    let waiting = queue(&server).await;
    let names: Vec<&str> = waiting.iter().map(|(job, _)| job.as_str()).collect();
    assert_eq!(names, ["large", "second", "later"], "competing, held by its group, not yet sent");
    assert_eq!(waiting[0].1, ["capacity"]);
    assert_eq!(waiting[1].1, ["group", "capacity"]);
    assert_eq!(waiting[2].1, ["dependency"]);
    let one = server.get("/v1/regions/default/queue?limit=2").await;
    assert_eq!((one["data"].as_array().map(Vec::len), &one["has_more"]), (Some(2), &json!(true)));
    server.call("POST", "/v1/accounts/acme:nlp/freeze", json!({})).await.expect(200);
    let frozen = queue(&server).await;
    assert_eq!(frozen.len(), 3, "frozen ones wait too");
    assert!(frozen.iter().all(|(_, types)| types.contains(&"frozen".to_owned())), "{frozen:?}");
    verify(&server);
}
