//! Grants, holds, charges, refunds, transfers and budgets, from beginning to end.

use serde_json::{Value, json};

use crate::server::Server;

#[tokio::test]
async fn a_hold_is_placed_captured_extended_settled_and_refunded() {
    let server = Server::start();
    server.tree().await;
    server.grant("late", "acme", "100").await;
    let soon = json!({
        "id": "soon", "account": "acme", "amount": "10", "kind": "grant",
        "expires_at": "2020-01-31T00:00:00Z"
    });
    server.call("POST", "/v1/grants", soon).await.expect(201);
    let place = json!({ "id": "h", "account": "acme:nlp", "amount": "28.8" });
    let hold = server.call("POST", "/v1/holds", place).await.expect(201);
    assert_eq!(hold["state"], "open");
    assert_eq!(hold["remaining"], "28.8");
    assert_eq!(hold["expires_at"], "2020-01-01T01:00:00.000Z");
    let lots = json!([
        { "grant": "soon", "amount": "10" }, { "grant": "late", "amount": "18.8" }
    ]);
    assert_eq!(hold["lots"], lots, "what expires first is spent first");
    assert_eq!(hold["lots_truncated"], false);

    let capture = json!({ "total": "12", "seq": 1 });
    let hold = server.call("POST", "/v1/holds/h/capture", capture).await.expect(200);
    assert_eq!((&hold["captured"], &hold["remaining"]), (&json!("12"), &json!("16.8")));
    let extend = json!({ "amount": 1, "ttl_seconds": 7200 });
    let hold = server.call("POST", "/v1/holds/h/extend", extend).await.expect(200);
    assert_eq!(hold["amount"], "29.8");
    assert_eq!(hold["expires_at"], "2020-01-01T02:00:00.000Z");
    let hold =
        server.call("POST", "/v1/holds/h/settle", json!({ "total": "20" })).await.expect(200);
    assert_eq!(hold["state"], "settled");
    let returned = json!([{ "grant": "late", "amount": "1", "expired": false },
        { "grant": "late", "amount": "8.8", "expired": false }]);
    assert_eq!(hold["returned"], returned);

    let refund = json!({ "id": "r", "hold": "h", "amount": "11" });
    let refund = server.call("POST", "/v1/refunds", refund).await.expect(201);
    assert_eq!(refund["refunded"], "11");
    let lots = json!([
        { "grant": "late", "amount": "10", "expired": false },
        { "grant": "soon", "amount": "1", "expired": false }
    ]);
    assert_eq!(refund["lots"], lots, "last drawn goes back first");
    server
        .call("POST", "/v1/refunds", json!({ "hold": "h", "amount": "9.1" }))
        .await
        .problem("conflict");
    let grant = server.get("/v1/grants/soon").await;
    assert_eq!((&grant["spent"], &grant["available"]), (&json!("9"), &json!("1")));
    assert!(grant["position"].is_u64() && grant["as_of"].is_string());
    let all = server.get("/v1/holds/h/lots").await;
    assert_eq!(all["data"].as_array().map(Vec::len), Some(3));
}

#[tokio::test]
async fn a_lapsed_hold_gives_back_and_an_expired_grant_is_gone() {
    let server = Server::start();
    server.tree().await;
    let grant = json!({
        "id": "g", "account": "acme", "amount": "10", "kind": "promotion",
        "expires_at": "2020-01-01T00:30:00Z"
    });
    server.call("POST", "/v1/grants", grant).await.expect(201);
    let place = json!({ "id": "h", "account": "acme", "amount": "4", "ttl_seconds": 3600 });
    server.call("POST", "/v1/holds", place).await.expect(201);
    server.advance(1800).await;
    let balance = server.get("/v1/accounts/acme/balance").await;
    assert_eq!(balance["available"], "6", "the last instant still counts");
    server.advance(1).await;
    let balance = server.get("/v1/accounts/acme/balance").await;
    assert_eq!((&balance["available"], &balance["held"]), (&json!("0"), &json!("4")));
    server.advance(1800).await;
    let hold = server.get("/v1/holds/h").await;
    assert_eq!(hold["state"], "lapsed");
    let grant = server.get("/v1/grants/g").await;
    assert_eq!((&grant["expired"], &grant["held"]), (&json!("10"), &json!("0")));
    server.call("POST", "/v1/holds/h/release", json!({})).await.problem("hold_closed");
}

#[tokio::test]
async fn charges_take_part_only_when_asked_to_and_transfers_stay_in_the_tenant() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme:nlp", "10").await;
    let short = server
        .call("POST", "/v1/charges", json!({ "account": "acme:nlp:x", "amount": "12" }))
        .await
        .problem("insufficient_credits");
    assert_eq!(short["blockers"][0]["type"], "credits");
    assert_eq!(short["blockers"][0]["spendable"], "10");
    let part = json!({ "account": "acme:nlp:x", "amount": "12", "allow_partial": true });
    let charge = server.call("POST", "/v1/charges", part.clone()).await.expect(201);
    assert_eq!((&charge["requested"], &charge["charged"]), (&json!("12"), &json!("10")));
    assert_eq!(charge["spendable_after"], "0");
    server.call("POST", "/v1/charges", part).await.problem("insufficient_credits");
    let id = charge["id"].as_str().expect("an id");
    let found = server.get(&format!("/v1/charges/{id}")).await;
    assert_eq!(found["refunded"], "0");
    server.call("POST", "/v1/refunds", json!({ "charge": id })).await.expect(201);
    let transfer = json!({ "from": "acme:nlp", "to": "acme:vision", "amount": "3" });
    let moved = server.call("POST", "/v1/transfers", transfer).await.expect(201);
    assert_eq!(moved["amount"], "3");
    let balance = server.get("/v1/accounts/acme:vision/balance").await;
    assert_eq!(balance["by_kind"]["purchase"], "3");
    let across = json!({ "from": "acme:nlp", "to": "umbra", "amount": "1" });
    let problem = server.call("POST", "/v1/transfers", across).await.problem("invalid_field");
    assert_eq!(problem["param"], "to");
    let grant = server.get("/v1/grants/g").await;
    assert_eq!(grant["moved"], "3");
    let revoked = server.call("POST", "/v1/grants/g/revoke", json!({})).await.expect(200);
    assert_eq!((&revoked["revoked"], &revoked["available"]), (&json!("7"), &json!("0")));
}

#[tokio::test]
async fn usage_above_the_hold_is_uncollected_until_it_is_collected() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "5").await;
    let place = json!({ "id": "h", "account": "acme", "amount": "5" });
    server.call("POST", "/v1/holds", place).await.expect(201);
    let hold = server.call("POST", "/v1/holds/h/settle", json!({ "total": "8" })).await.expect(200);
    assert_eq!((&hold["captured"], &hold["uncollected"]), (&json!("5"), &json!("3")));
    let account = server.get("/v1/accounts/acme").await;
    assert_eq!(account["uncollected"], "3");
    server
        .call("POST", "/v1/accounts/acme/collect", json!({}))
        .await
        .problem("insufficient_credits");
    server.grant("g2", "acme", "10").await;
    let collected =
        server.call("POST", "/v1/accounts/acme/collect", json!({ "id": "c1" })).await.expect(201);
    assert_eq!(collected["collected"], "3");
    server.call("POST", "/v1/accounts/acme/collect", json!({})).await.problem("conflict");
    assert_eq!(server.get("/v1/accounts/acme/balance").await["available"], "7");
}

#[tokio::test]
async fn every_budget_that_blocks_is_named_and_a_new_period_starts_by_itself() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "100").await;
    for (account, limit) in [("acme", "9"), ("acme:nlp", "8")] {
        let path = format!("/v1/accounts/{account}/budgets/daily");
        let body = json!({ "limit": limit, "period": "day", "mode": "hard" });
        server.call("PUT", &path, body).await.expect(200);
    }
    let place = json!({ "account": "acme:nlp", "amount": "6" });
    server.call("POST", "/v1/holds", place.clone()).await.expect(201);
    let problem = server.call("POST", "/v1/holds", place.clone()).await.problem("budget_exceeded");
    let blockers = problem["blockers"].as_array().expect("a list");
    let named: Vec<(&Value, &Value)> =
        blockers.iter().map(|blocker| (&blocker["account"], &blocker["limit"])).collect();
    assert_eq!(named, [(&json!("acme:nlp"), &json!("8")), (&json!("acme"), &json!("9"))]);
    for (field, value) in [("budget", "daily"), ("spent", "0"), ("held", "6"), ("requested", "6")] {
        assert_eq!(blockers[0][field], value, "{field}");
    }
    let budget = server.get("/v1/accounts/acme/budgets/daily").await;
    for (field, value) in [("used", "6"), ("remaining", "3"), ("unit", "credits")] {
        assert_eq!(budget[field], value, "{field}");
    }
    assert_eq!(budget["period_end"], "2020-01-02T00:00:00.000Z");
    server.advance(86_400).await;
    let budget = server.get("/v1/accounts/acme/budgets/daily").await;
    assert_eq!((&budget["used"], &budget["remaining"]), (&json!("0"), &json!("9")));
    assert_eq!(budget["period_start"], "2020-01-02T00:00:00.000Z");
    server.call("POST", "/v1/holds", place).await.expect(201);
    server.call("DELETE", "/v1/accounts/acme/budgets/daily", Value::Null).await.expect(204);
    server.call("GET", "/v1/accounts/acme/budgets/daily", Value::Null).await.problem("not_found");
}

#[tokio::test]
async fn restricted_credits_are_spent_only_on_what_they_are_for() {
    let server = Server::start();
    server.tree().await;
    let grant = json!({
        "id": "p", "account": "acme", "amount": "10", "kind": "promotion",
        "restrict": { "gpu_types": ["H100"], "max_share": "0.5" }
    });
    server.call("POST", "/v1/grants", grant).await.expect(201);
    server.grant("g", "acme", "10").await;
    let plain = server.get("/v1/accounts/acme/balance").await;
    assert_eq!((&plain["available"], &plain["spendable"]), (&json!("20"), &json!("10")));
    let fitting = server.get("/v1/accounts/acme/balance?gpu_type=H100").await;
    assert_eq!(fitting["spendable"], "20");
    let place = json!({
        "account": "acme", "amount": "8", "context": { "gpu_types": ["H100"] }, "on_expiry": "strict"
    });
    let hold = server.call("POST", "/v1/holds", place).await.expect(201);
    let lots = json!([{ "grant": "p", "amount": "4" }, { "grant": "g", "amount": "4" }]);
    assert_eq!(hold["lots"], lots, "at most half from the promotion");
    assert_eq!(hold["on_expiry"], "strict");
}

#[tokio::test]
async fn what_the_ledger_has_forgotten_can_still_be_refunded_once() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "10").await;
    let charge = json!({ "id": "c", "account": "acme:nlp", "amount": "4" });
    server.call("POST", "/v1/charges", charge).await.expect(201);
    let before = server.get("/v1/charges/c").await;
    server.advance(36 * 86_400).await;
    let after = server.get("/v1/charges/c").await;
    for field in ["id", "account", "charged", "requested", "refunded", "lots", "created_at"] {
        assert_eq!(after[field], before[field], "{field}");
    }
    let stranger = server.key("billing", "umbra").await;
    let refund = json!({ "charge": "c", "amount": "3" });
    server.send("POST", "/v1/refunds", refund.clone(), &stranger, &[]).await.problem("not_found");
    let done = server.call("POST", "/v1/refunds", refund.clone()).await.expect(201);
    assert_eq!(done["refunded"], "3");
    server.call("POST", "/v1/refunds", refund).await.problem("conflict");
    assert_eq!(server.get("/v1/grants/g").await["spent"], "1");
}

#[tokio::test]
async fn a_hold_that_the_ledger_has_forgotten_is_shown_and_listed_as_before() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "10").await;
    let hold = json!({ "id": "h", "account": "acme:nlp", "amount": "4", "reference": "r" });
    server.call("POST", "/v1/holds", hold).await.expect(201);
    server.call("POST", "/v1/holds/h/settle", json!({ "total": "1.5" })).await.expect(200);
    let before = server.get("/v1/holds/h").await;
    let lots = server.get("/v1/holds/h/lots").await;
    server.advance(36 * 86_400).await;
    server.until_forgotten().await;
    let listed = server.get("/v1/holds?account=acme:nlp").await;
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1), "{listed}");
    let after = server.get("/v1/holds/h").await;
    for (field, value) in before.as_object().expect("an object") {
        if !["as_of", "position"].contains(&field.as_str()) {
            assert_eq!(&after[field], value, "{field}");
            assert_eq!(&listed["data"][0][field], value, "{field}");
        }
    }
    for none in ["account=acme", "state=open", "state=lapsed"] {
        let listed = server.get(&format!("/v1/holds?{none}")).await;
        assert_eq!(listed["data"], json!([]), "{none}");
    }
    assert_eq!(server.get("/v1/holds/h/lots").await["data"], lots["data"]);
    for (scope, expected) in [("umbra", "not_found"), ("acme:vision", "not_found")] {
        let stranger = server.key("viewer", scope).await;
        let answer = server.send("GET", "/v1/holds/h", Value::Null, &stranger, &[]).await;
        answer.problem(expected);
    }
    let agent = server.key("agent", "acme").await;
    server.send("GET", "/v1/holds/h", Value::Null, &agent, &[]).await.problem("forbidden");
}

#[tokio::test]
async fn what_a_closed_hold_returned_is_listed_whole() {
    let server = Server::start();
    server.tree().await;
    for number in 0..150 {
        server.grant(&format!("g{number:03}"), "acme", "1").await;
    }
    let hold = json!({ "id": "h", "account": "acme", "amount": "149.5" });
    let placed = server.call("POST", "/v1/holds", hold).await.expect(201);
    assert_eq!(
        (placed["lots"].as_array().map(Vec::len), &placed["lots_truncated"]),
        (Some(100), &json!(true))
    );
    let settle = json!({ "total": "10.25" });
    let closed = server.call("POST", "/v1/holds/h/settle", settle).await.expect(200);
    let returned = closed["returned"].as_array().expect("a list");
    let sum: i128 =
        returned.iter().map(|lot| crate::ledger::concurrency::micros(&lot["amount"])).sum();
    assert_eq!(sum, 139_250_000);
    assert!(closed.get("returned_truncated").is_none());
}
