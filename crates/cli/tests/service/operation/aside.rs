//! A timer that always fails, on a complete server: the server continues without it and reports it.

use std::time::Duration;

use bursar_api::Time;
use serde_json::{Value, json};

use crate::server::{Server, tool};

/// An instant so many seconds after one that the server said.
fn later(instant: &Value, seconds: i64) -> String {
    let instant: Time = instant.as_str().and_then(|text| text.parse().ok()).expect("an instant");
    Time::from_millis(instant.millis() + seconds * 1_000).to_string()
}

async fn ready(server: &Server) -> Value {
    server.send("GET", "/readyz", Value::Null, "", &[]).await.expect(200)
}

#[tokio::test]
async fn a_timer_that_panics_is_set_aside_and_the_server_goes_on() {
    let mut server = Server::under(&["env", "BURSAR_DEBUG_PANIC=HoldClosed&Lapsed"]);
    server.open("acme", "org").await;
    server.grant("funds", "acme", "10").await;
    let hold = json!({ "id": "h", "account": "acme", "amount": "4", "ttl_seconds": 1 });
    server.call("POST", "/v1/holds", hold).await.expect(201);
    let balance = server.get("/v1/accounts/acme/balance").await;
    let grant = json!({
        "id": "later", "account": "acme", "amount": "5", "kind": "purchase",
        "effective_at": later(&balance["as_of"], 2)
    });
    server.call("POST", "/v1/grants", grant).await.expect(201);

    // The next timer fires.
    while server.get("/v1/accounts/acme/balance").await["available"] != "11" {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(server.get("/v1/holds/h").await["state"], "open", "it does not lapse");
    let said = ready(&server).await;
    assert_eq!(said["set_aside"], json!({ "ledger-0": 1 }), "{said}");
    let metric = "bursar_machine_set_aside{machine=\"Ledger\"}";
    server.until_metric(metric, |count| count == 1.0).await;
    let panics = "bursar_machine_panics_total{machine=\"Ledger\"}";
    server.until_metric(panics, |count| count == 3.0).await;
    // The copy that is asked follows the journal.
    while ready(&server).await["set_aside_kinds"] != json!({ "ledger-0": ["lapse"] }) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tool(&["audit", "verify"], server.data());

    // It stays aside, also for a server that would not panic.
    server.crash_and_restart(&[]);
    let said = ready(&server).await;
    assert_eq!(said["set_aside"], json!({ "ledger-0": 1 }), "{said}");
    assert_eq!(said["set_aside_kinds"], json!({ "ledger-0": ["lapse"] }), "{said}");
    server.until_metric(metric, |count| count == 1.0).await;
    assert_eq!(server.get("/v1/holds/h").await["state"], "open");
    // An operator can end it.
    server.call("POST", "/v1/holds/h/release", json!({})).await.expect(200);
    assert_eq!(server.get("/v1/accounts/acme/balance").await["available"], "15");
}
