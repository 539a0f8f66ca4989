//! Effects of classes and prices on jobs and cells; and jobs long after their end.

use std::process::Command;

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::server::Server;
use crate::world::{job, micros, priced, small, state, submit, verify, with};

/// Every line of a region's journal that has an event of a kind.
pub(crate) fn events(server: &Server, region: &str, kind: &str) -> Vec<(String, Value)> {
    let output = Command::new(env!("CARGO_BIN_EXE_bursar"))
        .args(["admin", "export", "--region", region, "--data"])
        .arg(server.data())
        .output()
        .expect("the binary is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let exported = String::from_utf8(output.stdout).expect("text");
    let lines = exported.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let mut found = Vec::new();
    for line in lines {
        let decisions = line["decisions"].as_array().expect("a list").iter();
        let all = decisions.flat_map(|one| one["events"].as_array().expect("a list").clone());
        let of_kind = all.filter(|event| event["type"] == kind);
        found.extend(of_kind.map(|event| (line["at"].as_str().expect("a time").into(), event)));
    }
    found
}

#[tokio::test]
async fn a_class_stops_only_jobs_of_the_classes_on_its_list() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 2).await;
    let careful = |preempts: Value| {
        json!({ "rank": 50, "preempts": preempts, "grace_seconds": 10,
                "default_preemptible": false })
    };
    server.call("PUT", "/v1/classes/careful", careful(json!(["batch"]))).await.expect(200);
    let classed = |id, class: &str| with(small(id), "class", json!(class));
    submit(&server, classed("low", "batch")).await;
    submit(&server, classed("usual", "normal")).await;
    agent.beat(&server).await;
    agent.run(&server, 30).await;
    submit(&server, classed("first", "careful")).await;
    submit(&server, classed("second", "careful")).await;
    for _ in 0..4 {
        agent.run(&server, 30).await;
    }
    let states = [state(&server, "first").await, state(&server, "low").await];
    assert_eq!(states, ["running", "queued"]);
    let states = [state(&server, "second").await, state(&server, "usual").await];
    assert_eq!(states, ["queued", "running"], "normal is lower, and not on the list");
    server
        .call("PUT", "/v1/classes/careful", careful(json!(["batch", "normal"])))
        .await
        .expect(200);
    for _ in 0..4 {
        agent.run(&server, 30).await;
    }
    let states = [state(&server, "second").await, state(&server, "usual").await];
    assert_eq!(states, ["running", "queued"], "those who wait have the longer list too");
    let found = events(&server, "default", "class_set");
    assert_eq!(found.len(), 2, "{found:?}");
    verify(&server);
}

#[tokio::test]
async fn a_price_set_ahead_reaches_quotes_and_cells_when_it_begins_to_count() {
    let server = priced(&[]).await;
    let dearer = json!({ "per_gpu_hour": "9", "effective_at": "2020-01-01T01:00:00Z" });
    server.call("PUT", "/v1/prices/H100", dearer).await.expect(200);
    server.advance(3599).await;
    let quoted = async || {
        let quote = server.call("POST", "/v1/quotes", small("j")).await.expect(200);
        quote["offers"][0]["per_gpu_hour"].clone()
    };
    assert_eq!(quoted().await, "6");
    server.advance(600).await;
    assert_eq!(quoted().await, "9");
    let found = events(&server, "default", "price_set").into_iter();
    let h100: Vec<(String, u128)> = found
        .filter(|(_, event)| event["model"] == "H100")
        .map(|(at, event)| (at, event["price"].as_u64().expect("a number").into()))
        .collect();
    let at = |time: &str| format!("2020-01-01T{time}.000Z");
    assert_eq!(h100, [(at("00:00:00"), 6_000_000), (at("01:00:00"), 9_000_000)]);
    verify(&server);
}

#[tokio::test]
async fn a_job_that_only_the_archive_knows_is_not_run_again_and_can_be_refunded() {
    let server = priced(&[]).await;
    let mut agent = Agent::running(&server, "old", 60).await;
    server.call("POST", "/v1/jobs/old/preempt", json!({})).await.expect(200);
    agent.beat(&server).await;
    agent.run(&server, 30).await;
    agent.run(&server, 30).await;
    agent.finish(&server, "old", 0).await;
    let charged = micros(&job(&server, "old").await["charged"]);
    assert!(charged > 0);
    for _ in 0..3 {
        server.advance(20 * 86_400).await;
    }

    // While the ledger has it, a repeat shows it as it was submitted. It leaves once the archive has it.
    let mut again = json!({ "state": "queued" });
    for _ in 0..400 {
        again = server.call("POST", "/v1/jobs", small("old")).await.expect(200);
        if again["state"] != "queued" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!((&again["state"], micros(&again["charged"])), (&json!("succeeded"), charged));
    let other = with(small("old"), "max_runtime_seconds", json!(7));
    server.call("POST", "/v1/jobs", other).await.problem("already_exists");

    let part = json!({ "id": "r", "job": "old", "amount": "0.1" });
    let refund = server.call("POST", "/v1/refunds", part.clone()).await.expect(201);
    assert_eq!(refund["refunded"], "0.1");
    server.call("POST", "/v1/refunds", part.clone()).await.expect(200);
    let rest = server.call("POST", "/v1/refunds", json!({ "job": "old" })).await.expect(201);
    let lots = rest["lots"].as_array().expect("a list").iter();
    assert_eq!(lots.map(|lot| micros(&lot["amount"])).sum::<u128>(), charged - 100_000);
    server.call("POST", "/v1/refunds", json!({ "job": "old" })).await.problem("conflict");
    server.call("POST", "/v1/refunds", json!({ "job": "older" })).await.problem("not_found");
    assert_eq!(crate::world::spendable(&server).await, 1_000_000_000);

    // The same refund is answered once more when it too is forgotten.
    for _ in 0..3 {
        server.advance(20 * 86_400).await;
    }
    let again = server.call("POST", "/v1/refunds", part).await.expect(200);
    assert_eq!((&again["refunded"], &again["lots"]), (&refund["refunded"], &refund["lots"]));
}

#[tokio::test]
async fn a_job_stays_readable_after_the_ledger_has_forgotten_it() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    let labelled = with(small("old"), "labels", json!({ "team": "vision" }));
    submit(&server, labelled).await;
    agent.beat(&server).await;
    agent.run(&server, 60).await;
    server.call("POST", "/v1/jobs/old/preempt", json!({})).await.expect(200);
    agent.beat(&server).await;
    agent.run(&server, 30).await;
    agent.run(&server, 30).await;
    agent.finish(&server, "old", 0).await;
    submit(&server, with(small("never"), "gpus", json!({ "types": ["A100"] }))).await;
    server.call("POST", "/v1/jobs/never/cancel", json!({})).await.expect(200);
    let plain = |mut job: Value| {
        for field in ["as_of", "ledger_position"] {
            job.as_object_mut().expect("a job").remove(field);
        }
        job
    };
    let timeline = async || {
        let timeline = server.get("/v1/jobs/old/timeline").await;
        let steps = timeline["data"].as_array().expect("a list").iter();
        steps.map(|step| (step["type"].clone(), step["position"].clone())).collect::<Vec<_>>()
    };
    let audited = async || server.get("/v1/audit?job=old&limit=100").await["data"].clone();
    let (timeline_before, audited_before) = (timeline().await, audited().await);
    assert!(timeline_before.len() > 20, "{timeline_before:?}");
    let before = [plain(job(&server, "old").await), plain(job(&server, "never").await)];
    assert_eq!(before[0]["attempts"].as_array().map(Vec::len), Some(2));
    assert!(micros(&before[0]["charged"]) > 0);
    server.advance(36 * 86_400).await;
    submit(&server, small("new")).await;
    let after = [plain(job(&server, "old").await), plain(job(&server, "never").await)];
    assert_eq!(after, before, "state, cost and attempts as they were");
    assert_eq!(timeline().await, timeline_before, "every step of it");
    assert_eq!(audited().await, audited_before, "and every decision");
    let ids = |page: &Value| -> Vec<String> {
        let jobs = page["data"].as_array().expect("a list").iter();
        jobs.map(|job| job["id"].as_str().expect("an id").to_owned()).collect()
    };
    assert_eq!(ids(&server.get("/v1/jobs").await), ["new", "never", "old"]);
    assert_eq!(ids(&server.get("/v1/jobs?state=succeeded").await), ["old"]);
    assert_eq!(ids(&server.get("/v1/jobs?label=team=vision").await), ["old"]);
    assert_eq!(ids(&server.get("/v1/jobs?account=umbra").await), [""; 0]);
    let mut walked = Vec::new();
    let mut path = "/v1/jobs?limit=1".to_owned();
    loop {
        let page = server.get(&path).await;
        walked.extend(ids(&page));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/v1/jobs?limit=1&cursor={cursor}");
    }
    assert_eq!(walked, ["new", "never", "old"]);
    let other = server.key("viewer", "umbra").await;
    let hidden = server.send("GET", "/v1/jobs/old", json!(null), &other, &[]).await;
    hidden.problem("not_found");
    verify(&server);
}

#[tokio::test]
async fn a_class_takes_only_from_classes_of_a_lower_rank_that_are_there() {
    let server = priced(&[]).await;
    let class = |rank: u32, preempts: Value| {
        json!({ "rank": rank, "preempts": preempts, "grace_seconds": 10,
                "default_preemptible": true })
    };
    for preempts in [json!(["mine"]), json!(["high"]), json!(["batch", "normal"]), json!(["nope"])]
    {
        let refused = server.call("PUT", "/v1/classes/mine", class(20, preempts)).await;
        assert_eq!(refused.problem("invalid_field")["param"], "preempts");
    }
    server.call("PUT", "/v1/classes/mine", class(20, json!(["batch"]))).await.expect(200);
    server.call("PUT", "/v1/classes/mine", class(20, json!([]))).await.expect(200);
}

#[tokio::test]
async fn quotas_are_shown_for_the_region_that_is_asked_for() {
    let server = priced(&["--region", "eu", "--region", "us"]).await;
    for body in [json!({ "running_jobs": 9 }), json!({ "region": "eu", "gpus": { "H100": 2 } })] {
        server.call("PUT", "/v1/accounts/acme/quota", body).await.expect(200);
    }
    let all = server.get("/v1/accounts/acme/quota").await;
    assert_eq!((all["data"].as_array().map(Vec::len), &all["running_jobs"]), (Some(2), &json!(9)));
    let eu = server.get("/v1/accounts/acme/quota?region=eu").await;
    assert_eq!(eu["data"].as_array().map(Vec::len), Some(1));
    assert_eq!((&eu["data"][0]["region"], &eu["gpus"]["H100"]), (&json!("eu"), &json!(2)));
    let us = server.get("/v1/accounts/acme/quota?region=us").await;
    assert_eq!((&us["data"], &us["running_jobs"]), (&json!([]), &json!(null)));
}
