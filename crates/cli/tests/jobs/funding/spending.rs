//! Spending of jobs by what it was for.

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::server::Server;
use crate::world::{cancel, job, micros, priced, small, submit, with};

async fn totals(server: &Server, account: &str, by: &str) -> Vec<(Value, u128)> {
    let found = server.get(&format!("/v1/accounts/{account}/spend?by={by}")).await;
    let series = found["series"].as_array().expect("a list");
    series.iter().map(|one| (one["key"].clone(), micros(&one["total"]))).collect()
}

#[tokio::test]
async fn jobs_are_spent_on_their_types_regions_classes_and_labels() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 2).await;
    let labelled = with(small("j1"), "labels", json!({ "team": "blue", "run": "1" }));
    submit(&server, with(labelled, "class", json!("high"))).await;
    submit(&server, with(small("j2"), "labels", json!({ "team": "red" }))).await;
    agent.beat(&server).await;
    agent.run(&server, 60).await;
    let me = server.get("/v1/accounts/acme:nlp/effective").await;
    assert_eq!(micros(&me["held_by_me"]) + micros(&me["spent_by_me"]), 12_000_000);
    assert!(micros(&me["spent_by_me"]) > 0);
    agent.finish(&server, "j1", 0).await;
    agent.run(&server, 60).await;
    cancel(&server, "j2").await;
    agent.beat(&server).await;
    let cost = async |id: &str| micros(&job(&server, id).await["charged"]);
    let (first, second) = (cost("j1").await, cost("j2").await);
    assert!(0 < first && first < second);

    let named = |name: &str, amount: u128| (json!(name), amount);
    let both = vec![named("j2", second), named("j1", first)];
    assert_eq!(totals(&server, "acme:nlp", "job").await, both);
    let all = first + second;
    assert_eq!(totals(&server, "acme", "gpu_type").await, [named("H100", all)]);
    assert_eq!(totals(&server, "acme", "region").await, [named("default", all)]);
    let classes = vec![named("normal", second), named("high", first)];
    assert_eq!(totals(&server, "acme", "class").await, classes);
    let teams = vec![named("red", second), named("blue", first)];
    assert_eq!(totals(&server, "acme", "label:team").await, teams);
    let runs = vec![(Value::Null, second), named("1", first)];
    assert_eq!(totals(&server, "acme", "label:run").await, runs);

    let refund = json!({ "id": "r", "job": "j2" });
    server.call("POST", "/v1/refunds", refund).await.expect(201);
    assert_eq!(totals(&server, "acme", "class").await, [named("high", first)]);
    let spend = server.get("/v1/accounts/acme/spend").await;
    assert_eq!(micros(&spend["total"]), first);
    let me = server.get("/v1/accounts/acme:nlp/effective").await;
    assert_eq!((&me["held_by_me"], micros(&me["spent_by_me"])), (&json!("0"), first));
}

/// The cost of a running job moves with the clock, not with the reports of its node; in lists too.
#[tokio::test]
async fn the_cost_of_a_running_job_is_shown_between_reports() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, small("j")).await;
    submit(&server, small("waits")).await;
    agent.beat(&server).await;
    agent.run(&server, 60).await;
    let reported = micros(&job(&server, "j").await["charged"]);
    server.advance(30).await;
    let shown = job(&server, "j").await;
    assert_eq!(micros(&shown["charged"]), reported, "there was no report");
    // A tenth of a credit in a minute.
    assert_eq!(shown["cost_so_far"], "0.15");
    let list = server.get("/v1/jobs").await;
    let costs: Vec<(&str, &Value)> = list["data"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|job| (job["id"].as_str().expect("an id"), &job["cost_so_far"]))
        .collect();
    assert_eq!(costs, [("waits", &Value::Null), ("j", &json!("0.15"))]);
    agent.beat(&server).await;
    agent.finish(&server, "j", 0).await;
    let ended = job(&server, "j").await;
    assert_eq!(ended["cost_so_far"], Value::Null, "what it cost is what was charged");
}
