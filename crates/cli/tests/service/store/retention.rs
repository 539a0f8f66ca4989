//! Ids that were used so long ago that the ledger has forgotten them: the archive answers for it.

use serde_json::{Value, json};

use crate::server::Server;

const DAY: u64 = 86_400;

/// A server of which the ledger has forgotten all that is given here, and what these requests were answered.
async fn aged(requests: &[(&str, Value)]) -> (Server, Vec<Value>) {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "100").await;
    let mut first = Vec::new();
    for (path, body) in requests {
        first.push(server.call("POST", path, body.clone()).await.expect(201));
    }
    for days in [20, 20, 20] {
        server.advance(days * DAY).await;
    }
    server.until_forgotten().await;
    (server, first)
}

#[tokio::test]
async fn a_repeated_id_takes_effect_once_even_after_the_ledger_has_forgotten_it() {
    let requests = [
        ("/v1/charges", json!({ "id": "x", "account": "acme", "amount": "4" })),
        ("/v1/refunds", json!({ "id": "x", "charge": "x", "amount": "1.5" })),
        ("/v1/transfers", json!({ "id": "x", "from": "acme", "to": "acme:nlp", "amount": "2" })),
    ];
    let (server, first) = aged(&requests).await;
    let hold = json!({ "id": "x", "account": "acme", "amount": "3" });
    let placed = server.call("POST", "/v1/holds", hold.clone()).await.expect(201);
    server.call("POST", "/v1/holds/x/settle", json!({ "total": "1" })).await.expect(200);
    for days in [20, 20] {
        server.advance(days * DAY).await;
    }
    let before = server.get("/v1/accounts/acme/balance").await["spendable"].clone();

    for ((path, body), first) in requests.iter().zip(&first) {
        let again = server.call("POST", path, body.clone()).await.expect(200);
        for field in ["id", "charged", "refunded", "amount", "lots", "from", "to", "charge"] {
            assert_eq!(again[field], first[field], "{path} {field}: {again}");
        }
        let mut other = body.clone();
        other["amount"] = json!("0.5");
        server.call("POST", path, other).await.problem("already_exists");
    }
    let again = server.call("POST", "/v1/holds", hold).await.expect(200);
    assert_eq!((&again["lots"], &again["state"]), (&placed["lots"], &json!("settled")));
    let other = json!({ "id": "x", "account": "acme", "amount": "4" });
    server.call("POST", "/v1/holds", other).await.problem("already_exists");

    // In a batch too, also in an atomic one.
    let operation = json!({ "method": "POST", "path": "/v1/transfers", "body": requests[2].1 });
    let batch = json!({ "operations": [operation] });
    let results = server.call("POST", "/v1/batch", batch).await.expect(200)["results"].clone();
    assert_eq!(results[0]["status"], 200, "{results}");
    let atomic = json!({ "atomic": true, "operations": [operation] });
    let results = server.call("POST", "/v1/batch", atomic).await.expect(200)["results"].clone();
    assert_eq!(results[0]["status"], 200, "{results}");
    assert_eq!(server.get("/v1/accounts/acme/balance").await["spendable"], before);
}

#[tokio::test]
async fn another_tenant_may_use_the_same_old_id() {
    let charge = |account: &str| json!({ "id": "x", "account": account, "amount": "1" });
    let (server, _) = aged(&[("/v1/charges", charge("acme"))]).await;
    server.grant("g2", "umbra", "10").await;
    server.call("POST", "/v1/charges", charge("umbra")).await.expect(201);
    server.call("POST", "/v1/charges", charge("acme")).await.expect(200);
}

#[tokio::test]
async fn similar_names_in_one_record_are_distinguished() {
    let charge = json!({ "id": "c", "account": "acme", "amount": "9" });
    let refund = |id: &str, amount: &str| json!({ "id": id, "charge": "c", "amount": amount });
    let operation = |body: Value| json!({ "method": "POST", "path": "/v1/refunds", "body": body });
    let both = [operation(refund("y.2", "2")), operation(refund("y", "1"))];
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "100").await;
    server.call("POST", "/v1/charges", charge).await.expect(201);
    let batch = json!({ "atomic": true, "operations": both });
    server.call("POST", "/v1/batch", batch).await.expect(200);
    let both = [operation(refund("z", "1")), operation(refund("z.2", "2"))];
    let batch = json!({ "atomic": true, "operations": both });
    let made = server.call("POST", "/v1/batch", batch).await.expect(200);
    assert_eq!(made["results"][0]["body"]["lots"][0]["amount"], "1");
    assert_eq!(made["results"][0]["body"]["lots"].as_array().map(Vec::len), Some(1));
    for days in [20, 20, 20] {
        server.advance(days * DAY).await;
    }
    for (id, amount) in [("y", "1"), ("y.2", "2")] {
        let again = server.call("POST", "/v1/refunds", refund(id, amount)).await.expect(200);
        assert_eq!((&again["id"], &again["refunded"]), (&json!(id), &json!(amount)));
    }
}

#[tokio::test]
async fn a_repeated_collection_takes_effect_once_at_any_age() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "5").await;
    let settle = |id: &'static str, amount: &'static str| {
        let server = &server;
        async move {
            let place = json!({ "id": id, "account": "acme", "amount": amount });
            server.call("POST", "/v1/holds", place).await.expect(201);
            let path = format!("/v1/holds/{id}/settle");
            server.call("POST", &path, json!({ "total": "8" })).await.expect(200);
        }
    };
    settle("h1", "5").await;
    server.grant("g2", "acme", "10").await;
    let collect = async |id: &str| {
        server.call("POST", "/v1/accounts/acme/collect", json!({ "id": id })).await
    };
    let first = collect("c").await.expect(201);
    assert_eq!(first["collected"], "3");
    for days in [20, 20, 20] {
        server.advance(days * DAY).await;
    }
    // There is something to collect again: the repeat must leave it alone.
    settle("h2", "7").await;
    server.grant("g3", "acme", "10").await;
    let before = server.get("/v1/accounts/acme").await["uncollected"].clone();
    assert_eq!(before, "1");
    assert_eq!(collect("c").await.expect(200), first);
    assert_eq!(server.get("/v1/accounts/acme").await["uncollected"], before);
    collect("c2").await.expect(201);
}

#[tokio::test]
async fn requests_about_what_was_forgotten_write_nothing_unless_they_change_something() {
    let charge = json!({ "id": "x", "account": "acme", "amount": "4" });
    let hold = json!({ "id": "x", "account": "acme", "amount": "3" });
    let requests = [("/v1/charges", charge.clone()), ("/v1/holds", hold.clone())];
    let (server, first) = aged(&requests).await;
    let viewer = server.key("viewer", "acme").await;
    let foreign = server.key("admin", "umbra").await;
    let position = async || server.get("/v1/accounts/acme/balance").await["position"].clone();
    let before = position().await;
    let refund = json!({ "charge": "x" });
    let asked = async |key: &str, body: &Value| {
        server.send("POST", "/v1/refunds", body.clone(), key, &[]).await
    };
    asked(&viewer, &refund).await.problem("forbidden");
    asked(&foreign, &refund).await.problem("not_found");
    asked(&server.root, &json!({ "charge": "x", "amount": "5" })).await.problem("conflict");
    assert_eq!(server.call("POST", "/v1/charges", charge).await.expect(200), first[0]);
    let again = server.call("POST", "/v1/holds", hold).await.expect(200);
    assert_eq!((&again["state"], &again["lots"]), (&json!("lapsed"), &first[1]["lots"]));
    assert_eq!(position().await, before, "nothing was journaled");
    let made = asked(&server.root, &refund).await.expect(201);
    assert_eq!(made["refunded"], "4");
    assert_ne!(position().await, before);
}
