//! Every problem code that a client can meet, from outside.

use serde_json::{Value, json};

use crate::server::{Server, read};

#[tokio::test]
async fn bodies_are_read_strictly() {
    let server = Server::start();
    server.tree().await;
    let raw = async |body: &str, kind: &str| {
        let request = server
            .client
            .post(format!("{}/v1/holds", server.url))
            .bearer_auth(&server.root)
            .header("content-type", kind)
            .body(body.to_owned());
        read(request.send().await.expect("the server is there")).await
    };
    let json_kind = "application/json; charset=utf-8";
    for body in ["{", "{\"account\": \"acme\", \"account\": \"acme\"}", "nonsense", "{}{}"] {
        raw(body, json_kind).await.problem("malformed_json");
    }
    raw("{}", "text/plain").await.problem("unsupported_media_type");
    // What the body is must be clear: one type, which may be absent, and no encoding.
    for (headers, is_read) in [
        (&[][..], true),
        (&[("content-encoding", "identity")], true),
        (&[("content-encoding", "gzip")], false),
        (&[("content-type", "application/json"), ("content-type", "text/plain")], false),
    ] {
        let body = r#"{"account": "acme", "amount": "0"}"#;
        let mut request = server.client.post(format!("{}/v1/holds", server.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let sent = request.bearer_auth(&server.root).body(body).send().await;
        let code = if is_read { "invalid_field" } else { "unsupported_media_type" };
        read(sent.expect("the server is there")).await.problem(code);
    }
    for (body, param) in [
        ("{}", "account"),
        ("[]", "body"),
        (r#"{"account": "acme", "amount": 1.5}"#, "amount"),
        (r#"{"account": "acme", "amount": "1.0000001"}"#, "amount"),
        (r#"{"account": "acme", "amount": "-1"}"#, "amount"),
        (r#"{"account": "acme", "amount": "0"}"#, "amount"),
        (r#"{"account": "acme", "amount": "9223372036854.775808"}"#, "amount"),
        (r#"{"account": "acme", "amount": "1", "colour": 1}"#, "colour"),
        (r#"{"account": "acme", "amount": "1", "ttl_seconds": 0}"#, "ttl_seconds"),
        (r#"{"account": "acme", "amount": "1", "ttl_seconds": 315360001}"#, "ttl_seconds"),
        (r#"{"account": "acme", "amount": "1", "id": "a b"}"#, "id"),
        (r#"{"account": "Acme", "amount": "1"}"#, "account"),
        (r#"{"account": "acme", "amount": "1", "context": {"x": 1}}"#, "context.x"),
    ] {
        let problem = raw(body, json_kind).await.problem("invalid_field");
        assert_eq!(problem["param"], param, "{body}");
    }
    let large = format!("{{\"account\": \"{}\"}}", "a".repeat(5 << 20));
    raw(&large, json_kind).await.problem("body_too_large");
    let huge = "x".repeat(20 << 20);
    raw(&huge, json_kind).await.problem("body_too_large");
}

#[tokio::test]
async fn accounts_follow_the_rules_of_the_tree() {
    let server = Server::start();
    server.open("acme", "org").await;
    for (body, param) in [
        (json!({ "id": "acme:x:y", "kind": "team" }), "id"),
        (json!({ "id": "acme:x", "kind": "org" }), "kind"),
        (json!({ "id": "a::b", "kind": "team" }), "id"),
        (json!({ "id": "b", "kind": "galaxy" }), "kind"),
        (json!({ "id": "b", "kind": "org", "weight": "0" }), "weight"),
    ] {
        let problem = server.call("POST", "/v1/accounts", body).await.problem("invalid_field");
        assert_eq!(problem["param"], param);
    }
    let other = json!({ "id": "acme", "kind": "org", "name": "Other" });
    server.call("POST", "/v1/accounts", other).await.problem("already_exists");
    let changed = server
        .call("PATCH", "/v1/accounts/acme", json!({ "name": "Acme", "weight": "2.5" }))
        .await
        .expect(200);
    assert_eq!((&changed["name"], &changed["weight"]), (&json!("Acme"), &json!("2.5")));
}

#[tokio::test]
async fn states_that_forbid_a_change_have_different_codes() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "10").await;
    let place = json!({ "id": "h", "account": "acme:nlp", "amount": "5" });
    server.call("POST", "/v1/holds", place.clone()).await.expect(201);
    let capture = |total: &str, seq: u64| json!({ "total": total, "seq": seq });
    server.call("POST", "/v1/holds/h/capture", capture("3", 1)).await.expect(200);
    server.call("POST", "/v1/holds/h/capture", capture("3", 1)).await.expect(200);
    server.call("POST", "/v1/holds/h/capture", capture("4", 1)).await.problem("sequence_conflict");
    server.call("POST", "/v1/holds/h/settle", json!({ "total": "2" })).await.problem("conflict");
    server.call("POST", "/v1/refunds", json!({ "hold": "h" })).await.problem("conflict");
    let frozen = server.call("POST", "/v1/accounts/acme/freeze", json!({})).await.expect(200);
    assert_eq!(frozen["frozen"], true);
    let blocked = json!({ "account": "acme:nlp", "amount": "1" });
    let problem = server.call("POST", "/v1/holds", blocked).await.problem("account_frozen");
    assert_eq!(problem["blockers"][0]["type"], "frozen");
    assert_eq!(problem["blockers"][0]["account"], "acme");
    server.call("POST", "/v1/holds/h/settle", json!({ "total": "4" })).await.expect(200);
    server.call("POST", "/v1/holds/h/settle", json!({ "total": "4" })).await.expect(200);
    server.call("POST", "/v1/holds/h/settle", json!({ "total": "5" })).await.problem("hold_closed");
    server.call("POST", "/v1/accounts/acme/unfreeze", json!({})).await.expect(200);
    server.call("POST", "/v1/holds", place).await.expect(200);
}

#[tokio::test]
async fn usage_is_taken_late_but_not_too_late() {
    let server = Server::start();
    server.tree().await;
    let grant = json!({
        "account": "acme", "amount": "10", "kind": "grant", "expires_at": "2020-01-01T01:00:00Z"
    });
    server.call("POST", "/v1/grants", grant).await.expect(201);
    server.advance(2 * 86_400).await;
    let late = json!({ "account": "acme", "amount": "1", "effective_at": "2020-01-01T00:30:00Z" });
    let charge = server.call("POST", "/v1/charges", late.clone()).await.expect(201);
    assert_eq!(charge["effective_at"], "2020-01-01T00:30:00.000Z");
    server.advance(2 * 86_400).await;
    server.call("POST", "/v1/charges", late).await.problem("too_late");
    let future =
        json!({ "account": "acme", "amount": "1", "effective_at": "2021-01-01T00:00:00Z" });
    server.call("POST", "/v1/charges", future).await.problem("invalid_field");
}

#[tokio::test]
async fn paths_methods_and_headers_that_are_not_there_are_problems_too() {
    let server = Server::start();
    server.call("GET", "/nothing", Value::Null).await.problem("not_found");
    server.call("DELETE", "/v1/holds", Value::Null).await.problem("method_not_allowed");
    let root = server.root.clone();
    let long = "k".repeat(256);
    for key in ["", "a b", long.as_str()] {
        let body = json!({ "id": "acme", "kind": "org" });
        let header = [("Idempotency-Key", key)];
        let answer = server.send("POST", "/v1/accounts", body, &root, &header).await;
        assert_eq!(answer.problem("invalid_field")["param"], "Idempotency-Key");
    }
    for path in ["/v1/accounts/none", "/v1/grants/none", "/v1/holds/none", "/v1/charges/none"] {
        server.call("GET", path, Value::Null).await.problem("not_found");
    }
    let refund = json!({ "charge": "none" });
    server.call("POST", "/v1/refunds", refund).await.problem("not_found");
    server.call("POST", "/v1/refunds", json!({})).await.problem("invalid_field");
}

#[tokio::test]
async fn a_rate_limited_key_gets_a_retry_after() {
    let server = Server::configured("[limits]\nper_key = 5\nper_tenant = 8\n", &[]);
    server.tree().await;
    let key = server.key("viewer", "acme").await;
    let mut refused = None;
    for _ in 0..200 {
        let answer = server.send("GET", "/v1/accounts/acme", Value::Null, &key, &[]).await;
        if answer.status == 429 {
            refused = Some(answer);
            break;
        }
        assert!(answer.headers.contains_key("ratelimit"));
        assert!(answer.headers.contains_key("ratelimit-policy"));
    }
    refused.expect("two hundred at once are too many").problem("rate_limited");
    for _ in 0..50 {
        server.call("GET", "/v1/accounts/acme", Value::Null).await.expect(200);
    }
}

#[tokio::test]
async fn whole_numbers_in_metadata_are_kept_exactly_or_refused() {
    let server = Server::start();
    server.open("acme", "org").await;
    let path = "/v1/accounts/acme";
    for number in
        ["18446744073709551616", "-9223372036854775809", "340282366920938463463374607431768211455"]
    {
        let body = format!("{{\"metadata\":{{\"a\":[1,{{\"n\":{number}}}]}}}}");
        let body: Value = serde_json::from_str(&body).expect("JSON");
        let refused = server.call("PATCH", path, body).await.problem("invalid_field");
        assert_eq!(refused["param"], "metadata.a[1].n", "{refused}");
    }
    let exact = json!({ "most": u64::MAX, "least": i64::MIN, "float": 1.5, "text": "18446744073709551616" });
    server.call("PATCH", path, json!({ "metadata": exact })).await.expect(200);
    assert_eq!(server.get(path).await["metadata"], exact);
}

#[tokio::test]
async fn null_removes_a_setting_of_an_account() {
    let server = Server::start();
    server.tree().await;
    let set = json!({
        "name": "Acme", "weight": "2.5", "metadata": { "cost_center": "7" },
        "compensation_ttl_seconds": 60, "overdraft_limit": "5"
    });
    server.call("PATCH", "/v1/accounts/acme", set).await.expect(200);
    let cleared = json!({ "overdraft_limit": null, "metadata": null });
    let answer = server.call("PATCH", "/v1/accounts/acme", cleared).await.expect(200);
    let read = server.get("/v1/accounts/acme").await;
    for account in [&answer, &read] {
        assert_eq!(account["overdraft_limit"], json!(null));
        assert_eq!(account["metadata"], json!(null));
        assert_eq!((&account["name"], &account["weight"]), (&json!("Acme"), &json!("2.5")));
        assert_eq!(account["compensation_ttl_seconds"], 60);
    }
    let rest = json!({ "name": null, "weight": null, "compensation_ttl_seconds": null });
    let answer = server.call("PATCH", "/v1/accounts/acme", rest).await.expect(200);
    assert_eq!((&answer["name"], &answer["weight"]), (&json!(null), &json!("1")));
    assert_eq!(answer["compensation_ttl_seconds"], json!(null));
}
