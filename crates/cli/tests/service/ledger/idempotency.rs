//! One effect per idempotency key, the first answer again, also after a crash.

use serde_json::{Value, json};

use crate::server::Server;

const KEY: [(&str, &str); 1] = [("Idempotency-Key", "k-1")];

#[tokio::test]
async fn the_first_answer_comes_again_with_status_and_body_also_after_a_crash() {
    let mut server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "10").await;
    let root = server.root.clone();
    let place = json!({ "account": "acme", "amount": "4" });
    let first = server.send("POST", "/v1/holds", place.clone(), &root, &KEY).await;
    assert!(!first.is_replayed());
    let first = first.expect(201);
    // What happened since does not change the first answer.
    let id = first["id"].as_str().expect("an id").to_owned();
    server
        .call("POST", &format!("/v1/holds/{id}/settle"), json!({ "total": "1" }))
        .await
        .expect(200);
    for crash in [false, true] {
        if crash {
            server.crash_and_restart(&["--clock", "manual"]);
        }
        let again = server.send("POST", "/v1/holds", place.clone(), &root, &KEY).await;
        assert!(again.is_replayed());
        assert_eq!(again.expect(201), first);
    }
    let other = json!({ "account": "acme", "amount": "5" });
    server.send("POST", "/v1/holds", other, &root, &KEY).await.problem("idempotency_key_reused");
    server.send("POST", "/v1/charges", place, &root, &KEY).await.problem("idempotency_key_reused");
    assert_eq!(server.get("/v1/grants/g").await["spent"], "1");
}

#[tokio::test]
async fn refusals_of_money_are_kept_and_mistakes_are_not() {
    let server = Server::start();
    server.tree().await;
    let root = server.root.clone();
    let charge = json!({ "account": "acme", "amount": "1" });
    let refused = server.send("POST", "/v1/charges", charge.clone(), &root, &KEY).await;
    assert!(!refused.is_replayed());
    refused.problem("insufficient_credits");
    server.grant("g", "acme", "10").await;
    let again = server.send("POST", "/v1/charges", charge.clone(), &root, &KEY).await;
    assert!(again.is_replayed());
    again.problem("insufficient_credits");
    let key = [("Idempotency-Key", "k-2")];
    let wrong = json!({ "account": "acme", "amount": 1.5 });
    server.send("POST", "/v1/charges", wrong, &root, &key).await.problem("invalid_field");
    let unknown = json!({ "account": "missing", "amount": "1" });
    server.send("POST", "/v1/charges", unknown, &root, &key).await.problem("not_found");
    server.send("POST", "/v1/charges", charge, &root, &key).await.expect(201);
}

#[tokio::test]
async fn a_key_belongs_to_its_tenant_and_the_platform_has_its_own() {
    let server = Server::start();
    server.tree().await;
    let root = server.root.clone();
    for tenant in ["acme", "umbra"] {
        server.grant(&format!("g-{tenant}"), tenant, "10").await;
        let charge = json!({ "account": tenant, "amount": "1" });
        let made = server.send("POST", "/v1/charges", charge, &root, &KEY).await;
        assert!(!made.is_replayed());
        made.expect(201);
    }
    let price = json!({ "per_gpu_hour": "2" });
    let first = server.send("PUT", "/v1/prices/H100", price.clone(), &root, &KEY).await.expect(200);
    let again = server.send("PUT", "/v1/prices/H100", price, &root, &KEY).await;
    assert!(again.is_replayed());
    assert_eq!(again.expect(200), first);
}

#[tokio::test]
async fn an_id_chosen_by_the_caller_works_like_a_key() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "10").await;
    let charge = json!({ "id": "c", "account": "acme", "amount": "3" });
    let first = server.call("POST", "/v1/charges", charge.clone()).await.expect(201);
    let again = server.call("POST", "/v1/charges", charge).await.expect(200);
    assert_eq!(again, first);
    let other = json!({ "id": "c", "account": "acme", "amount": "4" });
    server.call("POST", "/v1/charges", other.clone()).await.problem("already_exists");
    let mut elsewhere = other;
    elsewhere["account"] = "umbra".into();
    server.grant("g", "umbra", "10").await;
    server.call("POST", "/v1/charges", elsewhere).await.expect(201);
    // Both tenants have a charge of that name: a key that sees both must say which it means.
    let problem = server.call("GET", "/v1/charges/c", Value::Null).await.problem("ambiguous_id");
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("Bursar-Tenant")));
    let root = server.root.clone();
    let tenant = [("Bursar-Tenant", "umbra")];
    let found = server.send("GET", "/v1/charges/c", Value::Null, &root, &tenant).await.expect(200);
    assert_eq!(found["charged"], "4");
    let refused = json!({ "id": "later", "account": "acme", "amount": "1000" });
    server.call("POST", "/v1/charges", refused).await.problem("insufficient_credits");
    let smaller = json!({ "id": "later", "account": "acme", "amount": "1" });
    server.call("POST", "/v1/charges", smaller).await.expect(201);
}

/// The result of a repeated creation is the object that the first one made, as it is now; nothing
/// is made or changed. The first answer word for word belongs to an idempotency key.
#[tokio::test]
async fn a_repeated_id_has_the_first_object_as_its_result() {
    let server = Server::start();
    server.tree().await;
    let grant = json!({ "id": "g", "account": "acme", "amount": "10", "kind": "purchase" });
    let hold = json!({ "id": "h", "account": "acme", "amount": "4" });
    server.call("POST", "/v1/grants", grant.clone()).await.expect(201);
    server.call("POST", "/v1/holds", hold.clone()).await.expect(201);
    server.call("POST", "/v1/holds/h/settle", json!({ "total": "3" })).await.expect(200);
    for (path, body) in [("/v1/grants", grant), ("/v1/holds", hold)] {
        let id = body["id"].as_str().expect("an id").to_owned();
        let now = server.get(&format!("{path}/{id}")).await;
        let again = server.call("POST", path, body.clone()).await.expect(200);
        assert_eq!(again["created_at"], now["created_at"], "{path}");
        for field in ["available", "state", "captured", "spent"] {
            assert_eq!(again[field], now[field], "{path} {field}");
        }
        let mut other = body;
        other["amount"] = json!("99");
        server.call("POST", path, other).await.problem("already_exists");
    }
    assert_eq!(server.get("/v1/accounts/acme/balance").await["available"], "7");
}

#[tokio::test]
async fn exactly_one_of_many_equal_creations_is_answered_with_201() {
    let server = std::sync::Arc::new(Server::start());
    server.tree().await;
    server.grant("g", "acme", "10").await;
    let mut tasks = Vec::new();
    for _ in 0..32 {
        let server = std::sync::Arc::clone(&server);
        tasks.push(tokio::spawn(async move {
            let body = json!({ "id": "same", "account": "acme", "amount": "1" });
            server.call("POST", "/v1/charges", body).await.status
        }));
    }
    let mut created = 0;
    for task in tasks {
        let status = task.await.expect("no panic");
        assert!(matches!(status, 200 | 201), "{status}");
        created += u32::from(status == 201);
    }
    assert_eq!(created, 1);
    assert_eq!(server.get("/v1/grants/g").await["spent"], "1");
}

/// Changes a thing twice, each time under a key, and asks for the first change again.
async fn the_first_of_two(method: &str, path: &str, first: Value, second: Value) {
    let mut server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "10").await;
    let root = server.root.clone();
    let answered = server.send(method, path, first.clone(), &root, &KEY).await.expect(200);
    let other = [("Idempotency-Key", "k-2")];
    let changed = server.send(method, path, second, &root, &other).await.expect(200);
    assert_ne!(answered, changed);
    server.call("POST", "/v1/accounts/acme/freeze", json!({})).await.expect(200);
    for crash in [false, true] {
        if crash {
            server.crash_and_restart(&["--clock", "manual"]);
        }
        let again = server.send(method, path, first.clone(), &root, &KEY).await;
        assert!(again.is_replayed());
        assert_eq!(again.expect(200), answered, "{method} {path}");
    }
}

#[tokio::test]
async fn a_replayed_account_change_shows_the_account_after_that_change() {
    let first = json!({ "name": "Acme", "metadata": { "n": 1 } });
    let second = json!({ "name": "Acme Corporation", "weight": "3" });
    the_first_of_two("PATCH", "/v1/accounts/acme", first, second).await;
}

#[tokio::test]
async fn a_replayed_budget_shows_it_as_it_was_set() {
    let first = json!({ "limit": "5", "period": "total", "mode": "hard" });
    let second = json!({ "limit": "7", "period": "day", "mode": "soft" });
    the_first_of_two("PUT", "/v1/accounts/acme/budgets/b", first, second).await;
}

#[tokio::test]
async fn replayed_answers_are_the_same_as_the_first_ones() {
    let server = Server::start();
    server.tree().await;
    let root = server.root.clone();
    let budget = json!({ "limit": "5", "period": "total", "mode": "soft" });
    let steps = [
        ("POST", "/v1/accounts", json!({ "id": "acme:new", "kind": "team", "name": "n" })),
        ("POST", "/v1/grants", json!({ "account": "acme:new", "amount": "9", "kind": "grant" })),
        ("POST", "/v1/accounts/acme:new/freeze", json!({})),
        ("POST", "/v1/accounts/acme:new/unfreeze", json!({})),
        ("PUT", "/v1/accounts/acme:new/budgets/b", budget),
    ];
    let mut answered = Vec::new();
    for (number, (method, path, body)) in steps.iter().enumerate() {
        let key = format!("step-{number}");
        let header = [("Idempotency-Key", key.as_str())];
        answered.push(server.send(method, path, body.clone(), &root, &header).await);
    }
    let grant = answered[1].body["id"].as_str().expect("an id").to_owned();
    let rename = json!({ "name": "other" });
    server.call("PATCH", "/v1/accounts/acme:new", rename).await.expect(200);
    let charge = json!({ "account": "acme:new", "amount": "2" });
    server.call("POST", "/v1/charges", charge).await.expect(201);
    server.call("POST", &format!("/v1/grants/{grant}/revoke"), json!({})).await.expect(200);
    for (number, (method, path, body)) in steps.into_iter().enumerate() {
        let key = format!("step-{number}");
        let header = [("Idempotency-Key", key.as_str())];
        let again = server.send(method, path, body, &root, &header).await;
        assert!(again.is_replayed(), "{method} {path}");
        assert_eq!((again.status, &again.body), (answered[number].status, &answered[number].body));
    }
}

#[tokio::test]
async fn the_clock_moves_once_under_a_key_also_after_a_crash() {
    let mut server = Server::start();
    let root = server.root.clone();
    let shown = async |server: &Server| server.get("/v1/clock").await["now"].clone();
    let hour = json!({ "advance_seconds": 3600 });
    let first = server.send("POST", "/v1/clock", hour.clone(), &root, &KEY).await;
    assert!(!first.is_replayed());
    let first = first.expect(200);
    assert_eq!(first["now"], "2020-01-01T01:00:00.000Z");
    for crash in [false, true] {
        if crash {
            server.crash_and_restart(&["--clock", "manual"]);
        }
        let again = server.send("POST", "/v1/clock", hour.clone(), &root, &KEY).await;
        assert!(again.is_replayed());
        assert_eq!(again.expect(200), first);
        assert_eq!(shown(&server).await, first["now"]);
        let other = json!({ "advance_seconds": 60 });
        let reused = server.send("POST", "/v1/clock", other, &root, &KEY).await;
        reused.problem("idempotency_key_reused");
        assert_eq!(shown(&server).await, first["now"]);
    }
    // What was right the first time stays right, although time has gone on.
    let named = json!({ "now": "2020-01-01T02:00:00Z" });
    let key = [("Idempotency-Key", "k-2")];
    let answered = server.send("POST", "/v1/clock", named.clone(), &root, &key).await.expect(200);
    server.advance(1).await;
    let again = server.send("POST", "/v1/clock", named.clone(), &root, &key).await;
    assert!(again.is_replayed());
    assert_eq!(again.expect(200), answered);
    assert_eq!(shown(&server).await, "2020-01-01T02:00:01.000Z");
    // A mistake is not kept.
    let key = [("Idempotency-Key", "k-3")];
    server.send("POST", "/v1/clock", named, &root, &key).await.problem("invalid_field");
    server.send("POST", "/v1/clock", hour, &root, &key).await.expect(200);
    assert_eq!(shown(&server).await, "2020-01-01T03:00:01.000Z");
}

#[tokio::test]
async fn a_move_of_the_clock_that_a_crash_cuts_off_is_finished_and_not_made_twice() {
    let mut server = Server::start();
    server.tree().await;
    let root = server.root.clone();
    let step = json!({ "advance_seconds": 86_400 });
    for day in 1..=8u64 {
        let key = format!("day-{day}");
        let header = [("Idempotency-Key", key.as_str())];
        {
            // Cut off somewhere, each time a little later.
            let moving = server.send("POST", "/v1/clock", step.clone(), &root, &header);
            let cut = std::time::Duration::from_millis(day / 2);
            let _answer = tokio::time::timeout(cut, moving).await;
        }
        server.crash_and_restart(&["--clock", "manual"]);
        let answered =
            server.send("POST", "/v1/clock", step.clone(), &root, &header).await.expect(200);
        let now = format!("2020-01-{:02}T00:00:00.000Z", day + 1);
        assert_eq!(answered["now"], now.as_str());
        assert_eq!(server.get("/v1/clock").await["now"], now.as_str());
    }
}

#[tokio::test]
async fn a_refusal_comes_again_byte_for_byte_also_after_a_crash() {
    let mut server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "1").await;
    let root = server.root.clone();
    let key = json!({ "id": "taken", "role": "viewer", "scope": "acme", "name": "n" });
    server.call("POST", "/v1/keys", key).await.expect(201);
    let hold = json!({ "id": "h", "account": "acme", "amount": "1" });
    server.call("POST", "/v1/holds", hold).await.expect(201);
    server.call("POST", "/v1/holds/h/release", json!({})).await.expect(200);
    let charge = json!({ "account": "acme", "amount": "5" });
    let closed = "/v1/holds/h/settle";
    let part = json!({ "method": "POST", "path": "/v1/charges", "body": charge });
    let own = json!({
        "method": "POST", "path": closed, "body": { "total": "1" }, "idempotency_key": "own"
    });
    let asked = [
        ("POST", "/v1/charges", charge.clone(), 402),
        ("POST", closed, json!({ "total": "1" }), 409),
        ("POST", "/v1/accounts", json!({ "id": "acme", "kind": "org", "name": "x" }), 409),
        (
            "POST",
            "/v1/keys",
            json!({ "id": "taken", "role": "admin", "scope": "acme", "name": "n" }),
            409,
        ),
        ("POST", "/v1/batch", json!({ "operations": [part, own] }), 200),
        ("POST", "/v1/batch", json!({ "operations": [part], "atomic": true }), 409),
    ];
    let ask = async |server: &Server, place: usize| {
        let (method, path, body, status) = &asked[place];
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        let request = server.client.request(method, format!("{}{path}", server.url));
        let request = request.bearer_auth(&root).json(body);
        let request = request.header("idempotency-key", format!("refused-{place}"));
        let response = request.send().await.expect("the server is there");
        assert_eq!(response.status(), *status, "{path}");
        let replayed = response.headers().contains_key("idempotent-replayed");
        (replayed, response.text().await.expect("the whole body"))
    };
    let mut answered = Vec::new();
    for place in 0..asked.len() {
        let (replayed, body) = ask(&server, place).await;
        assert!(!replayed && body.contains("\"request_id\":\"req_"), "{body}");
        answered.push(body);
    }
    // A fix of the cause does not change the stored answer.
    server.grant("more", "acme", "100").await;
    for crash in [false, true] {
        if crash {
            server.crash_and_restart(&["--clock", "manual"]);
        }
        for (place, first) in answered.iter().enumerate() {
            let (replayed, again) = ask(&server, place).await;
            assert!(replayed, "{again}");
            assert_eq!(again, *first);
        }
    }
}

/// Ledger, directory and cell keep their own answers, and share the keys.
#[tokio::test]
async fn a_key_is_used_once_in_its_namespace_whichever_machine_answers() {
    let mut server = Server::start();
    server.tree().await;
    server.grant("funds", "acme", "100").await;
    let admin = server.key("admin", "acme").await;
    let key = |scope: &str| json!({ "role": "viewer", "scope": scope, "name": "n" });
    let node = json!({ "id": "n1", "region": "default", "gpus": [], "cpus": 1, "memory_gib": 1 });
    let day = json!({ "from": "2030-01-01T00:00:00Z", "to": "2030-01-02T00:00:00Z" });
    let of_tenant = [
        ("POST", "/v1/holds", json!({ "account": "acme:nlp", "amount": "1" })),
        ("POST", "/v1/keys", key("acme")),
        ("POST", "/v1/nodes", node),
    ];
    let of_platform = [
        ("PUT", "/v1/prices/H100", json!({ "per_gpu_hour": "2" })),
        ("POST", "/v1/keys", key("*")),
        ("PUT", "/v1/regions/default/maintenance", day),
    ];
    let root = server.root.clone();
    for restarted in [false, true] {
        for (secret, calls) in [(&admin, &of_tenant), (&root, &of_platform)] {
            for (first, (method, path, body)) in calls.iter().enumerate() {
                let header = [("Idempotency-Key", format!("{method} {first}").replace(' ', "-"))];
                let header = header.each_ref().map(|(name, value)| (*name, value.as_str()));
                let done = server.send(method, path, body.clone(), secret, &header).await;
                assert!(done.status < 300, "{path}: {}", done.body);
                assert_eq!(done.is_replayed(), restarted, "{path}");
                for (other, (method, path, body)) in calls.iter().enumerate() {
                    if other != first {
                        let again = server.send(method, path, body.clone(), secret, &header).await;
                        again.problem("idempotency_key_reused");
                    }
                }
            }
        }
        server.crash_and_restart(&["--clock", "manual"]);
    }
    // Those of the platform and of a tenant are different keys, as are those of two tenants.
    let header = [("Idempotency-Key", "PUT-0")];
    let (method, path, body) = of_tenant[0].clone();
    server.send(method, path, body, &admin, &header).await.expect(201);
}
