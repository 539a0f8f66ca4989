//! Reading: balances in time, lists, entries, statements, consistency tokens.

use serde_json::{Value, json};

use crate::server::Server;

#[tokio::test]
async fn a_balance_is_known_in_the_past_the_present_and_the_future() {
    let server = Server::start();
    server.tree().await;
    let later = json!({
        "id": "later", "account": "acme", "amount": "7", "kind": "grant",
        "effective_at": "2020-01-03T00:00:00Z"
    });
    server.call("POST", "/v1/grants", later).await.expect(201);
    let short = json!({
        "id": "short", "account": "acme", "amount": "10", "kind": "promotion",
        "expires_at": "2020-01-02T00:00:00Z"
    });
    server.call("POST", "/v1/grants", short).await.expect(201);
    server.advance(60).await;
    server
        .call("POST", "/v1/charges", json!({ "account": "acme", "amount": "4" }))
        .await
        .expect(201);
    let at = async |query: &str| {
        let balance = server.get(&format!("/v1/accounts/acme/balance{query}")).await;
        let field = |name: &str| balance[name].as_str().expect("an amount").to_owned();
        (field("available"), field("spendable"), balance["by_kind"]["promotion"].clone())
    };
    let expected = |available: &str, promotion: &str| {
        (available.to_owned(), available.to_owned(), json!(promotion))
    };
    assert_eq!(at("").await, expected("6", "6"));
    assert_eq!(at("?at=2020-01-01T00:00:30Z").await, expected("10", "10"));
    assert_eq!(at("?at=2019-01-01T00:00:00Z").await, expected("0", "0"));
    assert_eq!(at("?at=2020-01-02T12:00:00Z").await, expected("0", "0"));
    assert_eq!(at("?at=2020-01-03T00:00:00Z").await, expected("7", "0"));
    let balance = server.get("/v1/accounts/acme/balance").await;
    let expiring = json!([
        { "expires_at": "2020-01-02T00:00:00.000Z", "amount": "6", "kind": "promotion" }
    ]);
    assert_eq!(balance["expiring"], expiring);
    let below = server.get("/v1/accounts/acme:nlp/balance").await;
    assert_eq!((&below["available"], &below["spendable"]), (&json!("0"), &json!("6")));
}

#[tokio::test]
async fn entries_and_statements_add_up() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "10").await;
    let place = json!({ "id": "h", "account": "acme", "amount": "4" });
    server.call("POST", "/v1/holds", place).await.expect(201);
    server.call("POST", "/v1/holds/h/settle", json!({ "total": "3" })).await.expect(200);
    let entries = server.get("/v1/accounts/acme/entries").await;
    let shown: Vec<(&str, &str, &str)> = entries["data"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|entry| {
            let field = |name: &str| entry[name].as_str().expect("text");
            (field("type"), field("amount"), field("balance_after"))
        })
        .collect();
    let expected = [
        ("returned", "1", "7"),
        ("captured", "3", "6"),
        ("held", "4", "6"),
        ("granted", "10", "10"),
    ];
    assert_eq!(shown, expected);
    let range = "from=2020-01-01T00:00:00Z&to=2020-02-01T00:00:00Z";
    let statement = server.get(&format!("/v1/accounts/acme/statement?{range}")).await;
    let micros = |value: &Value| {
        let sum: bursar_api::amount::Sum =
            serde_json::from_value(value.clone()).expect("an amount");
        sum.micros()
    };
    let moved: i128 = statement["movements"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|line| micros(&line["amount"]))
        .sum();
    assert_eq!(micros(&statement["opening"]) + moved, micros(&statement["closing"]));
    assert_eq!(statement["closing"], "7");
    let forecast = server.get("/v1/accounts/acme/forecast").await;
    assert_eq!(
        (&forecast["burn_per_hour"], &forecast["spendable"]),
        (&json!("0.125"), &json!("7"))
    );
    assert_eq!(forecast["runway_seconds"], 201_600);
    let top = server.get("/v1/top?kind=org&by=spent&window=24h&k=3").await;
    assert_eq!(top["data"], json!([{ "id": "acme", "value": "3" }]));
}

#[tokio::test]
async fn lists_go_on_where_the_page_before_ended() {
    let server = Server::start();
    server.tree().await;
    for number in 0..7 {
        server.grant(&format!("g{number}"), "acme", "1").await;
        let place = json!({ "id": format!("h{number}"), "account": "acme:nlp", "amount": "1" });
        server.call("POST", "/v1/holds", place).await.expect(201);
        server.advance(1).await;
    }
    for path in ["/v1/grants?account=acme&", "/v1/holds?account=acme:nlp&", "/v1/holds?state=open&"]
    {
        let mut seen: Vec<String> = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = server.get(&format!("{path}limit=3{cursor}")).await;
            let data = page["data"].as_array().expect("a list");
            seen.extend(data.iter().map(|one| one["id"].as_str().expect("an id").to_owned()));
            assert_eq!(page["has_more"], page["next_cursor"].is_string());
            assert!(page["position"].is_u64());
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        let letter = if path.contains("grants") { 'g' } else { 'h' };
        let newest_first: Vec<String> = (0..7).rev().map(|n| format!("{letter}{n}")).collect();
        assert_eq!(seen, newest_first, "{path}");
    }
    let accounts = server.get("/v1/accounts?parent=acme").await;
    let ids: Vec<&Value> =
        accounts["data"].as_array().expect("a list").iter().map(|one| &one["id"]).collect();
    assert_eq!(ids, [&json!("acme:vision"), &json!("acme:nlp")]);
    assert_eq!(server.get("/v1/accounts?prefix=um").await["data"][0]["id"], "umbra");
    for path in
        ["/v1/grants?limit=0", "/v1/grants?limit=101", "/v1/holds?cursor=x", "/v1/grants?x=1"]
    {
        server.call("GET", path, Value::Null).await.problem("invalid_field");
    }
}

#[tokio::test]
async fn a_read_waits_for_the_position_of_a_write() {
    let server = Server::start();
    server.tree().await;
    let body = json!({ "account": "acme", "amount": "1", "kind": "grant" });
    let written = server.call("POST", "/v1/grants", body).await;
    let position = written.headers["bursar-position"].to_str().expect("a number").to_owned();
    let path = format!("/v1/accounts/acme/balance?min_position={position}");
    assert_eq!(server.get(&path).await["available"], "1");
    let entries = format!("/v1/accounts/acme/entries?min_position={position}");
    assert_eq!(server.get(&entries).await["data"][0]["type"], "granted");
    let never = "/v1/accounts/acme/balance?min_position=999";
    server.call("GET", never, Value::Null).await.problem("unavailable");
    for wrong in ["x", "-1", "999999999"] {
        let path = format!("/v1/accounts/acme/balance?min_position={wrong}");
        let problem = server.call("GET", &path, Value::Null).await.problem("invalid_field");
        assert_eq!(problem["param"], "min_position");
    }
}

#[tokio::test]
async fn the_price_book_has_versions_that_count_from_their_instant() {
    let server = Server::start();
    for (price, from) in [("2", Value::Null), ("3", json!("2020-01-02T00:00:00Z"))] {
        let mut body = json!({ "per_gpu_hour": price });
        if from.is_string() {
            body["effective_at"] = from;
        }
        server.call("PUT", "/v1/prices/H100", body).await.expect(200);
    }
    let price = async |query: &str| {
        server.get(&format!("/v1/prices{query}")).await["data"][0]["per_gpu_hour"].clone()
    };
    assert_eq!(price("").await, "2");
    assert_eq!(price("?at=2020-01-02T00:00:00Z").await, "3");
    assert_eq!(price("?at=2019-01-02T00:00:00Z").await, Value::Null);
    let class = json!({
        "rank": 25, "preempts": ["batch"], "grace_seconds": 5, "default_preemptible": true,
        "price_multiplier": "1.5"
    });
    server.call("PUT", "/v1/classes/burst", class).await.expect(200);
    let classes = server.get("/v1/classes").await;
    assert_eq!(classes["data"].as_array().map(Vec::len), Some(5));
    assert_eq!(server.get("/v1/regions").await["data"][0]["id"], "default");
}

#[tokio::test]
async fn a_balance_that_may_be_stale_says_how_far_it_is_and_waits_when_asked_to() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "10").await;
    let strong = server.get("/v1/accounts/acme/balance").await;
    let position = strong["position"].as_u64().expect("a number");
    let path = format!("/v1/accounts/acme/balance?stale_ok=true&min_position={position}");
    let stale = server.get(&path).await;
    assert!(stale["position"].as_u64() >= Some(position));
    assert_eq!((&stale["available"], &stale["spendable"]), (&json!("10"), &json!("10")));
    server.get("/v1/accounts/acme/balance?stale_ok=false").await;
    let wrong = server.call("GET", "/v1/accounts/acme/balance?stale_ok=maybe", Value::Null).await;
    assert_eq!(wrong.problem("invalid_field")["param"], "stale_ok");
}

#[tokio::test]
async fn a_key_with_a_scope_sees_the_decisions_of_its_subtree_and_no_others() {
    let server = Server::start();
    server.tree().await;
    server.grant("g-acme", "acme", "10").await;
    server.grant("g-nlp", "acme:nlp:x", "10").await;
    server.grant("g-vision", "acme:vision", "10").await;
    server.grant("g-umbra", "umbra", "10").await;
    let commands = async |scope: &str, query: &str| {
        let key = server.key("auditor", scope).await;
        let path = format!("/v1/audit{query}");
        let answer = server.send("GET", &path, Value::Null, &key, &[]).await;
        (answer.status, answer.body["data"].as_array().map(Vec::len))
    };
    assert_eq!(commands("acme", "").await, (200, Some(4 + 3)), "four accounts, three grants");
    assert_eq!(commands("acme:nlp", "").await, (200, Some(2 + 1)));
    assert_eq!(commands("acme", "?account=acme:nlp").await, (200, Some(3)));
    assert_eq!(commands("umbra", "").await, (200, Some(2)));
    assert_eq!(commands("acme:nlp", "?account=acme").await.0, 404);
    assert_eq!(commands("acme", "?account=umbra").await.0, 404);
    let all = server.get("/v1/audit?limit=100").await;
    assert_eq!(all["data"].as_array().map(Vec::len), Some(1 + 5 + 4), "and one region");
}
