//! How jobs end.

use serde_json::json;

use crate::agent::Agent;
use crate::world::{
    H100, cancel, check_books, check_charges, job, micros, price_of, priced, small, spendable,
    state, submit, with,
};

const GRANTED: u128 = 1_000_000_000;

#[tokio::test]
async fn a_job_runs_to_success_and_costs_what_it_used() {
    let server = priced(&[]).await;
    let submitted = submit(&server, small("j")).await;
    assert_eq!(submitted["state"], "queued");
    assert_eq!(submitted["hold"]["amount"], "6");
    assert_eq!(spendable(&server).await, GRANTED - 6_000_000);
    let waiting = job(&server, "j").await;
    assert_eq!(crate::world::blocker_types(&waiting), ["gpu_type"]);

    let mut agent = Agent::register(&server, "n1", "H100", 8).await;
    assert_eq!(state(&server, "j").await, "starting");
    let orders = agent.ask(&server).await;
    assert_eq!(orders.len(), 1);
    let order = &orders[0];
    assert_eq!((&order["type"], &order["job"]), (&json!("start"), &json!("j")));
    assert_eq!(order["spec"]["command"], json!(["true"]));
    assert_eq!(order["gpus"].as_array().expect("devices").len(), 1);
    assert_eq!(agent.ask(&server).await, orders, "orders repeat until they are done");
    agent.obey(&orders);
    agent.beat(&server).await;
    assert_eq!(state(&server, "j").await, "running");

    agent.run(&server, 100).await;
    let running = job(&server, "j").await;
    assert_eq!(running["attempts"][0]["gpu_ms"], 100_000);
    assert_eq!(micros(&running["hold"]["captured"]), H100 * 100 / 3600);
    agent.finish(&server, "j", 0).await;
    let ended = job(&server, "j").await;
    assert_eq!(ended["state"], "succeeded");
    assert_eq!(ended["region"], "default");
    let attempt = &ended["attempts"][0];
    assert_eq!((&attempt["end_reason"], &attempt["exit_code"]), (&json!("succeeded"), &json!(0)));
    assert_eq!(attempt["nodes"], json!(["n1"]));
    assert_eq!(micros(&ended["charged"]), price_of(H100, 100_000));
    assert_eq!(micros(&ended["charged"]) + micros(&ended["returned"]), 6_000_000);
    assert!(agent.runs.is_empty(), "the server ordered the agent to forget it");
    check_books(&server, GRANTED, &["j"]).await;
}

#[tokio::test]
async fn a_job_that_fails_pays_for_the_time_until_then() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 8).await;
    submit(&server, with(small("j"), "gpus", json!({ "types": ["H100"], "count": 4 }))).await;
    agent.beat(&server).await;
    agent.run(&server, 77).await;
    agent.finish(&server, "j", 3).await;
    let ended = job(&server, "j").await;
    assert_eq!(
        (&ended["state"], &ended["attempts"][0]["exit_code"]),
        (&json!("failed"), &json!(3))
    );
    assert_eq!(micros(&ended["charged"]), price_of(H100, 4 * 77_000));
    check_books(&server, GRANTED, &["j"]).await;
}

#[tokio::test]
async fn a_job_can_be_cancelled_in_every_state() {
    let server = priced(&[]).await;
    submit(&server, small("queued")).await;
    let ended = cancel(&server, "queued").await;
    assert_eq!((&ended["state"], &ended["charged"]), (&json!("cancelled"), &json!("0")));
    assert_eq!(job(&server, "queued").await["returned"], "6");

    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, small("starting")).await;
    assert_eq!(state(&server, "starting").await, "starting");
    let ended = cancel(&server, "starting").await;
    assert_eq!(ended["state"], "cancelled", "one that never ran ends at once");
    submit(&server, small("next")).await;
    assert_eq!(state(&server, "next").await, "queued", "its GPU is fenced until the agent reports");
    agent.beat(&server).await;
    agent.beat(&server).await;
    assert_eq!(state(&server, "next").await, "running");

    agent.run(&server, 45).await;
    let stopping = cancel(&server, "next").await;
    assert_eq!(stopping["state"], "stopping");
    server.advance(20).await;
    agent.work(20);
    let again = cancel(&server, "next").await;
    assert_eq!(again["state"], "stopping", "cancelling again changes nothing");
    agent.beat(&server).await;
    let ended = job(&server, "next").await;
    assert_eq!(
        (&ended["state"], &ended["attempts"][0]["end_reason"]),
        (&json!("cancelled"), &json!("cancelled"))
    );
    assert_eq!(micros(&ended["charged"]), price_of(H100, 45_000), "grace is free");
    let late = server.call("POST", "/v1/jobs/next/cancel", json!({})).await;
    assert!(matches!(late.status, 200 | 409), "{}", late.body);
    assert_eq!(state(&server, "next").await, "cancelled");
    check_books(&server, GRANTED, &["queued", "starting", "next"]).await;
}

#[tokio::test]
async fn a_job_at_its_time_limit_is_stopped_and_charged_for_no_more() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, with(small("j"), "max_runtime_seconds", json!(60))).await;
    agent.beat(&server).await;
    agent.run(&server, 90).await;
    let ended = job(&server, "j").await;
    assert_eq!(ended["state"], "timed_out");
    assert_eq!(micros(&ended["charged"]), price_of(H100, 60_000));
    assert_eq!(ended["returned"], "0");
    check_books(&server, GRANTED, &["j"]).await;
}

#[tokio::test]
async fn an_operator_preempts_a_job_and_it_runs_again_later() {
    let server = priced(&[]).await;
    let mut agent = Agent::running(&server, "j", 40).await;
    let stopping = server.call("POST", "/v1/jobs/j/preempt", json!({})).await.expect(200);
    assert_eq!(stopping["state"], "stopping");
    agent.beat(&server).await;
    let waiting = job(&server, "j").await;
    assert_eq!(waiting["state"], "queued");
    assert_eq!(crate::world::blocker_types(&waiting), ["priority"]);
    assert_eq!(waiting["attempts"][0]["end_reason"], "preempted");
    assert_eq!(waiting["hold"]["amount"], "6", "the next hold is placed already");
    server.advance(9).await;
    assert_eq!(state(&server, "j").await, "queued");
    server.advance(1).await;
    assert_eq!(state(&server, "j").await, "starting");
    agent.beat(&server).await;
    agent.run(&server, 30).await;
    agent.finish(&server, "j", 0).await;
    let ended = job(&server, "j").await;
    assert_eq!(ended["attempts"].as_array().expect("attempts").len(), 2);
    assert_eq!(micros(&ended["charged"]), price_of(H100, 40_000) + price_of(H100, 30_000));
    check_books(&server, GRANTED, &["j"]).await;
    let refused = server.call("POST", "/v1/jobs/j/preempt", json!({})).await;
    refused.problem("conflict");
}

#[tokio::test]
async fn a_higher_class_takes_the_place_of_a_lower_one() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, with(small("low"), "class", json!("batch"))).await;
    agent.beat(&server).await;
    agent.run(&server, 700).await;
    submit(&server, with(small("high"), "class", json!("high"))).await;
    assert_eq!(state(&server, "low").await, "stopping");
    agent.beat(&server).await;
    agent.beat(&server).await;
    assert_eq!(
        (state(&server, "low").await, state(&server, "high").await),
        ("queued".into(), "running".into())
    );
    let why = server.get("/v1/jobs/low/why").await;
    let cause = &why["preempted"];
    assert_eq!((&cause["rule"], &cause["name"]), (&json!(1), &json!("class")), "{why}");
    assert_eq!(cause["by"], "high");
    assert_eq!((&cause["class_rank"], &cause["by_class_rank"]), (&json!(10), &json!(30)));
    let timeline = server.get("/v1/jobs/low/timeline").await;
    let entries = timeline["data"].as_array().expect("a list");
    let stop =
        entries.iter().find(|entry| entry["type"] == "stop_ordered").expect("it was stopped");
    assert_eq!(&stop["preemption"], cause, "the same data");
    let detail = stop["detail"].as_str().expect("a text");
    assert!(detail.contains("rule 1, class: the class of job high has rank 30"), "{detail}");
    agent.run(&server, 60).await;
    agent.finish(&server, "high", 0).await;
    agent.beat(&server).await;
    agent.run(&server, 10).await;
    agent.finish(&server, "low", 0).await;
    let low = job(&server, "low").await;
    assert_eq!(low["attempts"][0]["end_reason"], "preempted");
    check_charges(&low);
    check_books(&server, GRANTED, &["low", "high"]).await;
}
