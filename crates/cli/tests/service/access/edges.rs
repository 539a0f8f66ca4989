//! Edge cases of the contract: the last instant, invalid UTF-8, numbers out of range, lists
//! of one page, and the time and position of answers about credits.

use serde_json::{Value, json};

use crate::server::{Answer, Server, read};

/// Sends a body as it is.
async fn raw(server: &Server, path: &str, body: String) -> Answer {
    let request = server.client.post(format!("{}{path}", server.url)).bearer_auth(&server.root);
    let request = request.header("content-type", "application/json").body(body);
    read(request.send().await.expect("the server is there")).await
}

#[tokio::test]
async fn a_header_with_two_values_is_refused_and_named() {
    let server = Server::start();
    server.tree().await;
    for (name, path, one, two) in [
        ("Bursar-Tenant", "/v1/holds/h", "acme", "umbra"),
        ("Last-Event-ID", "/v1/events", "0", "0"),
        ("Idempotency-Key", "/v1/accounts/acme", "a", "b"),
    ] {
        let request = server.client.get(format!("{}{path}", server.url)).bearer_auth(&server.root);
        let sent = request.header(name, one).header(name, two).send().await;
        let problem = read(sent.expect("the server is there")).await.problem("invalid_field");
        assert_eq!(problem["param"], name, "{problem}");
        assert_eq!(problem["status"], 422, "{problem}");
    }
}

#[tokio::test]
async fn the_rate_limit_is_in_the_headers_of_a_rejection_too() {
    let server = Server::configured("[limits]\nper_key = 5\n", &["--clock", "manual"]);
    server.tree().await;
    let key = server.key("viewer", "acme").await;
    for path in ["/v1/accounts/acme", "/v1/accounts/acme/balance"] {
        let answer = loop {
            let answer = server.send("GET", path, Value::Null, &key, &[]).await;
            if answer.status != 200 {
                break answer;
            }
        };
        let header = |name: &str| {
            let value = answer.headers.get(name).unwrap_or_else(|| panic!("{path}: no {name}"));
            value.to_str().expect("ascii").to_owned()
        };
        assert_eq!(header("ratelimit-policy"), "\"key\";q=5;w=1, \"tenant\";q=5000;w=1");
        assert_eq!(header("ratelimit"), format!("\"key\";r=0;t={}", header("retry-after")));
        answer.problem("rate_limited");
    }
}

#[tokio::test]
async fn the_last_instant_of_the_calendar_is_an_instant_everywhere() {
    const LAST: &str = "9999-12-31T23:59:59.999Z";
    let server = Server::start();
    server.tree().await;
    for (id, written, shown) in [
        ("plain", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59.000Z"),
        ("fraction", "9999-12-31T23:59:59.999999Z", LAST),
        ("offset", "9999-12-31T23:59:59.999+02:00", "9999-12-31T21:59:59.999Z"),
        ("last", LAST, LAST),
    ] {
        let grant = json!({
            "id": id, "account": "acme", "amount": "10", "kind": "purchase", "expires_at": written
        });
        server.call("POST", "/v1/grants", grant).await.expect(201);
        let shown_again = server.get(&format!("/v1/grants/{id}")).await;
        assert_eq!(shown_again["expires_at"], shown);
        assert_eq!(shown_again["available"], "10");
    }
    let beyond = json!({
        "account": "acme", "amount": "1", "kind": "grant",
        "expires_at": "9999-12-31T23:59:59-00:01"
    });
    let refused = server.call("POST", "/v1/grants", beyond).await.problem("invalid_field");
    assert_eq!(refused["param"], "expires_at");
    // Spent soonest first, and none of them takes part in what expires before.
    let hold = json!({ "id": "h", "account": "acme", "amount": "35", "ttl_seconds": 315_360_000 });
    let hold = server.call("POST", "/v1/holds", hold).await.expect(201);
    let grants: Vec<&Value> =
        hold["lots"].as_array().expect("lots").iter().map(|lot| &lot["grant"]).collect();
    assert_eq!(grants, ["offset", "plain", "fraction", "last"]);
    let at = format!("/v1/accounts/acme/balance?at={LAST}");
    assert_eq!(server.get(&at).await["available"], "5");
    server.get("/v1/accounts/acme/forecast").await;
    let statement = server
        .get(&format!("/v1/accounts/acme/statement?from=0000-01-01T00:00:00Z&to={LAST}"))
        .await;
    assert_eq!((&statement["opening"], &statement["to"]), (&json!("0"), &json!(LAST)));
    let late = json!({ "account": "acme", "amount": "1", "effective_at": LAST });
    assert!(server.call("POST", "/v1/charges", late).await.status < 500);
    let later = json!({
        "account": "acme", "amount": "1", "kind": "grant", "effective_at": LAST, "expires_at": LAST
    });
    server.call("POST", "/v1/grants", later).await.expect(201);
    let price = json!({ "per_gpu_hour": "1", "effective_at": LAST });
    server.call("PUT", "/v1/prices/H100", price).await.expect(200);
    assert_eq!(server.get(&format!("/v1/prices?at={LAST}")).await["data"][0]["version"], 1);
    let plan = json!({ "from": "9999-12-31T00:00:00Z", "to": LAST });
    server.call("PUT", "/v1/regions/default/maintenance", plan).await.expect(200);
    let key = json!({ "role": "viewer", "scope": "acme", "name": "n", "expires_at": LAST });
    let key = server.call("POST", "/v1/keys", key).await.expect(201);
    assert_eq!(key["expires_at"], LAST);
    let budget = json!({ "limit": "100", "period": "month", "mode": "hard" });
    server.call("PUT", "/v1/accounts/acme/budgets/b", budget).await.expect(200);
    // The manual clock cannot reach the end of any of these.
    let end = json!({ "now": "8999-12-31T00:00:00Z" });
    server.call("POST", "/v1/clock", end).await.expect(200);
    let balance = server.get("/v1/accounts/acme/balance").await;
    assert_eq!((&balance["available"], &balance["held"]), (&json!("40"), &json!("0")));
    let hold = json!({ "account": "acme", "amount": "40", "ttl_seconds": 315_360_000 });
    server.call("POST", "/v1/holds", hold).await.expect(201);
    server.get("/v1/accounts/acme/forecast").await;
    server.get("/v1/accounts/acme/budgets/b").await;
    let beyond = json!({ "now": LAST });
    server.call("POST", "/v1/clock", beyond).await.problem("invalid_field");
}

#[tokio::test]
async fn a_path_that_is_not_utf8_is_not_found() {
    let server = Server::start();
    server.tree().await;
    let description = server.send("GET", "/openapi.json", Value::Null, "", &[]).await.expect(200);
    let mut asked = 0;
    for (path, item) in description["paths"].as_object().expect("paths") {
        if !path.contains('{') {
            continue;
        }
        let path: Vec<&str> = path
            .split('/')
            .map(|segment| if segment.starts_with('{') { "%ff" } else { segment })
            .collect();
        let path = path.join("/");
        for method in item.as_object().expect("operations").keys() {
            let method = method.to_uppercase();
            let body = if method == "GET" { Value::Null } else { json!({}) };
            server.call(&method, &path, body).await.problem("not_found");
            server.call(&method, &path, Value::Null).await.problem("not_found");
            asked += 1;
        }
    }
    assert!(asked > 30, "{asked}");
    for path in ["/docs/problems/%ff", "/docs/problems/%C3%28", "/%ff", "/v1/accounts/%C3%28"] {
        server.call("GET", path, Value::Null).await.problem("not_found");
    }
}

#[tokio::test]
async fn a_name_that_nothing_can_have_is_named_when_it_is_set() {
    let server = Server::start();
    server.tree().await;
    let budget = json!({ "limit": "1", "period": "total", "mode": "hard" });
    let class =
        json!({ "rank": 1, "preempts": [], "grace_seconds": 1, "default_preemptible": true });
    let price = json!({ "per_gpu_hour": "1" });
    let long = "n".repeat(65);
    for name in ["a%20b", &long] {
        for (path, body, param) in [
            ("/v1/accounts/acme/budgets", &budget, "name"),
            ("/v1/classes", &class, "name"),
            ("/v1/prices", &price, "gpu_type"),
        ] {
            let answer = server.call("PUT", &format!("{path}/{name}"), body.clone()).await;
            assert_eq!(answer.problem("invalid_field")["param"], param);
        }
        let path = format!("/v1/accounts/acme/budgets/{name}");
        let operation = json!({ "method": "PUT", "path": path, "body": budget });
        let batch = json!({ "operations": [operation] });
        let done = server.call("POST", "/v1/batch", batch).await.expect(200);
        assert_eq!(done["results"][0]["body"]["param"], "name", "{done}");
        server.call("GET", &path, Value::Null).await.problem("not_found");
        server.call("DELETE", &path, Value::Null).await.problem("not_found");
    }
}

#[tokio::test]
async fn a_number_out_of_range_is_named() {
    let server = Server::start();
    server.tree().await;
    for digits in ["1e400".to_owned(), "9".repeat(300), "9".repeat(400), "-1e999".to_owned()] {
        for (path, body, param) in [
            ("/v1/charges", format!(r#"{{"account": "acme", "amount": {digits}}}"#), "amount"),
            ("/v1/holds/h/capture", format!(r#"{{"total": {digits}}}"#), "total"),
            (
                "/v1/grants",
                format!(r#"{{"account": "acme", "kind": "grant", "amount": {digits}}}"#),
                "amount",
            ),
        ] {
            let answer = raw(&server, path, body).await;
            assert_eq!(answer.problem("invalid_field")["param"], param, "{digits}");
        }
    }
    let batch = r#"{"operations": [{"method": "POST", "path": "/v1/charges",
        "body": {"account": "acme", "amount": 1e400}}]}"#;
    let refused = raw(&server, "/v1/batch", batch.into()).await.problem("invalid_field");
    assert_eq!(refused["param"], "operations[0].body.amount");
    raw(&server, "/v1/charges", r#"{"amount": 1e400"#.into()).await.problem("invalid_field");
    raw(&server, "/v1/charges", r#"{"amount": 1e4"#.into()).await.problem("malformed_json");
}

#[tokio::test]
async fn every_read_of_credits_has_its_time_and_position() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "10").await;
    let hold = json!({ "id": "h", "account": "acme", "amount": "1" });
    server.call("POST", "/v1/holds", hold).await.expect(201);
    let charge = json!({ "id": "c", "account": "acme", "amount": "1" });
    server.call("POST", "/v1/charges", charge).await.expect(201);
    let budget = json!({ "limit": "100", "period": "month", "mode": "hard" });
    server.call("PUT", "/v1/accounts/acme/budgets/b", budget).await.expect(200);
    server.call("PUT", "/v1/prices/H100", json!({ "per_gpu_hour": "1" })).await.expect(200);
    let job = json!({
        "id": "j", "account": "acme", "gpus": { "types": ["H100"] }, "max_runtime_seconds": 60
    });
    let quote = server.call("POST", "/v1/quotes", job.clone()).await.expect(200);
    assert!(quote["as_of"].is_string() && quote["position"].is_u64(), "{quote}");
    server.call("POST", "/v1/jobs", job).await.expect(201);
    for path in [
        "/v1/accounts",
        "/v1/accounts/acme",
        "/v1/accounts/acme/balance",
        "/v1/accounts/acme/entries",
        "/v1/accounts/acme/statement?from=2020-01-01T00:00:00Z&to=2020-01-02T00:00:00Z",
        "/v1/accounts/acme/forecast",
        "/v1/accounts/acme/budgets",
        "/v1/accounts/acme/budgets/b",
        "/v1/grants",
        "/v1/grants/g",
        "/v1/holds",
        "/v1/holds/h",
        "/v1/holds/h/lots",
        "/v1/charges/c",
        "/v1/jobs",
        "/v1/jobs/j/timeline",
        "/v1/top",
        "/v1/top?kind=job",
        "/v1/audit",
    ] {
        let read = server.get(path).await;
        assert!(read["as_of"].is_string(), "{path}: {read}");
        assert!(read["position"].as_u64().is_some_and(|position| position > 0), "{path}: {read}");
    }
    // The position of a job is its place in the queue.
    let job = server.get("/v1/jobs/j").await;
    assert!(job["as_of"].is_string() && job["ledger_position"].is_u64(), "{job}");
}

const LISTS: [&str; 18] = [
    "/v1/accounts",
    "/v1/accounts/acme/entries",
    "/v1/accounts/acme/budgets",
    "/v1/grants",
    "/v1/holds",
    "/v1/holds/h/lots",
    "/v1/jobs",
    "/v1/jobs/j/timeline",
    "/v1/nodes",
    "/v1/regions",
    "/v1/regions/default/queue",
    "/v1/classes",
    "/v1/prices",
    "/v1/top",
    "/v1/top?kind=job",
    "/v1/keys",
    "/v1/audit",
    "/v1/audit?account=acme",
];

#[tokio::test]
async fn every_list_accepts_a_page_and_rejects_invalid_ones() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "10").await;
    let hold = json!({ "id": "h", "account": "acme", "amount": "1" });
    server.call("POST", "/v1/holds", hold).await.expect(201);
    server.call("PUT", "/v1/prices/H100", json!({ "per_gpu_hour": "1" })).await.expect(200);
    for id in ["j", "k", "l"] {
        let job = json!({
            "id": id, "account": "acme", "gpus": { "types": ["H100"] }, "max_runtime_seconds": 60
        });
        server.call("POST", "/v1/jobs", job).await.expect(201);
    }
    for path in LISTS {
        let sign = if path.contains('?') { '&' } else { '?' };
        let ask = async |query: &str| {
            server.call("GET", &format!("{path}{sign}{query}"), Value::Null).await
        };
        for good in ["limit=1", "limit=100"] {
            let page = ask(good).await.expect(200);
            assert!(page["data"].is_array() && page["has_more"].is_boolean(), "{path}: {page}");
            let more = page["has_more"] == true;
            assert_eq!(page["next_cursor"].is_string(), more, "{path}: {page}");
        }
        for bad in ["limit=0", "limit=101", "limit=x", "limit=-1", "limit="] {
            let answer = ask(bad).await;
            assert_eq!(answer.problem("invalid_field")["param"], "limit", "{path} {bad}");
        }
        for bad in ["cursor=nonsense", "cursor=", "cursor=%00", "cursor=after:"] {
            let answer = ask(bad).await;
            assert_eq!(answer.problem("invalid_field")["param"], "cursor", "{path} {bad}");
        }
    }
}

/// All entries of a list, one to a page.
async fn one_by_one(server: &Server, path: &str, field: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = server.get(&format!("{path}?limit=1{cursor}")).await;
        found.extend(page["data"].as_array().expect("a list").iter().map(|one| {
            one[field].as_str().unwrap_or_else(|| panic!("{one} has no {field}")).to_owned()
        }));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
        assert!(found.len() < 100, "{path} does not end");
    }
}

#[tokio::test]
async fn nodes_and_queues_are_walked_page_by_page() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "10").await;
    server.call("PUT", "/v1/prices/H100", json!({ "per_gpu_hour": "1" })).await.expect(200);
    for id in ["n:b", "n-a", "n_c"] {
        let node = json!({ "id": id, "region": "default", "gpus": [], "cpus": 1, "memory_gib": 1 });
        server.call("POST", "/v1/nodes", node).await.expect(201);
    }
    assert_eq!(one_by_one(&server, "/v1/nodes", "id").await, ["n-a", "n:b", "n_c"]);
    for id in ["j1", "j2", "j3"] {
        let job = json!({
            "id": id, "account": "acme", "gpus": { "types": ["H100"] }, "max_runtime_seconds": 60
        });
        server.call("POST", "/v1/jobs", job).await.expect(201);
    }
    let queue = "/v1/regions/default/queue";
    let whole = server.get(queue).await;
    let places: Vec<&Value> =
        whole["data"].as_array().expect("a list").iter().map(|one| &one["position"]).collect();
    assert_eq!(places, [1, 2, 3], "{whole}");
    assert_eq!(one_by_one(&server, queue, "job").await, ["j1", "j2", "j3"]);
}

#[tokio::test]
async fn resources_outside_the_scope_are_not_found_for_any_role() {
    let server = Server::start();
    server.tree().await;
    for role in ["agent", "viewer"] {
        let key = server.key(role, "acme:nlp").await;
        for list in ["grants", "holds", "jobs", "audit"] {
            for account in ["acme", "acme:vision", "umbra", "missing"] {
                let path = format!("/v1/{list}?account={account}");
                server.send("GET", &path, Value::Null, &key, &[]).await.problem("not_found");
            }
        }
    }
    // Inside it the role counts.
    let agent = server.key("agent", "acme:nlp").await;
    for list in ["grants", "holds", "jobs", "audit"] {
        for query in ["", "?account=acme:nlp", "?account=acme:nlp:x"] {
            let path = format!("/v1/{list}{query}");
            server.send("GET", &path, Value::Null, &agent, &[]).await.problem("forbidden");
        }
    }
}
