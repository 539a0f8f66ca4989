//! What goes wrong between the agents and the server, and in the server itself.

use serde_json::json;

use crate::agent::Agent;
use crate::world::{
    H100, cancel, check_books, job, micros, price_of, priced, small, state, submit, with,
};

const GRANTED: u128 = 1_000_000_000;
const MANUAL: [&str; 2] = ["--clock", "manual"];

#[tokio::test]
async fn a_job_on_a_lost_node_is_settled_at_what_was_proven_and_runs_again() {
    let server = priced(&[]).await;
    let mut agent = Agent::running(&server, "j", 60).await;
    server.advance(89).await;
    assert_eq!(state(&server, "j").await, "running", "the lease ends after ninety seconds");
    server.advance(1).await;
    let waiting = job(&server, "j").await;
    assert_eq!(
        (&waiting["state"], &waiting["attempts"][0]["end_reason"]),
        (&json!("queued"), &json!("lost"))
    );
    assert_eq!(micros(&waiting["attempts"][0]["charged"]), price_of(H100, 60_000));
    assert_eq!(server.get("/v1/nodes/n1").await["state"], "lost");

    // The agent was only disconnected: its old attempt is lost.
    agent.work(90);
    let stale = agent.attempt_of("j");
    let orders = agent.ask(&server).await;
    let about_stale = orders.iter().find(|order| order["attempt"] == stale.as_str());
    let what = about_stale.expect("an order about the dead attempt")["type"].clone();
    assert!(what == "forget" || what == "kill", "{orders:?}");
    agent.obey(&orders);
    agent.beat(&server).await;
    agent.beat(&server).await;
    assert_eq!(state(&server, "j").await, "running");
    agent.run(&server, 30).await;
    agent.finish(&server, "j", 0).await;
    let ended = job(&server, "j").await;
    assert_eq!(micros(&ended["charged"]), price_of(H100, 60_000) + price_of(H100, 30_000));
    check_books(&server, GRANTED, &["j"]).await;
}

#[tokio::test]
async fn a_job_whose_node_is_lost_too_often_is_lost() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, with(small("j"), "max_requeues", json!(1))).await;
    for _ in 0..2 {
        agent.beat(&server).await;
        assert_eq!(state(&server, "j").await, "running");
        agent.run(&server, 30).await;
        server.advance(91).await;
        agent.register_again(&server, "default", "H100", 1).await;
    }
    let ended = job(&server, "j").await;
    assert_eq!(ended["state"], "lost");
    assert_eq!(micros(&ended["charged"]), 2 * price_of(H100, 30_000));
    check_books(&server, GRANTED, &["j"]).await;
}

#[tokio::test]
async fn repeated_and_overtaken_reports_change_nothing() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 2).await;
    submit(&server, small("j")).await;
    agent.beat(&server).await;
    server.advance(20).await;
    agent.work(20);
    let early = agent.report();
    server.advance(20).await;
    agent.work(20);
    let late = agent.report();
    agent.send(&server, late.clone()).await.expect(200);
    let seen = job(&server, "j").await;
    assert_eq!(seen["attempts"][0]["gpu_ms"], 40_000);
    for again in [early.clone(), late.clone(), early] {
        let answer = agent.send(&server, again).await.expect(200);
        assert_eq!(answer["orders"], json!([]));
        let after = job(&server, "j").await;
        assert_eq!(after["attempts"], seen["attempts"]);
        assert_eq!(after["hold"], seen["hold"]);
    }
    let mut foreign = late;
    foreign["seq"] = json!(agent.seq + 1);
    foreign["incarnation"] = json!(agent.incarnation + 1);
    let refused = agent.send(&server, foreign).await.problem("stale_incarnation");
    let said = format!("the current incarnation is {}; register again", agent.incarnation);
    assert_eq!(refused["detail"], said);
    agent.finish(&server, "j", 0).await;
    assert_eq!(micros(&job(&server, "j").await["charged"]), price_of(H100, 40_000));
    check_books(&server, GRANTED, &["j"]).await;
}

#[tokio::test]
async fn a_clock_that_runs_fast_cannot_overcharge() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, small("j")).await;
    agent.beat(&server).await;
    server.advance(30).await;
    agent.work(300);
    agent.beat(&server).await;
    assert_eq!(job(&server, "j").await["attempts"][0]["gpu_ms"], 35_000, "five seconds of slack");
    agent.finish(&server, "j", 0).await;
    check_books(&server, GRANTED, &["j"]).await;
}

#[tokio::test]
async fn a_finish_that_comes_after_the_attempt_was_lost_changes_nothing() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, with(small("j"), "max_requeues", json!(0))).await;
    agent.beat(&server).await;
    agent.run(&server, 30).await;
    let attempt = agent.attempt_of("j");
    server.advance(91).await;
    let lost = job(&server, "j").await;
    assert_eq!(lost["state"], "lost");
    agent.work(91);
    let run = agent.runs.get_mut(&attempt).expect("it ran");
    (run.state, run.exit_code) = ("succeeded", Some(0));
    agent.beat(&server).await;
    let after = job(&server, "j").await;
    assert_eq!((&after["state"], &after["charged"]), (&lost["state"], &lost["charged"]));
    assert_eq!(after["attempts"], lost["attempts"]);
    check_books(&server, GRANTED, &["j"]).await;
}

#[tokio::test]
async fn an_agent_that_came_back_without_an_attempt_has_lost_it() {
    let server = priced(&[]).await;
    let mut agent = Agent::running(&server, "j", 30).await;
    agent.register_again(&server, "default", "H100", 1).await;
    agent.beat(&server).await;
    agent.beat(&server).await;
    let again = job(&server, "j").await;
    assert_eq!(again["attempts"][0]["end_reason"], "lost");
    assert_eq!(again["state"], "running");
    agent.finish(&server, "j", 0).await;
    check_books(&server, GRANTED, &["j"]).await;
}

#[tokio::test]
async fn a_killed_server_resumes_its_state() {
    let mut server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, small("runs")).await;
    submit(&server, small("waits")).await;
    agent.beat(&server).await;
    agent.run(&server, 60).await;
    let before = (job(&server, "runs").await, server.get("/v1/clock").await);
    server.crash_and_restart(&MANUAL);
    let after = (job(&server, "runs").await, server.get("/v1/clock").await);
    assert_eq!(before.1, after.1);
    assert_eq!(before.0["attempts"], after.0["attempts"]);
    assert_eq!(before.0["hold"], after.0["hold"]);
    assert_eq!(state(&server, "waits").await, "queued");
    agent.run(&server, 30).await;
    agent.finish(&server, "runs", 0).await;
    server.crash_and_restart(&MANUAL);
    agent.beat(&server).await;
    assert_eq!(state(&server, "waits").await, "running");
    agent.run(&server, 15).await;
    agent.finish(&server, "waits", 0).await;
    assert_eq!(micros(&job(&server, "runs").await["charged"]), price_of(H100, 90_000));
    check_books(&server, GRANTED, &["runs", "waits"]).await;
}

#[tokio::test]
async fn a_server_that_is_killed_after_each_step_still_pays_once() {
    let mut server = priced(&[]).await;
    submit(&server, small("j")).await;
    server.crash_and_restart(&MANUAL);
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    server.crash_and_restart(&MANUAL);
    agent.beat(&server).await;
    server.crash_and_restart(&MANUAL);
    agent.run(&server, 30).await;
    server.crash_and_restart(&MANUAL);
    cancel(&server, "j").await;
    server.crash_and_restart(&MANUAL);
    agent.beat(&server).await;
    server.crash_and_restart(&MANUAL);
    let ended = job(&server, "j").await;
    assert_eq!(ended["state"], "cancelled");
    assert_eq!(micros(&ended["charged"]), price_of(H100, 30_000));
    check_books(&server, GRANTED, &["j"]).await;
}
