//! Many concurrent clients, with retries and crashes: no micro-credit is spent twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use reqwest::Client;
use serde_json::{Value, json};

use crate::server::Server;

const CLIENTS: u64 = 64;

/// One client: charges until there is nothing left, sends each request twice, and repeats it under
/// the same key until there is an answer. Returns how many micro-credits the answers say it spent.
async fn spend(client: Client, url: String, key: String, number: u64, rounds: u64) -> u64 {
    let mut spent = 0;
    for round in 0..rounds {
        let micros = 10_000 + (number * 7919 + round * 104_729) % 90_000;
        let body = json!({ "account": "acme", "amount": format!("0.{micros:06}") });
        let mut answers = Vec::new();
        while answers.len() < 2 {
            let request = client
                .post(format!("{url}/v1/charges"))
                .bearer_auth(&key)
                .header("Idempotency-Key", format!("{number}-{round}"))
                // A request that was lost with its connection is sent again.
                .timeout(Duration::from_secs(20))
                .json(&body);
            // No answer, or one that says to try again: the same request once more.
            let Ok(response) = request.send().await else {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            let status = response.status().as_u16();
            if status == 503 {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
            let Ok(body) = response.json::<Value>().await else { continue };
            answers.push((status, body["charged"].clone(), body["code"].clone()));
        }
        assert_eq!(answers[0], answers[1], "a repeat has the first answer");
        match answers[0].0 {
            201 => spent += micros,
            402 => assert_eq!(answers[0].2, "insufficient_credits"),
            status => panic!("{status}"),
        }
    }
    spent
}

pub(crate) fn micros(value: &Value) -> i128 {
    let sum: bursar_api::amount::Sum = serde_json::from_value(value.clone()).expect("an amount");
    sum.micros()
}

async fn run(server: &Server, rounds: u64) -> Vec<tokio::task::JoinHandle<u64>> {
    server.tree().await;
    server.grant("g", "acme", "20").await;
    (0..CLIENTS)
        .map(|number| {
            let (client, url) = (server.client.clone(), server.url.clone());
            tokio::spawn(spend(client, url, server.root.clone(), number, rounds))
        })
        .collect()
}

async fn check(server: &Server, answered: u64) {
    let grant = server.get("/v1/grants/g").await;
    assert_eq!(micros(&grant["spent"]), i128::from(answered), "the answers match what was spent");
    let sum = ["available", "held", "spent", "expired", "revoked", "moved"]
        .map(|part| micros(&grant[part]))
        .iter()
        .sum::<i128>();
    assert_eq!(sum, 20_000_000, "every micro-credit is somewhere");
    let balance = server.get("/v1/accounts/acme/balance").await;
    assert!(micros(&balance["available"]) < 110_000, "it was spent to the end");
    let report = bursar_audit::check::check(&server.data().join("ledger-0.db"), |_| {});
    let report = report.expect("the journal can be read beside the server");
    assert!(report.holds(), "{report:?}");
    let metrics = server.send("GET", "/metrics", Value::Null, "", &[]).await.expect(200);
    assert!(metrics.as_str().is_some_and(|text| text.contains("self_check_violations_total 0")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_clients_never_spend_a_micro_credit_too_much() {
    let server = Server::with(&[]);
    let mut answered = 0;
    for task in run(&server, 8).await {
        answered += task.await.expect("no panic");
    }
    check(&server, answered).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_holds_when_the_server_is_killed_under_them() {
    let mut server = Server::with(&[]);
    let tasks = run(&server, 8).await;
    let answered = Arc::new(AtomicU64::new(0));
    let finished = Arc::new(AtomicBool::new(false));
    let collect = {
        let (answered, finished) = (Arc::clone(&answered), Arc::clone(&finished));
        tokio::spawn(async move {
            for task in tasks {
                answered.fetch_add(task.await.expect("no panic"), Ordering::SeqCst);
            }
            finished.store(true, Ordering::SeqCst);
        })
    };
    let mut crashes = 0;
    while !finished.load(Ordering::SeqCst) && crashes < 6 {
        let before = server.get("/v1/accounts/acme/balance").await["position"].as_u64();
        // Let some requests complete, then kill the server.
        loop {
            let now = server.get("/v1/accounts/acme/balance").await["position"].as_u64();
            if now >= before.map(|before| before + 25) || finished.load(Ordering::SeqCst) {
                break;
            }
            tokio::task::yield_now().await;
        }
        server.crash_and_restart(&[]);
        crashes += 1;
    }
    collect.await.expect("no panic");
    assert!(crashes > 0);
    check(&server, answered.load(Ordering::SeqCst)).await;
}
