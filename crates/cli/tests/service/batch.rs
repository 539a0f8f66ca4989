//! Batches: in order, each alone or all or nothing.

use serde_json::{Value, json};

use crate::server::Server;

fn operation(path: &str, body: Value) -> Value {
    json!({ "method": "POST", "path": path, "body": body })
}

#[tokio::test]
async fn an_atomic_batch_happens_whole_in_one_record_or_not_at_all() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "10").await;
    let charge =
        |amount: &str| operation("/v1/charges", json!({ "account": "acme", "amount": amount }));
    let before = server.get("/v1/accounts/acme/balance").await["position"].as_u64();
    let batch = json!({ "atomic": true, "operations": [
        operation("/v1/holds", json!({ "id": "h", "account": "acme", "amount": "2" })),
        operation("/v1/holds/h/settle", json!({ "total": "1" })),
        charge("3"),
    ]});
    let done = server.call("POST", "/v1/batch", batch).await.expect(200);
    let statuses: Vec<&Value> =
        done["results"].as_array().expect("a list").iter().map(|one| &one["status"]).collect();
    assert_eq!(statuses, [&json!(201), &json!(200), &json!(201)]);
    let balance = server.get("/v1/accounts/acme/balance").await;
    assert_eq!(balance["available"], "6");
    assert_eq!(balance["position"].as_u64(), before.map(|before| before + 1), "one record");

    let failing =
        json!({ "atomic": true, "operations": [charge("1"), charge("100"), charge("1")] });
    let problem = server.call("POST", "/v1/batch", failing).await.problem("batch_aborted");
    let statuses: Vec<&Value> =
        problem["results"].as_array().expect("a list").iter().map(|one| &one["status"]).collect();
    assert_eq!(statuses, [&json!(424), &json!(402), &json!(424)]);
    assert_eq!(problem["results"][1]["body"]["code"], "insufficient_credits");
    assert_eq!(server.get("/v1/accounts/acme/balance").await["available"], "6");
    let two_tenants = json!({ "atomic": true, "operations": [
        charge("1"), operation("/v1/charges", json!({ "account": "umbra", "amount": "1" })),
    ]});
    server.call("POST", "/v1/batch", two_tenants).await.problem("invalid_field");
}

#[tokio::test]
async fn operations_of_a_plain_batch_stand_on_their_own_and_keep_their_order() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "10").await;
    let mut operations = vec![
        operation("/v1/holds", json!({ "id": "h", "account": "acme", "amount": "5" })),
        operation("/v1/charges", json!({ "account": "acme", "amount": "6" })),
        operation("/v1/holds/h/release", json!({})),
        operation("/v1/charges", json!({ "account": "acme", "amount": "6" })),
        json!({ "method": "GET", "path": "/v1/accounts" }),
    ];
    operations.extend(
        (0..200).map(|_| operation("/v1/charges", json!({ "account": "acme", "amount": "0.01" }))),
    );
    let body = json!({ "operations": operations });
    let done = server.call("POST", "/v1/batch", body.clone()).await.expect(200);
    let results = done["results"].as_array().expect("a list");
    let statuses: Vec<u64> = results.iter().filter_map(|one| one["status"].as_u64()).collect();
    assert_eq!(statuses[..5], [201, 402, 200, 201, 422]);
    assert!(statuses[5..].iter().all(|status| *status == 201));
    assert_eq!(server.get("/v1/accounts/acme/balance").await["available"], "2");
}

#[tokio::test]
async fn a_batch_under_one_key_has_one_effect() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "10").await;
    let root = server.root.clone();
    for atomic in [true, false] {
        let key = [("Idempotency-Key", if atomic { "b-1" } else { "b-2" })];
        let charge = operation("/v1/charges", json!({ "account": "acme", "amount": "1" }));
        let body = json!({ "atomic": atomic, "operations": [charge.clone(), charge.clone()] });
        let first = server.send("POST", "/v1/batch", body.clone(), &root, &key).await;
        assert!(!first.is_replayed());
        let again = server.send("POST", "/v1/batch", body, &root, &key).await;
        assert!(again.is_replayed());
        assert_eq!(again.expect(200), first.expect(200));
        let other = json!({ "atomic": atomic, "operations": [charge] });
        server
            .send("POST", "/v1/batch", other, &root, &key)
            .await
            .problem("idempotency_key_reused");
    }
    assert_eq!(server.get("/v1/accounts/acme/balance").await["available"], "6");
}
