//! Common parts of the tests: a priced region with credits, and the checks at the end.

use std::process::Command;

use serde_json::{Value, json};

use crate::server::Server;

/// Micro-credits per GPU-hour of an H100: a tenth of a credit per GPU-minute.
pub(crate) const H100: u128 = 6_000_000;
/// And of an A100.
pub(crate) const A100: u128 = 3_000_000;

/// A server with prices, the tenant `acme` with money, and the tenant `umbra`.
pub(crate) async fn priced(flags: &[&str]) -> Server {
    let mut all = vec!["--clock", "manual"];
    all.extend(flags);
    let server = Server::with(&all);
    furnish(&server).await;
    server
}

/// Prices, two tenants, and money for one of them.
pub(crate) async fn furnish(server: &Server) {
    prices(server).await;
    server.tree().await;
    server.grant("funds", "acme", "1000").await;
}

async fn prices(server: &Server) {
    for (gpu_type, price) in [("H100", "6"), ("A100", "3")] {
        let body = json!({ "per_gpu_hour": price });
        server.call("PUT", &format!("/v1/prices/{gpu_type}"), body).await.expect(200);
    }
}

/// The body of a small job: one H100 for at most an hour.
pub(crate) fn small(id: &str) -> Value {
    json!({
        "id": id, "account": "acme:nlp", "gpus": { "types": ["H100"], "count": 1 },
        "max_runtime_seconds": 3600, "command": ["true"]
    })
}

pub(crate) fn with(mut job: Value, field: &str, value: Value) -> Value {
    job[field] = value;
    job
}

pub(crate) async fn submit(server: &Server, body: Value) -> Value {
    server.call("POST", "/v1/jobs", body).await.expect(201)
}

pub(crate) async fn job(server: &Server, id: &str) -> Value {
    server.get(&format!("/v1/jobs/{id}")).await
}

pub(crate) async fn state(server: &Server, id: &str) -> String {
    job(server, id).await["state"].as_str().expect("a state").to_owned()
}

pub(crate) async fn cancel(server: &Server, id: &str) -> Value {
    server.call("POST", &format!("/v1/jobs/{id}/cancel"), json!({})).await.expect(200)
}

/// Micro-credits out of an amount as it is written.
pub(crate) fn micros(amount: &Value) -> u128 {
    bursar_testkit::binary::micros(amount.as_str().expect("an amount is text"))
}

/// The price of GPU time, rounded half to even, computed independently.
pub(crate) fn price_of(per_gpu_hour: u128, gpu_ms: u64) -> u128 {
    let exact = per_gpu_hour * u128::from(gpu_ms);
    let (quotient, rest) = (exact / 3_600_000, exact % 3_600_000);
    match (rest * 2).cmp(&3_600_000) {
        std::cmp::Ordering::Less => quotient,
        std::cmp::Ordering::Greater => quotient + 1,
        std::cmp::Ordering::Equal => quotient + quotient % 2,
    }
}

/// Every attempt of an ended job cost its price times its GPU time, to the micro-credit, and the
/// account has spent exactly that.
#[track_caller]
pub(crate) fn check_charges(job: &Value) {
    let attempts = job["attempts"].as_array().expect("attempts");
    let mut sum = 0;
    for attempt in attempts {
        let gpu_ms = attempt["gpu_ms"].as_u64().expect("a number");
        let charged = micros(&attempt["charged"]);
        assert_eq!(charged, price_of(micros(&attempt["per_gpu_hour"]), gpu_ms), "{attempt}");
        sum += charged;
    }
    assert_eq!(micros(&job["charged"]), sum, "{job}");
}

/// What the tenant can spend, in micro-credits.
pub(crate) async fn spendable(server: &Server) -> u128 {
    micros(&server.get("/v1/accounts/acme/balance").await["spendable"])
}

/// The ledger holds nothing any more, spent what the jobs say, and the journals verify.
pub(crate) async fn check_books(server: &Server, granted: u128, jobs: &[&str]) {
    let mut charged = 0;
    for id in jobs {
        let job = job(server, id).await;
        check_charges(&job);
        charged += micros(&job["charged"]) - micros(&job["uncollected"]);
    }
    assert_eq!(spendable(server).await, granted - charged);
    assert_eq!(server.get("/v1/accounts/acme/balance").await["held"], "0");
    verify(server);
}

/// `bursar audit verify` succeeds.
#[track_caller]
pub(crate) fn verify(server: &Server) {
    let output = Command::new(env!("CARGO_BIN_EXE_bursar"))
        .args(["audit", "verify", "--data"])
        .arg(server.data())
        .output()
        .expect("the binary is there");
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complained}");
}

/// The types of the blockers of a problem or a job.
pub(crate) fn blocker_types(body: &Value) -> Vec<String> {
    let blockers = body["blockers"].as_array().expect("blockers");
    for blocker in blockers {
        assert!(!blocker["fix"].as_str().expect("a fix").is_empty(), "{blocker}");
        assert!(!blocker["detail"].as_str().expect("what blocks").is_empty(), "{blocker}");
    }
    blockers.iter().map(|b| b["type"].as_str().expect("a type").to_owned()).collect()
}
