//! Money as people ask for it: what an account can spend, what it spent, and its amounts over time.

use serde_json::{Value, json};

use crate::server::Server;

async fn charge(server: &Server, id: &str, account: &str, amount: &str) {
    let body = json!({ "id": id, "account": account, "amount": amount });
    server.call("POST", "/v1/charges", body).await.expect(201);
}

async fn budget(server: &Server, account: &str, name: &str, body: Value) {
    let path = format!("/v1/accounts/{account}/budgets/{name}");
    server.call("PUT", &path, body).await.expect(200);
}

fn pairs<'a>(list: &'a Value, names: [&str; 2]) -> Vec<(&'a Value, &'a Value)> {
    let list = list.as_array().expect("a list");
    list.iter().map(|one| (&one[names[0]], &one[names[1]])).collect()
}

#[tokio::test]
async fn an_account_sees_its_own_and_inherited_credits_and_the_budget_that_binds() {
    let server = Server::start();
    server.tree().await;
    let granted = server.grant("g", "acme", "100").await;
    let kind = granted["kind"].as_str().expect("a kind").to_owned();
    let short = json!({
        "id": "short", "account": "acme:nlp", "amount": "10", "kind": "promotion",
        "expires_at": "2020-01-02T00:00:00Z"
    });
    server.call("POST", "/v1/grants", short).await.expect(201);
    let month = |limit: &str| json!({ "limit": limit, "period": "month", "mode": "hard" });
    budget(&server, "acme", "all", month("90")).await;
    budget(&server, "acme:nlp", "team", month("50")).await;
    let soft = json!({ "limit": "1", "period": "total", "mode": "soft" });
    budget(&server, "acme:nlp:x", "hint", soft).await;
    let place = json!({ "id": "h", "account": "acme:nlp:x", "amount": "24" });
    server.call("POST", "/v1/holds", place).await.expect(201);
    server.call("POST", "/v1/holds/h/capture", json!({ "total": "7" })).await.expect(200);
    charge(&server, "c", "acme:nlp", "3").await;
    let body = json!({ "id": "r", "charge": "c", "amount": "1" });
    server.call("POST", "/v1/refunds", body).await.expect(201);

    let own = server.get("/v1/accounts/acme:nlp:x/effective").await;
    assert_eq!((&own["spendable"], &own["largest_hold"]), (&json!("84"), &json!("24")));
    assert_eq!((&own["held_by_me"], &own["spent_by_me"]), (&json!("17"), &json!("7")));
    assert_eq!(
        (&own["own"]["account"], &own["own"]["available"]),
        (&json!("acme:nlp:x"), &json!("0"))
    );
    let inherited = pairs(&own["inherited"], ["account", "available"]);
    assert_eq!(inherited, [(&json!("acme"), &json!("84"))]);
    assert_eq!(own["inherited"][0]["by_kind"][&kind], "84");
    let budgets: Vec<Value> = own["budgets"]
        .as_array()
        .expect("budgets")
        .iter()
        .map(|one| json!([one["account"], one["name"], one["remaining"], one["binds"]]))
        .collect();
    let expected = json!([
        ["acme:nlp:x", "hint", "0", false],
        ["acme:nlp", "team", "24", true],
        ["acme", "all", "64", false],
    ]);
    assert_eq!(Value::from(budgets), expected);

    let team = server.get("/v1/accounts/acme:nlp/effective").await;
    assert_eq!((&team["held_by_me"], &team["spent_by_me"]), (&json!("17"), &json!("9")));
    let other = server.get("/v1/accounts/acme:vision/effective").await;
    assert_eq!((&other["held_by_me"], &other["spent_by_me"]), (&json!("0"), &json!("0")));
    assert_eq!((&other["spendable"], &other["largest_hold"]), (&json!("84"), &json!("64")));
}

#[tokio::test]
async fn every_hard_budget_with_nothing_left_binds() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "100").await;
    let hard = |limit: &str| json!({ "limit": limit, "period": "total", "mode": "hard" });
    for (account, name, limit) in [("acme", "a", "9"), ("acme", "b", "50"), ("acme:nlp", "c", "9")]
    {
        budget(&server, account, name, hard(limit)).await;
    }
    charge(&server, "c", "acme:nlp", "9").await;
    let found = server.get("/v1/accounts/acme:nlp/effective").await;
    let binds = pairs(&found["budgets"], ["name", "binds"]);
    let expected = [("c", true), ("a", true), ("b", false)];
    let expected = expected.map(|(name, binds)| (json!(name), json!(binds)));
    assert_eq!(binds, expected.iter().map(|(a, b)| (a, b)).collect::<Vec<_>>());
    assert_eq!(found["largest_hold"], "0");
}

#[tokio::test]
async fn spending_counts_when_it_happens_and_refunds_reduce_it() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "1000").await;
    charge(&server, "c1", "acme:nlp:x", "5").await;
    server.advance(3600).await;
    charge(&server, "c2", "acme:vision", "7").await;
    let place = json!({ "id": "h", "account": "acme:nlp", "amount": "20", "ttl_seconds": 200_000 });
    server.call("POST", "/v1/holds", place).await.expect(201);
    server.call("POST", "/v1/holds/h/capture", json!({ "total": "4" })).await.expect(200);
    server.advance(86_400).await;
    server.call("POST", "/v1/holds/h/settle", json!({ "total": "6" })).await.expect(200);
    let body = json!({ "id": "r", "charge": "c2", "amount": "3" });
    server.call("POST", "/v1/refunds", body).await.expect(201);

    let range = "from=2020-01-01T00:00:00Z&to=2020-01-03T00:00:00Z";
    let path = |account: &str, rest: &str| format!("/v1/accounts/{account}/spend?{range}{rest}");
    let days = server.get(&path("acme", "&interval=day")).await;
    let points = pairs(&days["points"], ["at", "amount"]);
    let expected = [
        (&json!("2020-01-01T00:00:00.000Z"), &json!("16")),
        (&json!("2020-01-02T00:00:00.000Z"), &json!("-1")),
    ];
    assert_eq!(points, expected);
    assert_eq!((&days["total"], &days["other"]), (&json!("15"), &json!("0")));
    assert_eq!(days["series"][0]["points"], days["points"]);

    let by_account = server.get(&path("acme", "&by=account")).await;
    let totals = pairs(&by_account["series"], ["key", "total"]);
    let expected = [
        (&json!("acme:nlp"), &json!("6")),
        (&json!("acme:nlp:x"), &json!("5")),
        (&json!("acme:vision"), &json!("4")),
    ];
    assert_eq!(totals, expected);
    let by_subtree = server.get(&path("acme", "&by=subtree&k=1")).await;
    let totals = pairs(&by_subtree["series"], ["key", "total"]);
    assert_eq!(totals, [(&json!("acme:nlp"), &json!("11"))]);
    assert_eq!((&by_subtree["other"], &by_subtree["total"]), (&json!("4"), &json!("15")));
    let team = server.get(&path("acme:nlp", "&interval=hour")).await;
    assert_eq!(team["total"], "11");
    assert_eq!(team["points"].as_array().map(Vec::len), Some(48));
    assert_eq!(server.get(&path("umbra", "")).await["total"], "0");
    let default = server.get("/v1/accounts/acme/spend").await;
    assert_eq!((&default["interval"], &default["by"]), (&json!("day"), &json!("none")));
    assert_eq!(
        (&default["total"], &default["to"]),
        (&json!("15"), &json!("2020-01-02T02:00:00.000Z"))
    );
}

#[tokio::test]
async fn holds_name_what_they_are_spent_on_in_their_context() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "1000").await;
    for (id, amount, context) in [
        ("a", "5", json!({ "gpu_types": ["H100"], "regions": ["eu"], "class": "high" })),
        ("b", "7", json!({ "gpu_types": ["H100", "A100"], "regions": ["us"] })),
        ("c", "1", json!({})),
    ] {
        let place = json!({ "id": id, "account": "acme", "amount": amount, "context": context });
        server.call("POST", "/v1/holds", place).await.expect(201);
        let settle = json!({ "total": amount });
        server.call("POST", &format!("/v1/holds/{id}/settle"), settle).await.expect(200);
    }
    for (by, expected) in [
        ("gpu_type", json!([[null, "8"], ["H100", "5"]])),
        ("region", json!([["us", "7"], ["eu", "5"], [null, "1"]])),
        ("class", json!([[null, "8"], ["high", "5"]])),
        ("job", json!([[null, "13"]])),
        ("label:team", json!([[null, "13"]])),
    ] {
        let found = server.get(&format!("/v1/accounts/acme/spend?by={by}")).await;
        let totals: Vec<Value> = pairs(&found["series"], ["key", "total"])
            .into_iter()
            .map(|(key, total)| json!([key, total]))
            .collect();
        assert_eq!(Value::from(totals), expected, "{by}");
    }
}

#[tokio::test]
async fn series_are_exact_at_every_point() {
    let server = Server::start();
    server.tree().await;
    let short = json!({
        "id": "short", "account": "acme", "amount": "10", "kind": "promotion",
        "expires_at": "2020-01-01T00:30:00Z"
    });
    server.call("POST", "/v1/grants", short).await.expect(201);
    server.advance(600).await;
    let place = json!({ "id": "h", "account": "acme:nlp", "amount": "4" });
    server.call("POST", "/v1/holds", place).await.expect(201);
    server.advance(600).await;
    server.call("POST", "/v1/holds/h/settle", json!({ "total": "3" })).await.expect(200);
    server.advance(1200).await;
    for (metric, expected) in [
        ("available", json!(["10", "6", "7", "7", "0"])),
        ("held", json!(["0", "4", "0", "0", "0"])),
        ("spent", json!(["0", "0", "3", "3", "3"])),
        ("expired", json!(["0", "0", "0", "0", "7"])),
    ] {
        let query = format!("metric={metric}&from=2020-01-01T00:00:00Z&points=5");
        let found = server.get(&format!("/v1/accounts/acme/series?{query}")).await;
        let points = pairs(&found["points"], ["at", "amount"]);
        let amounts: Vec<&Value> = points.iter().map(|(_, amount)| *amount).collect();
        assert_eq!(json!(amounts), expected, "{metric}");
        assert_eq!(points[1].0, &json!("2020-01-01T00:10:00.000Z"));
        assert_eq!(points[4].0, &json!("2020-01-01T00:40:00.000Z"));
    }
    let later = "/v1/accounts/acme/series?metric=spent&to=2030-01-01T00:00:00Z&points=2";
    let found = server.get(later).await;
    assert_eq!(found["points"][1]["at"], "2020-01-01T00:40:00.000Z", "nothing is known of later");
}

#[tokio::test]
async fn reports_are_bounded_and_wrong_parameters_are_named() {
    let server = Server::start();
    server.tree().await;
    for (path, param) in [
        ("spend?k=0", "k"),
        ("spend?k=101", "k"),
        ("spend?by=colour", "by"),
        ("spend?by=label:", "by"),
        ("spend?interval=minute", "interval"),
        ("spend?interval=hour&from=2010-01-01T00:00:00Z", "interval"),
        ("spend?interval=hour&k=100", "interval"),
        ("spend?from=2020-02-01T00:00:00Z&to=2020-01-01T00:00:00Z", "to"),
        ("series", "metric"),
        ("series?metric=colour", "metric"),
        ("series?metric=held&points=1", "points"),
        ("series?metric=held&points=501", "points"),
        ("effective?gpu_type=a%20b", "gpu_type"),
    ] {
        let path = format!("/v1/accounts/acme/{path}");
        let problem = server.call("GET", &path, Value::Null).await.problem("invalid_field");
        assert_eq!(problem["param"], param, "{path}");
    }
}

#[tokio::test]
async fn money_of_other_accounts_and_tenants_is_not_shown() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "100").await;
    server.grant("u", "umbra", "100").await;
    charge(&server, "c1", "acme:nlp:x", "5").await;
    charge(&server, "c2", "acme:vision", "7").await;
    charge(&server, "c3", "umbra", "9").await;
    let paths = ["effective", "spend", "series?metric=spent", "spend?by=account", "spend?by=job"];
    for (scope, seen, hidden) in [
        ("acme:nlp", &["acme:nlp", "acme:nlp:x"][..], &["acme", "acme:vision", "umbra"][..]),
        ("umbra", &["umbra"][..], &["acme", "acme:nlp", "acme:nlp:x", "acme:vision"][..]),
    ] {
        let key = server.key("viewer", scope).await;
        for path in paths {
            let get = async |account: &str| {
                let path = format!("/v1/accounts/{account}/{path}");
                server.send("GET", &path, Value::Null, &key, &[]).await
            };
            for account in seen {
                let body = get(account).await.expect(200).to_string();
                assert!(!body.contains("vision"), "{body}");
                assert!(scope != "umbra" || !body.contains("acme"), "{body}");
            }
            for account in hidden {
                get(account).await.problem("not_found");
            }
        }
        let agent = server.key("agent", scope).await;
        let path = format!("/v1/accounts/{scope}/spend");
        server.send("GET", &path, Value::Null, &agent, &[]).await.problem("forbidden");
    }
    let key = server.key("viewer", "acme:nlp").await;
    let path = "/v1/accounts/acme:nlp/spend?by=account";
    let spend = server.send("GET", path, Value::Null, &key, &[]).await.expect(200);
    assert_eq!((&spend["total"], &spend["series"][0]["key"]), (&json!("5"), &json!("acme:nlp:x")));
}
