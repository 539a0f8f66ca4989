//! Keys: what they show, what they may do, and their end.

use serde_json::{Value, json};

use crate::server::Server;

#[tokio::test]
async fn a_key_is_shown_once_works_in_its_scope_and_ends_at_once() {
    let mut server = Server::start();
    server.tree().await;
    let body = json!({ "id": "mine", "role": "viewer", "scope": "acme:nlp", "name": "ci" });
    let made = server.call("POST", "/v1/keys", body.clone()).await.expect(201);
    let key = made["key"].as_str().expect("shown once").to_owned();
    let again = server.call("POST", "/v1/keys", body).await.expect(200);
    assert_eq!(again["key"], Value::Null);
    let listed = server.get("/v1/keys").await;
    assert_eq!(listed["data"][0]["id"], "mine");
    assert_eq!(listed["data"][0]["key"], Value::Null);
    for restarted in [false, true] {
        if restarted {
            server.crash_and_restart(&["--clock", "manual"]);
        }
        let path = "/v1/accounts/acme:nlp/balance";
        server.send("GET", path, Value::Null, &key, &[]).await.expect(200);
    }
    server.call("DELETE", "/v1/keys/mine", Value::Null).await.expect(204);
    let path = "/v1/accounts/acme:nlp/balance";
    server.send("GET", path, Value::Null, &key, &[]).await.problem("unauthenticated");
    server.call("DELETE", "/v1/keys/mine", Value::Null).await.problem("not_found");
    let secret = key.rsplit('_').next().expect("the secret");
    for file in std::fs::read_dir(server.data()).expect("the folder") {
        let path = file.expect("an entry").path();
        if path.is_file() {
            let bytes = std::fs::read(&path).expect("readable");
            let found = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
            assert!(!found, "the secret is stored in {}", path.display());
        }
    }
}

#[tokio::test]
async fn nobody_makes_a_key_that_is_wider_than_their_own() {
    let server = Server::start();
    server.tree().await;
    let admin = server.key("admin", "acme:nlp").await;
    let make = async |scope: &str| {
        let body = json!({ "role": "viewer", "scope": scope, "name": "n" });
        server.send("POST", "/v1/keys", body, &admin, &[]).await
    };
    make("acme:nlp:x").await.expect(201);
    make("acme").await.problem("not_found");
    make("umbra").await.problem("not_found");
    make("*").await.problem("forbidden");
    let seen = server.send("GET", "/v1/keys", Value::Null, &admin, &[]).await.expect(200);
    let scopes: Vec<&Value> =
        seen["data"].as_array().expect("a list").iter().map(|key| &key["scope"]).collect();
    assert_eq!(scopes, [&json!("acme:nlp:x"), &json!("acme:nlp")]);
    let viewer = server.key("viewer", "acme").await;
    let body = json!({ "role": "viewer", "scope": "acme", "name": "n" });
    server.send("POST", "/v1/keys", body, &viewer, &[]).await.problem("forbidden");
}

#[tokio::test]
async fn a_key_works_through_its_last_instant() {
    let server = Server::start();
    server.tree().await;
    let body = json!({
        "role": "viewer", "scope": "acme", "name": "n", "expires_at": "2020-01-01T00:00:10Z"
    });
    let made = server.call("POST", "/v1/keys", body).await.expect(201);
    let key = made["key"].as_str().expect("shown once");
    server.advance(10).await;
    server.send("GET", "/v1/accounts/acme", Value::Null, key, &[]).await.expect(200);
    server.advance(1).await;
    server.send("GET", "/v1/accounts/acme", Value::Null, key, &[]).await.problem("unauthenticated");
}

#[tokio::test]
async fn nobody_makes_a_key_that_outlives_their_own() {
    let server = Server::start();
    server.tree().await;
    let admin = json!({
        "role": "admin", "scope": "acme", "name": "n", "expires_at": "2020-01-02T00:00:00Z"
    });
    let admin = server.call("POST", "/v1/keys", admin).await.expect(201)["key"].clone();
    let admin = admin.as_str().expect("shown once");
    let make = async |end: Value| {
        let body = json!({ "role": "viewer", "scope": "acme", "name": "n", "expires_at": end });
        server.send("POST", "/v1/keys", body, admin, &[]).await
    };
    for end in [Value::Null, json!("2020-01-02T00:00:00.001Z")] {
        let refused = make(end).await.problem("forbidden");
        let detail = refused["detail"].as_str().expect("text");
        assert!(detail.contains("2020-01-02T00:00:00.000Z"), "{detail}");
    }
    make(json!("2020-01-02T00:00:00Z")).await.expect(201);
    make(json!("2020-01-01T12:00:00Z")).await.expect(201);
}
