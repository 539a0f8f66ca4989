//! Jobs and credits: rejections, rolling holds, overdrafts and refunds.

use serde_json::json;

use crate::agent::Agent;
use crate::server::Server;
use crate::world::{
    A100, H100, blocker_types, check_books, check_charges, job, micros, price_of, priced, small,
    state, submit, verify, with,
};

const GRANTED: u128 = 1_000_000_000;

/// A server where `acme` has this much.
async fn with_funds(amount: &str) -> Server {
    let server = priced(&[]).await;
    server.call("POST", "/v1/grants/funds/revoke", json!({})).await.expect(200);
    server.grant("few", "acme", amount).await;
    server
}

fn rolling(id: &str) -> serde_json::Value {
    json!({
        "id": id, "account": "acme:nlp", "gpus": { "types": ["H100"] }, "reserve": "rolling"
    })
}

#[tokio::test]
async fn a_job_that_cannot_be_paid_for_is_refused_with_everything_that_blocks() {
    let server = with_funds("5.999999").await;
    let budget = json!({ "limit": "1", "period": "day", "mode": "hard" });
    server.call("PUT", "/v1/accounts/acme:nlp/budgets/b", budget).await.expect(200);
    let refused = server.call("POST", "/v1/jobs", small("j")).await.problem("insufficient_credits");
    assert_eq!(blocker_types(&refused), ["credits", "budget"]);
    server.call("GET", "/v1/jobs/j", json!(null)).await.problem("not_found");
    let quote = server.call("POST", "/v1/quotes", small("j")).await.expect(200);
    assert_eq!((&quote["admissible"], &quote["hold"]), (&json!(false), &json!("6")));
    server.call("DELETE", "/v1/accounts/acme:nlp/budgets/b", json!(null)).await.expect(204);
    server.grant("more", "acme", "0.000001").await;
    submit(&server, small("j")).await;
    verify(&server);
}

#[tokio::test]
async fn the_costliest_type_is_held_and_the_surplus_comes_back_at_placement() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "A100", 4).await;
    let body = with(small("j"), "gpus", json!({ "types": ["H100", "A100"], "count": 2 }));
    let submitted = submit(&server, body).await;
    assert_eq!(submitted["hold"]["amount"], "12");
    let placed = job(&server, "j").await;
    assert_eq!(placed["attempts"][0]["gpu_type"], "A100");
    assert_eq!(placed["hold"]["amount"], "6", "at the price of the type that it got");
    agent.beat(&server).await;
    agent.run(&server, 10).await;
    agent.finish(&server, "j", 0).await;
    let ended = job(&server, "j").await;
    assert_eq!(micros(&ended["charged"]), price_of(A100, 20_000));
    assert_eq!(micros(&ended["charged"]) + micros(&ended["returned"]), 12_000_000);
    check_books(&server, GRANTED, &["j"]).await;
}

#[tokio::test]
async fn a_share_of_a_gpu_costs_its_share() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    let shared = |id| with(small(id), "gpus", json!({ "types": ["H100"], "share": "0.25" }));
    for id in ["a", "b"] {
        assert_eq!(submit(&server, shared(id)).await["hold"]["amount"], "1.5");
    }
    agent.beat(&server).await;
    agent.run(&server, 60).await;
    assert_eq!(server.get("/v1/nodes/n1").await["gpus"][0]["used"], "0.5");
    for id in ["a", "b"] {
        agent.finish(&server, id, 0).await;
        let ended = job(&server, id).await;
        assert_eq!(micros(&ended["charged"]), H100 / 4 * 60 / 3600);
    }
    verify(&server);
}

#[tokio::test]
async fn a_rolling_reserve_is_topped_up_while_there_is_money() {
    let server = with_funds("100").await;
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    let submitted = submit(&server, rolling("j")).await;
    assert_eq!(submitted["hold"]["amount"], "6", "one hour");
    agent.beat(&server).await;
    agent.run(&server, 1770).await;
    assert_eq!(job(&server, "j").await["hold"]["amount"], "6");
    agent.run(&server, 60).await;
    assert_eq!(job(&server, "j").await["hold"]["amount"], "12", "half of the hour was left");
    agent.run(&server, 4000).await;
    agent.finish(&server, "j", 0).await;
    let ended = job(&server, "j").await;
    assert_eq!(micros(&ended["charged"]), price_of(H100, 5_830_000));
    check_books(&server, 100_000_000, &["j"]).await;
}

#[tokio::test]
async fn a_rolling_job_runs_until_the_credits_run_out() {
    let server = with_funds("7").await;
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, with(rolling("j"), "grace_seconds", json!(30))).await;
    agent.beat(&server).await;
    agent.run(&server, 4190).await;
    assert_eq!(state(&server, "j").await, "running", "7 pay for 70 minutes");
    agent.run(&server, 60).await;
    let ended = job(&server, "j").await;
    assert_eq!(ended["state"], "out_of_credits");
    assert_eq!((&ended["charged"], &ended["uncollected"]), (&json!("7"), &json!("0")), "{ended}");
    assert_eq!(ended["attempts"][0]["gpu_ms"], 4_200_000);
    check_books(&server, 7_000_000, &["j"]).await;
}

/// The warnings in the timeline of a job.
async fn warnings(server: &Server, id: &str) -> Vec<String> {
    let timeline = server.get(&format!("/v1/jobs/{id}/timeline")).await;
    let steps = timeline["data"].as_array().expect("a list").iter();
    let warned = steps.filter(|step| step["type"] == "exhaustion_warned");
    warned.map(|step| format!("{}: {}", step["at"], step["detail"])).collect()
}

#[tokio::test]
async fn one_warning_is_emitted_before_the_credits_of_a_job_run_out() {
    let server = with_funds("7").await;
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, rolling("j")).await;
    assert_eq!(job(&server, "j").await["spec"]["warn_ahead_seconds"], 300);
    agent.beat(&server).await;
    agent.run(&server, 3890).await;
    assert!(warnings(&server, "j").await.is_empty(), "ten seconds to go");
    agent.run(&server, 120).await;
    let warned = warnings(&server, "j").await;
    assert_eq!(warned.len(), 1, "{warned:?}");
    let feed = server.client.get(format!("{}/v1/events?after=0", server.url));
    let mut feed = feed.bearer_auth(&server.root).send().await.expect("an answer");
    let mut text = String::new();
    while !text.contains("exhaustion_warned") || !text.ends_with("\n\n") {
        let piece = feed.chunk().await.expect("a piece").expect("the feed has no end");
        text.push_str(&String::from_utf8_lossy(&piece));
    }
    assert!(text.contains("\"then\":\"stop\""), "{text}");
    let audit = server.get("/v1/audit?job=j&limit=100").await;
    assert_eq!(audit.to_string().matches("exhaustion_warned").count(), 1, "{audit}");
    let decisions = audit["data"].as_array().expect("a list");
    let refused = decisions.iter().filter(|decision| !decision["refusal"].is_null());
    assert_eq!(refused.count(), 0, "the reports were taken, though more credits were not: {audit}");
    // More credits end the shortage; the next one has a warning of its own.
    server.grant("more", "acme", "1").await;
    agent.run(&server, 600).await;
    assert_eq!(state(&server, "j").await, "running", "1 pays for ten minutes more");
    assert_eq!(warnings(&server, "j").await.len(), 2);
    agent.run(&server, 300).await;
    assert_eq!(state(&server, "j").await, "out_of_credits");
    check_books(&server, 8_000_000, &["j"]).await;
}

#[tokio::test]
async fn with_an_overdraft_a_job_runs_on_and_what_it_owes_is_collected_later() {
    let server = with_funds("6").await;
    let limit = json!({ "overdraft_limit": "6" });
    server.call("PATCH", "/v1/accounts/acme:nlp", limit).await.expect(200);
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, with(rolling("j"), "on_exhausted", json!("overdraft"))).await;
    agent.beat(&server).await;
    agent.run(&server, 3600 + 600).await;
    assert_eq!(state(&server, "j").await, "running", "it may owe a whole window");
    agent.finish(&server, "j", 0).await;
    let ended = job(&server, "j").await;
    check_charges(&ended);
    assert_eq!(micros(&ended["charged"]), price_of(H100, 4_200_000));
    assert_eq!(micros(&ended["uncollected"]), 1_000_000);
    server.grant("later", "acme:nlp", "10").await;
    let collected = server.call("POST", "/v1/accounts/acme:nlp/collect", json!({})).await;
    assert_eq!(collected.expect(201)["collected"], "1");
    verify(&server);
}

#[tokio::test]
async fn a_job_waits_without_a_hold_when_its_next_one_cannot_be_placed() {
    let server = with_funds("6").await;
    let mut agent = Agent::running(&server, "j", 60).await;
    server.call("POST", "/v1/jobs/j/preempt", json!({})).await.expect(200);
    agent.beat(&server).await;
    let waiting = job(&server, "j").await;
    assert_eq!(waiting["state"], "queued");
    // For ten seconds the operator's preemption keeps it from a place, too.
    assert_eq!(blocker_types(&waiting), ["credits", "priority"]);
    let why = server.get("/v1/jobs/j/why").await;
    assert_eq!(blocker_types(&why), ["credits", "priority"]);
    server.advance(60).await;
    agent.beat(&server).await;
    assert_eq!(blocker_types(&server.get("/v1/jobs/j/why").await), ["credits"]);
    assert_eq!(state(&server, "j").await, "queued");
    server.grant("more", "acme", "1").await;
    assert_eq!(state(&server, "j").await, "starting", "it goes on by itself");
    agent.beat(&server).await;
    agent.run(&server, 30).await;
    agent.finish(&server, "j", 0).await;
    check_books(&server, 7_000_000, &["j"]).await;
}

#[tokio::test]
async fn a_promotion_that_expires_during_a_run_is_honoured_and_compensated_after_a_preemption() {
    let server = with_funds("100").await;
    let promotion = json!({
        "id": "promo", "account": "acme", "amount": "6", "kind": "promotion",
        "expires_at": "2020-01-01T00:30:00Z"
    });
    server.call("POST", "/v1/grants", promotion).await.expect(201);
    let mut agent = Agent::running(&server, "j", 2400).await;
    let spent = |grant: serde_json::Value| (micros(&grant["spent"]), micros(&grant["expired"]));
    let promo = server.get("/v1/grants/promo").await;
    assert_eq!(spent(promo), (price_of(H100, 2_400_000), 0), "held credits stay good");
    server.call("POST", "/v1/jobs/j/preempt", json!({})).await.expect(200);
    agent.beat(&server).await;
    let left = 6_000_000 - price_of(H100, 2_400_000);
    let promo = server.get("/v1/grants/promo").await;
    assert_eq!(spent(promo), (6_000_000 - left, left), "what came back had expired");
    let grants = server.get("/v1/grants?account=acme").await;
    let all = grants["data"].as_array().expect("a list");
    let compensation = all.iter().find(|grant| grant["kind"] == "compensation");
    let compensation = compensation.expect("the platform took the place away");
    assert_eq!(micros(&compensation["amount"]), left);
    agent.run(&server, 30).await;
    agent.run(&server, 30).await;
    agent.finish(&server, "j", 0).await;
    let ended = job(&server, "j").await;
    check_charges(&ended);
    verify(&server);
}

#[tokio::test]
async fn what_a_job_cost_can_be_refunded() {
    let server = priced(&[]).await;
    let mut agent = Agent::running(&server, "j", 60).await;
    server.call("POST", "/v1/jobs/j/preempt", json!({})).await.expect(200);
    agent.beat(&server).await;
    agent.run(&server, 30).await;
    agent.run(&server, 30).await;
    agent.finish(&server, "j", 0).await;
    let charged = micros(&job(&server, "j").await["charged"]);
    let refund = server.call("POST", "/v1/refunds", json!({ "job": "j", "amount": "0.1" })).await;
    assert_eq!(refund.expect(201)["refunded"], "0.1");
    let rest = server.call("POST", "/v1/refunds", json!({ "job": "j" })).await.expect(201);
    assert_eq!(micros(&rest["refunded"]), charged - 100_000);
    // Each attempt had its own hold; the returned credits of all of them are listed.
    let lots = rest["lots"].as_array().expect("a list").iter();
    assert_eq!(lots.map(|lot| micros(&lot["amount"])).sum::<u128>(), charged - 100_000);
    assert_eq!(crate::world::spendable(&server).await, GRANTED);
    server
        .call("POST", "/v1/refunds", json!({ "job": "j", "amount": "0.000001" }))
        .await
        .problem("conflict");
    verify(&server);
}
