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
async fn no_key_creates_a_key_with_a_wider_scope() {
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
    let next = json!({ "now": "2020-01-01T00:00:10.001Z" });
    server.call("POST", "/v1/clock", next).await.expect(200);
    server.send("GET", "/v1/accounts/acme", Value::Null, key, &[]).await.problem("unauthenticated");
}

#[tokio::test]
async fn a_key_revoked_within_a_millisecond_of_its_creation_is_invalid() {
    // The manual clock stands still: all of it happens at one instant.
    let mut server = Server::start();
    server.tree().await;
    let look = async |server: &Server, key: &str| {
        server.send("GET", "/v1/accounts/acme", Value::Null, key, &[]).await.status
    };
    let mut ended = Vec::new();
    for round in 0..3 {
        let body = json!({ "id": format!("k{round}"), "role": "viewer", "scope": "acme",
            "name": "n", "expires_at": "2020-01-01T00:00:00Z" });
        let made = server.call("POST", "/v1/keys", body.clone()).await.expect(201);
        let key = made["key"].as_str().expect("shown once").to_owned();
        assert_eq!(look(&server, &key).await, 200, "through its last instant");
        let path = format!("/v1/keys/k{round}");
        server.call("DELETE", &path, Value::Null).await.expect(204);
        assert_eq!(look(&server, &key).await, 401);
        server.call("POST", "/v1/keys", body).await.problem("already_exists");
        ended.push(key);
    }
    server.crash_and_restart(&["--clock", "manual"]);
    for key in &ended {
        assert_eq!(look(&server, key).await, 401);
    }
}

#[tokio::test]
async fn no_key_creates_a_key_that_outlives_it() {
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

#[tokio::test]
async fn ids_and_idempotency_keys_of_keys_belong_to_their_tenant() {
    let mut server = Server::start();
    server.tree().await;
    let root = server.root.clone();
    let tenants = ["acme", "umbra"];
    let mut admins = Vec::new();
    for tenant in tenants {
        admins.push(server.key("admin", tenant).await);
    }
    let header = [("Idempotency-Key", "same")];
    let mut secrets = Vec::new();
    for (tenant, admin) in tenants.iter().zip(&admins) {
        let body = json!({ "id": "my-key", "role": "viewer", "scope": tenant, "name": "n" });
        let made = server.send("POST", "/v1/keys", body.clone(), admin, &header).await;
        assert!(!made.is_replayed());
        let made = made.expect(201);
        secrets.push(made["key"].as_str().expect("shown once").to_owned());
        assert!(server.send("POST", "/v1/keys", body, admin, &header).await.is_replayed());
        let other = json!({ "id": "my-key", "role": "admin", "scope": tenant, "name": "n" });
        server.send("POST", "/v1/keys", other, admin, &[]).await.problem("already_exists");
    }
    // Each secret stands for the key of its own tenant, after a restart too.
    for restarted in [false, true] {
        if restarted {
            server.crash_and_restart(&["--clock", "manual"]);
        }
        for (place, secret) in secrets.iter().enumerate() {
            let own = format!("/v1/accounts/{}", tenants[place]);
            let foreign = format!("/v1/accounts/{}", tenants[1 - place]);
            server.send("GET", &own, Value::Null, secret, &[]).await.expect(200);
            server.send("GET", &foreign, Value::Null, secret, &[]).await.problem("not_found");
        }
    }
    // A caller that sees both must name the tenant, and finds both on pages of one.
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = server.get(&format!("/v1/keys?limit=1{cursor}")).await;
        seen.push((page["data"][0]["id"].clone(), page["data"][0]["scope"].clone()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let mine: Vec<&Value> =
        seen.iter().filter(|(id, _)| id == "my-key").map(|(_, scope)| scope).collect();
    assert_eq!((seen.len(), mine.len()), (4, 2), "{seen:?}");
    let path = "/v1/keys/my-key";
    server.call("DELETE", path, Value::Null).await.problem("ambiguous_id");
    // One of the platform has no tenant to name.
    let body = json!({ "id": "my-key", "role": "viewer", "scope": "*", "name": "n" });
    let platform = server.call("POST", "/v1/keys", body).await.expect(201)["key"].clone();
    server.call("DELETE", path, Value::Null).await.expect(204);
    let platform = platform.as_str().expect("shown once");
    server.send("GET", "/v1/accounts", Value::Null, platform, &[]).await.problem("unauthenticated");
    server.call("DELETE", path, Value::Null).await.problem("ambiguous_id");
    let gone = [("Idempotency-Key", "gone")];
    server.send("DELETE", path, Value::Null, &admins[0], &gone).await.expect(204);
    let look = |secret: &str| {
        let (server, secret) = (&server, secret.to_owned());
        async move { server.send("GET", "/v1/accounts", Value::Null, &secret, &[]).await.status }
    };
    assert_eq!((look(&secrets[0]).await, look(&secrets[1]).await), (401, 200));
    // A repeat does not reach for the other one, and what a tenant has asked for is no answer to a
    // request that could mean the other one.
    let of_acme = [("Idempotency-Key", "gone"), ("Bursar-Tenant", "acme")];
    for (admin, headers) in [(&admins[0], &gone[..]), (&root, &of_acme[..])] {
        let again = server.send("DELETE", path, Value::Null, admin, headers).await;
        assert!(again.is_replayed());
        again.expect(204);
    }
    server.send("DELETE", path, Value::Null, &root, &gone).await.problem("ambiguous_id");
    assert_eq!(look(&secrets[1]).await, 200);
    server.send("DELETE", path, Value::Null, &admins[0], &[]).await.problem("not_found");
    let foreign = [("Bursar-Tenant", "acme")];
    server.send("DELETE", path, Value::Null, &root, &foreign).await.problem("not_found");
    // Said whose it is, the key that a tenant has used ends that one.
    let of_umbra = [("Idempotency-Key", "gone"), ("Bursar-Tenant", "umbra")];
    let ended = server.send("DELETE", path, Value::Null, &root, &of_umbra).await;
    assert!(!ended.is_replayed(), "acme's deletion is not umbra's");
    ended.expect(204);
    assert_eq!(look(&secrets[1]).await, 401);
    // With none left the platform's own request is known again, also when a new one is there.
    assert!(server.send("DELETE", path, Value::Null, &root, &gone).await.is_replayed());
    let body = json!({ "id": "my-key", "role": "viewer", "scope": "zeta", "name": "n" });
    server.open("zeta", "org").await;
    let other = server.call("POST", "/v1/keys", body).await.expect(201)["key"].clone();
    assert!(server.send("DELETE", path, Value::Null, &root, &gone).await.is_replayed());
    assert_eq!(look(other.as_str().expect("shown once")).await, 200);
    server.call("DELETE", path, Value::Null).await.expect(204);
}

/// The keys of a tenant share its idempotency keys, not their scopes.
#[tokio::test]
async fn the_answer_to_a_revocation_is_repeated_to_keys_that_may_revoke_alone() {
    let server = Server::start();
    server.tree().await;
    let (wide, other) = (server.key("admin", "acme").await, server.key("admin", "acme").await);
    let narrow = server.key("admin", "acme:nlp").await;
    let body = json!({ "id": "old", "role": "viewer", "scope": "acme:vision", "name": "n" });
    server.send("POST", "/v1/keys", body, &wide, &[]).await.expect(201);
    let ended = async |key: &str| {
        let header = [("Idempotency-Key", "end")];
        server.send("DELETE", "/v1/keys/old", Value::Null, key, &header).await
    };
    ended(&wide).await.expect(204);
    ended(&narrow).await.problem("not_found");
    for key in [&wide, &other] {
        let again = ended(key).await;
        assert!(again.is_replayed());
        again.expect(204);
    }
}

#[tokio::test]
async fn the_capability_to_issue_is_given_by_the_platform_alone_and_is_shown() {
    let mut server = Server::start();
    server.tree().await;
    let issuer = server.issuer("admin", "acme").await;
    // Never inherited: a key with the capability cannot grant it.
    let more = json!({ "role": "admin", "scope": "acme", "name": "n", "capabilities": ["issue"] });
    let refused = server.send("POST", "/v1/keys", more, &issuer, &[]).await.problem("forbidden");
    assert!(refused["detail"].as_str().expect("text").contains("\"*\""), "{refused}");
    let plain = json!({ "role": "admin", "scope": "acme", "name": "n" });
    let plain = server.send("POST", "/v1/keys", plain, &issuer, &[]).await.expect(201);
    assert_eq!(plain["capabilities"], json!([]));
    let grant = json!({ "account": "acme", "amount": "1", "kind": "grant" });
    let plain = plain["key"].as_str().expect("shown once");
    server.send("POST", "/v1/grants", grant.clone(), plain, &[]).await.problem("forbidden");
    let unknown = json!({ "role": "admin", "scope": "acme", "name": "n", "capabilities": ["x"] });
    server.call("POST", "/v1/keys", unknown).await.problem("invalid_field");

    server.crash_and_restart(&["--clock", "manual"]);
    let seen = server.get("/v1/keys").await;
    let shown = |key: &Value| key["capabilities"].clone();
    let shown: Vec<Value> = seen["data"].as_array().expect("a list").iter().map(shown).collect();
    assert_eq!(shown, [json!([]), json!(["issue"])]);
    server.send("POST", "/v1/grants", grant.clone(), &issuer, &[]).await.expect(201);
    let foreign = json!({ "account": "umbra", "amount": "1", "kind": "grant" });
    server.send("POST", "/v1/grants", foreign, &issuer, &[]).await.problem("not_found");
}

#[tokio::test]
async fn credits_enter_only_from_the_platform() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "100").await;
    let charge = json!({ "id": "c", "account": "acme:nlp", "amount": "10" });
    server.call("POST", "/v1/charges", charge).await.expect(201);
    let of_tenant = server.key("admin", "acme").await;
    let of_platform = server.key("billing", "*").await;
    let issuer = server.issuer("billing", "acme").await;
    let limit = json!({ "overdraft_limit": "5" });
    let opened = json!({ "id": "acme:z", "kind": "team", "compensation_ttl_seconds": 60 });
    let compensated = json!({ "charge": "c", "amount": "1", "compensate": true });
    let grant = json!({ "account": "acme:nlp", "amount": "1", "kind": "compensation" });
    let entering = [
        ("POST", "/v1/grants", grant.clone()),
        ("POST", "/v1/refunds", compensated),
        ("POST", "/v1/accounts", opened),
        ("PATCH", "/v1/accounts/acme:nlp", limit.clone()),
        ("PATCH", "/v1/accounts/acme:nlp", json!({ "overdraft_limit": null })),
        ("PATCH", "/v1/accounts/acme:nlp", json!({ "compensation_ttl_seconds": 60 })),
    ];
    for (method, path, body) in entering {
        let ask = async |key: &str| server.send(method, path, body.clone(), key, &[]).await;
        let refused = ask(&of_tenant).await.problem("forbidden");
        assert!(refused["detail"].as_str().expect("text").contains("`issue`"), "{refused}");
        let operation = json!({ "method": method, "path": path, "body": body });
        let batch = json!({ "operations": [operation] });
        let inside = server.send("POST", "/v1/batch", batch, &of_tenant, &[]).await.expect(200);
        assert_eq!(inside["results"][0]["status"], 403, "{inside}");
        let done = ask(&issuer).await;
        assert!(matches!(done.status, 200 | 201), "{path} {}", done.body);
        let done = ask(&of_platform).await;
        assert!(matches!(done.status, 200 | 201), "{path} {}", done.body);
    }
    // Tenants move what they have.
    let refund = json!({ "charge": "c", "amount": "1" });
    server.send("POST", "/v1/refunds", refund, &of_tenant, &[]).await.expect(201);
    let transfer = json!({ "from": "acme", "to": "acme:nlp", "amount": "1" });
    server.send("POST", "/v1/transfers", transfer, &of_tenant, &[]).await.expect(201);
    let renamed = json!({ "name": "Acme", "metadata": { "a": 1 } });
    server.send("PATCH", "/v1/accounts/acme", renamed, &of_tenant, &[]).await.expect(200);
}

#[tokio::test]
async fn the_weight_and_the_quota_of_an_org_are_the_platforms() {
    let server = Server::start();
    server.tree().await;
    let of_tenant = server.issuer("admin", "acme").await;
    let of_platform = server.key("admin", "*").await;
    for (account, status) in [("acme", 403), ("acme:nlp", 200)] {
        let path = format!("/v1/accounts/{account}");
        let quota = format!("{path}/quota");
        for (method, path, body) in [
            ("PATCH", &path, json!({ "weight": 2 })),
            ("PATCH", &path, json!({ "weight": null })),
            ("PUT", &quota, json!({ "running_jobs": 1 })),
        ] {
            let asked = server.send(method, path, body.clone(), &of_tenant, &[]).await;
            assert_eq!(asked.status, status, "{method} {path} {}", asked.body);
            server.send(method, path, body, &of_platform, &[]).await.expect(200);
        }
        let removed = server.send("DELETE", &quota, Value::Null, &of_tenant, &[]).await;
        assert_eq!(removed.status, if status == 403 { 403 } else { 204 });
    }
}

#[tokio::test]
async fn only_the_platform_lifts_a_freeze_that_the_platform_made() {
    let mut server = Server::start();
    server.tree().await;
    let tenants = ["admin", "billing", "operator"].map(|role| (role, "acme"));
    let mut keys = Vec::new();
    for (role, scope) in tenants {
        keys.push(server.key(role, scope).await);
    }
    let of_platform = server.key("operator", "*").await;
    let path = |verb: &str| format!("/v1/accounts/acme:nlp/{verb}");
    for key in &keys {
        let frozen = server.send("POST", &path("freeze"), json!({}), key, &[]).await.expect(200);
        assert_eq!(frozen["frozen"], true);
        server.send("POST", &path("unfreeze"), json!({}), key, &[]).await.expect(200);
    }
    // The platform's freeze counts, whether another one was there before or comes after.
    server.send("POST", &path("freeze"), json!({}), &keys[0], &[]).await.expect(200);
    server.send("POST", &path("freeze"), json!({}), &of_platform, &[]).await.expect(200);
    server.send("POST", &path("freeze"), json!({}), &keys[0], &[]).await.expect(200);
    server.crash_and_restart(&["--clock", "manual"]);
    for key in &keys {
        let refused = server.send("POST", &path("unfreeze"), json!({}), key, &[]).await;
        let refused = refused.problem("forbidden");
        assert!(refused["detail"].as_str().expect("text").contains("acme:nlp"), "{refused}");
    }
    assert_eq!(server.get("/v1/accounts/acme:nlp").await["frozen"], true);
    server.send("POST", &path("unfreeze"), json!({}), &of_platform, &[]).await.expect(200);
    server.send("POST", &path("freeze"), json!({}), &keys[1], &[]).await.expect(200);
    server.send("POST", &path("unfreeze"), json!({}), &keys[2], &[]).await.expect(200);
}

#[tokio::test]
async fn a_tenant_named_platform_shares_no_idempotency_key_with_the_platform() {
    let server = Server::start();
    server.open("platform", "org").await;
    let admin = server.key("admin", "platform").await;
    let header = [("Idempotency-Key", "same")];
    let price = json!({ "per_gpu_hour": "1" });
    let set = async |body: Value| {
        server.send("PUT", "/v1/prices/H100", body, &server.root, &header).await
    };
    set(price.clone()).await.expect(200);
    let key = json!({ "id": "k", "role": "viewer", "scope": "platform", "name": "n" });
    server.send("POST", "/v1/keys", key, &admin, &header).await.expect(201);
    let again = set(price).await;
    assert_eq!(again.headers["idempotent-replayed"], "true");
    set(json!({ "per_gpu_hour": "2" })).await.problem("idempotency_key_reused");
}
