//! When a job starts is said only where it is known, and what it waits for has its right name.

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::person::Person;
use crate::server::Server;
use crate::world::{priced, small, submit, with};

/// The estimated starts of a quote.
async fn starts(server: &Server, body: Value) -> Vec<Value> {
    let quote = server.call("POST", "/v1/quotes", body).await.expect(200);
    let offers = quote["offers"].as_array().expect("offers").iter();
    offers.map(|offer| offer["estimated_start_at"].clone()).collect()
}

#[tokio::test]
async fn a_job_that_would_be_refused_has_no_estimated_start() {
    let server = priced(&[]).await;
    let _agent = Agent::register(&server, "n1", "H100", 2).await;
    assert_eq!(starts(&server, small("j")).await, [json!("2020-01-01T00:00:00.000Z")]);
    let external = with(small("j"), "external", json!(true));
    assert_eq!(starts(&server, external).await, [json!(null)], "no cell places it");
    // Too few credits.
    let long = with(small("j"), "max_runtime_seconds", json!(3_600_000));
    assert_eq!(starts(&server, long).await, [json!(null)]);
    // A budget.
    let budget = json!({ "limit": "1", "period": "total", "mode": "hard" });
    server.call("PUT", "/v1/accounts/acme:nlp/budgets/b", budget).await.expect(200);
    assert_eq!(starts(&server, small("j")).await, [json!(null)]);
    server.call("DELETE", "/v1/accounts/acme:nlp/budgets/b", json!(null)).await.expect(204);
    assert_ne!(starts(&server, small("j")).await, [json!(null)]);
    // A quota.
    let one = json!({ "gpus": { "*": 1 } });
    server.call("PUT", "/v1/accounts/acme:nlp/quota", one).await.expect(200);
    let two = with(small("j"), "gpus", json!({ "types": ["H100"], "count": 2 }));
    assert_eq!(starts(&server, two).await, [json!(null)]);
    server.call("DELETE", "/v1/accounts/acme:nlp/quota", json!(null)).await.expect(204);
    // A freeze.
    server.call("POST", "/v1/accounts/acme/freeze", json!({})).await.expect(200);
    assert_eq!(starts(&server, small("j")).await, [json!(null)]);
}

#[tokio::test]
async fn the_start_that_a_quote_names_is_the_one_of_the_job() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    let lasting = |id, seconds: u64| with(small(id), "max_runtime_seconds", json!(seconds));
    // Its order to start is not carried out yet.
    submit(&server, lasting("first", 1020)).await;
    let quoted = starts(&server, lasting("second", 600)).await;
    submit(&server, lasting("second", 600)).await;
    let start = || async { server.get("/v1/jobs/second/why").await["estimated_start_at"].clone() };
    assert_eq!(quoted, [start().await]);
    agent.beat(&server).await;
    agent.run(&server, 30).await;
    let instant = |text: &Value| {
        let text = text.as_str().expect("an instant");
        text.parse::<bursar_api::Time>().expect("an instant").millis()
    };
    let sooner = instant(&quoted[0]) - instant(&start().await);
    assert!((0..=60_000).contains(&sooner), "{sooner} ms");
}

#[tokio::test]
async fn a_lost_node_is_lost_and_not_drained() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, small("first")).await;
    agent.beat(&server).await;
    submit(&server, small("second")).await;
    server.advance(600).await;
    let why = server.get("/v1/jobs/second/why").await;
    let blockers = why["blockers"].as_array().expect("blockers");
    let lost = blockers.iter().find(|of| {
        of["detail"]
            .as_str()
            .is_some_and(|text| text == "lost: 1 suitable node in default no longer reports")
    });
    // The list of types is closed: a lost node is missing capacity, and the text says why.
    assert_eq!(lost.expect("it says so")["type"], "capacity", "{why}");
    assert!(!blockers.iter().any(|of| of["type"] == "drain"), "{why}");
    assert!(person.done(&["why", "second"]).contains("lost: 1 suitable node"));
}

#[tokio::test]
async fn why_shows_the_fair_shares_that_decide() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, small("first")).await;
    agent.beat(&server).await;
    agent.run(&server, 600).await;
    submit(&server, small("second")).await;
    let person = Person::of(&server);
    let why = person.json(&["why", "second"]);
    let shares = why["shares"].as_array().expect("shares");
    let accounts: Vec<&str> =
        shares.iter().map(|share| share["account"].as_str().expect("text")).collect();
    assert_eq!(accounts, ["acme", "acme:nlp"]);
    assert_eq!((&shares[1]["entitled"], &shares[1]["region"]), (&json!("1"), &json!("default")));
    assert_ne!(shares[1]["usage"], "0");
    assert!(shares[1]["half_life_seconds"].as_u64().is_some_and(|seconds| seconds > 0));
    assert!(person.done(&["why", "second"]).contains("fair shares:"));
    // A key of the team sees the team's own share only.
    let team = Person::with_key(&server, &server.key("submitter", "acme:nlp").await);
    let shares = team.json(&["why", "second"])["shares"].clone();
    assert_eq!(shares.as_array().map(Vec::len), Some(1));
    assert_eq!(shares[0]["account"], "acme:nlp");
    // One that runs competes with none.
    assert_eq!(person.json(&["why", "first"])["shares"], json!(null));
}
