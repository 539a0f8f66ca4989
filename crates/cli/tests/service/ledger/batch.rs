//! Batches: in order, each alone or all or nothing.

use serde_json::{Value, json};

use crate::server::Server;

fn operation(path: &str, body: Value) -> Value {
    json!({ "method": "POST", "path": path, "body": body })
}

#[tokio::test]
async fn an_atomic_batch_happens_whole_in_one_record_or_not_at_all() {
    // With a window of its own: what leaves memory is a record too.
    let server = Server::configured("[ledger]\nclosed_memory = 100\n", &["--clock", "manual"]);
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
async fn operations_of_a_plain_batch_are_independent_and_keep_their_order() {
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
async fn an_operation_means_the_whole_id_in_its_path() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "10").await;
    server
        .call("POST", "/v1/holds", json!({ "id": "h", "account": "acme", "amount": "5" }))
        .await
        .expect(201);
    let paths = ["h=1", "h&x", "h+1", "h%3D1", "h%26x=", "%68"];
    let release = |id: &str| operation(&format!("/v1/holds/{id}/release"), json!({}));
    let body = json!({ "operations": paths.map(release) });
    let done = server.call("POST", "/v1/batch", body).await.expect(200);
    let results = done["results"].as_array().expect("a list");
    let statuses: Vec<u64> = results.iter().filter_map(|one| one["status"].as_u64()).collect();
    assert_eq!(statuses, [404, 404, 404, 404, 404, 200], "{done}");
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

#[tokio::test]
async fn a_failed_batch_keeps_its_answer_under_its_key() {
    let mut server = Server::start();
    server.tree().await;
    let root = server.root.clone();
    let charge = operation("/v1/charges", json!({ "account": "acme", "amount": "1" }));
    let own_key = json!({
        "method": "POST", "path": "/v1/charges", "idempotency_key": "own",
        "body": { "account": "acme", "amount": "1" }
    });
    let missing = operation("/v1/holds/none/settle", json!({ "total": "1" }));
    let batches = [
        ("b-1", json!([charge, charge]), "insufficient_credits"),
        ("b-2", json!([own_key]), "insufficient_credits"),
        ("b-3", json!([charge, missing]), "not_found"),
    ];
    let bare = |mut problem: Value| {
        problem["request_id"] = Value::Null;
        problem["results"].as_array_mut().expect("a list").iter_mut().for_each(|result| {
            if result["body"].is_object() {
                result["body"]["request_id"] = Value::Null;
            }
        });
        problem
    };
    let mut problems = Vec::new();
    for (key, operations, code) in &batches {
        let body = json!({ "atomic": true, "operations": operations });
        let header = [("Idempotency-Key", *key)];
        let first = server.send("POST", "/v1/batch", body, &root, &header).await;
        assert!(!first.is_replayed());
        let problem = first.problem("batch_aborted");
        let codes = problem["results"].as_array().expect("a list").iter();
        assert!(codes.filter_map(|one| one["body"]["code"].as_str()).eq([*code]), "{problem}");
        problems.push(bare(problem));
    }
    // The cause is removed; the first answers are still replayed, also after a crash.
    server.grant("g", "acme", "10").await;
    let hold = json!({ "id": "none", "account": "acme", "amount": "2" });
    server.call("POST", "/v1/holds", hold).await.expect(201);
    for crash in [false, true] {
        if crash {
            server.crash_and_restart(&["--clock", "manual"]);
        }
        for ((key, operations, _), first) in batches.iter().zip(&problems) {
            let body = json!({ "atomic": true, "operations": operations });
            let header = [("Idempotency-Key", *key)];
            let again = server.send("POST", "/v1/batch", body, &root, &header).await;
            assert!(again.is_replayed(), "{key}");
            assert_eq!(&bare(again.problem("batch_aborted")), first, "{key}");
        }
    }
    let other = json!({ "atomic": true, "operations": [charge] });
    let header = [("Idempotency-Key", "b-1")];
    let reused = server.send("POST", "/v1/batch", other, &root, &header).await;
    reused.problem("idempotency_key_reused");
    assert_eq!(server.get("/v1/grants/g").await["spent"], "0");
}

#[tokio::test]
async fn an_id_that_an_atomic_batch_repeats_is_created_once_and_found_once() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "10").await;
    let charge = json!({ "id": "c", "account": "acme", "amount": "1" });
    let hold = json!({ "id": "h", "account": "acme", "amount": "1" });
    let operations = json!([
        operation("/v1/charges", charge.clone()),
        operation("/v1/holds", hold.clone()),
        operation("/v1/charges", charge),
        operation("/v1/holds", hold),
    ]);
    let statuses = |body: &Value| -> Vec<Value> {
        let results = body["results"].as_array().expect("a list").iter();
        results.map(|result| result["status"].clone()).collect()
    };
    let body = json!({ "operations": operations, "atomic": true });
    for (keyed, expected) in [(true, [201, 201, 200, 200]), (false, [200; 4])] {
        let header = [("Idempotency-Key", "twice")];
        let headers = if keyed { &header[..] } else { &[] };
        for again in [false, true] {
            let answer =
                server.send("POST", "/v1/batch", body.clone(), &server.root, headers).await;
            assert_eq!(answer.is_replayed(), again && keyed);
            assert_eq!(statuses(&answer.expect(200)), expected, "keyed: {keyed}");
        }
    }
    assert_eq!(server.get("/v1/accounts/acme/balance").await["available"], "8");
}

/// The keys of a tenant share its idempotency keys, not their scopes.
#[tokio::test]
async fn the_kept_answer_of_a_batch_is_repeated_to_keys_that_could_have_got_it_alone() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme:nlp", "10").await;
    let charge =
        |account: &str| operation("/v1/charges", json!({ "account": account, "amount": "1" }));
    let (wide, other) =
        (server.key("submitter", "acme").await, server.key("submitter", "acme").await);
    let narrow = server.key("submitter", "acme:nlp").await;
    let fails = json!([charge("acme:nlp"), charge("acme:vision")]);
    let fits = json!([charge("acme:nlp"), charge("acme:nlp:x")]);
    let send = async |key: &str, name: &str, operations: &Value| {
        let body = json!({ "atomic": true, "operations": operations });
        server.send("POST", "/v1/batch", body, key, &[("Idempotency-Key", name)]).await
    };
    let status = |problem: &Value| problem["results"][1]["status"].clone();
    let first = send(&wide, "fails", &fails).await.problem("batch_aborted");
    assert_eq!(status(&first), 402);
    let denied = send(&narrow, "fails", &fails).await;
    assert!(!denied.is_replayed());
    let denied = denied.problem("batch_aborted");
    assert_eq!(status(&denied), 404, "{denied}");
    for key in [&wide, &other] {
        let again = send(key, "fails", &fails).await;
        assert!(again.is_replayed());
        assert_eq!(status(&again.problem("batch_aborted")), 402);
    }
    // One that was applied is repeated to keys for every account of it.
    send(&wide, "fits", &fits).await.expect(200);
    assert!(send(&narrow, "fits", &fits).await.is_replayed());
    let beyond = server.key("submitter", "acme:nlp:x").await;
    let denied = send(&beyond, "fits", &fits).await;
    assert!(!denied.is_replayed());
    assert_eq!(denied.problem("batch_aborted")["results"][0]["status"], 404);
}

/// A kept answer is a record of its own kind; what the journal has of it is verified when the server ends.
#[tokio::test]
async fn the_journal_of_a_keyed_atomic_batch_verifies_whether_it_happened_or_not() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "10").await;
    for (key, amount, status) in [("fits", "1", 200), ("does-not", "100", 409)] {
        let charge = json!({ "method": "POST", "path": "/v1/charges",
            "body": { "account": "acme", "amount": amount } });
        let body = json!({ "atomic": true, "operations": [charge] });
        for _ in 0..2 {
            let key = [("Idempotency-Key", key)];
            let answer = server.send("POST", "/v1/batch", body.clone(), &server.root, &key).await;
            answer.expect(status);
        }
    }
}

#[tokio::test]
async fn a_corrected_batch_is_run_again_under_another_key_or_none() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "10").await;
    let root = server.root.clone();
    let charge = |id: &str, amount: &str| {
        operation("/v1/charges", json!({ "id": id, "account": "acme", "amount": amount }))
    };
    let batch = |second: Value| {
        let hold = json!({ "id": "h", "account": "acme", "amount": "1" });
        json!({ "operations": [charge("c1", "1"), second, operation("/v1/holds", hold)] })
    };
    let run = async |body: Value, key: Option<&str>| {
        let headers: Vec<(&str, &str)> =
            key.map(|key| ("Idempotency-Key", key)).into_iter().collect();
        server.send("POST", "/v1/batch", body, &root, &headers).await
    };
    let statuses = |body: &Value| -> Vec<u64> {
        let results = body["results"].as_array().expect("a list");
        results.iter().filter_map(|one| one["status"].as_u64()).collect()
    };
    let wrong = run(batch(charge("c2", "x")), Some("b-1")).await.expect(200);
    assert_eq!(statuses(&wrong), [201, 422, 201]);
    let right = batch(charge("c2", "2"));
    // Under the same key it is another batch, and nothing of it happens.
    run(right.clone(), Some("b-1")).await.problem("idempotency_key_reused");
    server.call("GET", "/v1/charges/c2", Value::Null).await.problem("not_found");
    let corrected = run(right.clone(), Some("b-2")).await.expect(200);
    assert_eq!(statuses(&corrected), [200, 201, 200]);
    assert_eq!(corrected["results"][0]["body"], wrong["results"][0]["body"]);
    for key in [Some("b-3"), None] {
        let again = run(right.clone(), key).await.expect(200);
        assert_eq!(statuses(&again), [200, 200, 200], "{key:?}");
        assert_eq!(again["results"][1]["body"], corrected["results"][1]["body"]);
    }
    // The id alone, and the same with another body.
    let alone = json!({ "id": "c1", "account": "acme", "amount": "1" });
    server.call("POST", "/v1/charges", alone).await.expect(200);
    let changed = run(batch(charge("c2", "3")), Some("b-4")).await.expect(200);
    assert_eq!(statuses(&changed), [200, 409, 200]);
    let repeated = run(right.clone(), Some("b-2")).await;
    assert!(repeated.is_replayed());
    assert_eq!(repeated.expect(200), corrected);
    assert_eq!(server.get("/v1/accounts/acme/balance").await["available"], "6");
}

#[tokio::test]
async fn two_operations_of_one_batch_with_one_id_and_other_bodies_are_not_the_same() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "10").await;
    let root = server.root.clone();
    let charge = |amount: &str| {
        operation("/v1/charges", json!({ "id": "c", "account": "acme", "amount": amount }))
    };
    let body = json!({ "operations": [charge("1"), charge("2"), charge("1")] });
    let key = [("Idempotency-Key", "b")];
    let done = server.send("POST", "/v1/batch", body, &root, &key).await.expect(200);
    let results = done["results"].as_array().expect("a list");
    let statuses: Vec<u64> = results.iter().filter_map(|one| one["status"].as_u64()).collect();
    assert_eq!(statuses, [201, 409, 200], "{done}");
}

#[tokio::test]
async fn the_key_of_a_batch_is_used_up_for_every_other_request() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "10").await;
    let root = server.root.clone();
    let charge = json!({ "account": "acme", "amount": "1" });
    let batch = json!({ "operations": [operation("/v1/charges", charge.clone())] });
    let ask = async |path: &str, body: &Value, key: &str| {
        server.send("POST", path, body.clone(), &root, &[("Idempotency-Key", key)]).await
    };
    ask("/v1/batch", &batch, "b").await.expect(200);
    ask("/v1/charges", &charge, "b").await.problem("idempotency_key_reused");
    ask("/v1/charges", &charge, "c").await.expect(201);
    ask("/v1/batch", &batch, "c").await.problem("idempotency_key_reused");
    assert_eq!(server.get("/v1/accounts/acme/balance").await["available"], "8");
}

#[tokio::test]
async fn a_batch_contains_the_operations_that_the_description_says() {
    let server = Server::start();
    let described = server.get("/openapi.json").await;
    let mut parts = 0;
    for (route, methods) in described["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let path = route.replace("{id}", "x").replace("{name}", "x").replace("{gpu_type}", "x");
            let item = json!({ "method": method.to_uppercase(), "path": path, "body": {} });
            let batch = json!({ "operations": [item] });
            let done = server.call("POST", "/v1/batch", batch).await.expect(200);
            let refused = done["results"][0]["body"]["param"] == "path";
            let part = operation["x-batch"].as_bool().expect("each operation says it");
            assert_eq!(part, !refused, "{method} {route}: {}", done["results"][0]["body"]);
            parts += usize::from(part);
        }
    }
    assert!(parts > 15, "{parts}");
}

#[tokio::test]
async fn a_budget_is_replaced_in_one_step_and_counts_what_was_spent_and_held() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "100").await;
    let budget = |limit: &str| json!({ "limit": limit, "period": "month", "mode": "hard" });
    let path = "/v1/accounts/acme/budgets/month";
    server.call("PUT", path, budget("20")).await.expect(200);
    let spend = |id: &str, amount: &str| {
        operation("/v1/charges", json!({ "id": id, "account": "acme", "amount": amount }))
    };
    server.call("POST", "/v1/batch", json!({ "operations": [spend("c1", "8")] })).await.expect(200);
    let hold = json!({ "id": "h", "account": "acme", "amount": "4" });
    server.call("POST", "/v1/holds", hold).await.expect(201);
    let replace = |then: Value| {
        json!({ "atomic": true, "operations": [
            { "method": "DELETE", "path": path },
            { "method": "PUT", "path": path, "body": budget("15") },
            then,
        ]})
    };
    // The new budget already counts the charge and the hold: 3 are left.
    let failed = server.call("POST", "/v1/batch", replace(spend("c2", "4"))).await;
    let problem = failed.problem("batch_aborted");
    assert_eq!(problem["results"][2]["body"]["code"], "budget_exceeded");
    let kept = server.get(path).await;
    assert_eq!(kept["limit"], "20", "nothing of the batch took effect: {kept}");
    server.call("POST", "/v1/batch", replace(spend("c2", "3"))).await.expect(200);
    let replaced = server.get(path).await;
    assert_eq!(replaced["limit"], "15", "{replaced}");
    let more = json!({ "account": "acme", "amount": "0.000001" });
    server.call("POST", "/v1/charges", more).await.problem("budget_exceeded");
}

#[tokio::test]
async fn a_path_in_a_batch_is_matched_as_it_is_written() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "10").await;
    let hold = json!({ "id": "a-b", "account": "acme", "amount": "1" });
    server.call("POST", "/v1/holds", hold).await.expect(201);
    let batch = json!({ "operations": [
        operation("/v1/holds/a%2Db/release", json!({})),
        operation("/v1/%68olds", json!({ "account": "acme", "amount": "1" })),
        operation("/v1/%6Aobs", json!({})),
        operation("/v1/holds/a-b/release?x=1", json!({})),
        operation("/v1/holds/a-b/release/", json!({})),
    ]});
    let done = server.call("POST", "/v1/batch", batch).await.expect(200);
    let results = done["results"].as_array().expect("a list");
    let statuses: Vec<&Value> = results.iter().map(|one| &one["status"]).collect();
    assert_eq!(statuses, [200, 422, 422, 422, 422], "{done}");
    for refused in &results[1..] {
        assert_eq!(refused["body"]["param"], "path", "{refused}");
    }
}
