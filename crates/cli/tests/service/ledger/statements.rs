//! Entries and statements by the account that spent, trees of budgets, and forecasts.

use serde_json::{Value, json};

use crate::server::Server;

const MONTH: &str = "from=2020-01-01T00:00:00Z&to=2020-02-01T00:00:00Z";

async fn charge(server: &Server, id: &str, account: &str, amount: &str) {
    let body = json!({ "id": id, "account": account, "amount": amount });
    server.call("POST", "/v1/charges", body).await.expect(201);
}

/// Spending of three accounts over two days, of the credits of `acme` alone.
async fn spent(server: &Server) {
    server.tree().await;
    let grant = json!({
        "id": "g", "account": "acme", "amount": "1000", "kind": "purchase", "reference": "invoice-1"
    });
    server.call("POST", "/v1/grants", grant).await.expect(201);
    charge(server, "c1", "acme:nlp:x", "5").await;
    server.advance(1800).await;
    charge(server, "c2", "acme:vision", "7").await;
    let hold = json!({
        "id": "h", "account": "acme:nlp:x", "amount": "20", "ttl_seconds": 200_000,
        "reference": "run-7", "context": { "gpu_types": ["H100"], "class": "high" }
    });
    server.call("POST", "/v1/holds", hold).await.expect(201);
    server.call("POST", "/v1/holds/h/capture", json!({ "total": "4" })).await.expect(200);
    server.advance(86_400).await;
    server.call("POST", "/v1/holds/h/settle", json!({ "total": "6" })).await.expect(200);
    let refund = json!({ "id": "r", "charge": "c2", "amount": "3" });
    server.call("POST", "/v1/refunds", refund).await.expect(201);
}

fn rows<const N: usize>(list: &Value, fields: [&str; N]) -> Value {
    let list = list.as_array().expect("a list");
    list.iter()
        .map(|one| fields.map(|field| one[field].clone()).into_iter().collect::<Value>())
        .collect()
}

#[tokio::test]
async fn entries_name_the_spender_and_can_be_filtered() {
    let server = Server::start();
    spent(&server).await;
    let entries = async |account: &str, query: &str| {
        let path = format!("/v1/accounts/{account}/entries?{query}");
        server.get(&path).await["data"].clone()
    };
    assert_eq!(entries("acme:nlp:x", "").await, json!([]), "it owns no credits");
    let own = entries("acme:nlp:x", "view=spent").await;
    let expected = json!([
        ["returned", "acme", "14", "-14", "0"],
        ["captured", "acme", "0", "-2", "2"],
        ["captured", "acme", "0", "-4", "4"],
        ["held", "acme", "-20", "20", "0"],
        ["charged", "acme", "-5", "0", "5"],
    ]);
    let fields = ["type", "account", "available_change", "held_change", "spent_change"];
    assert_eq!(rows(&own, fields), expected);
    assert_eq!(own, entries("acme:nlp:x", "view=all").await);
    assert_eq!((&own[0]["spender"], &own[0]["reference"]), (&json!("acme:nlp:x"), &json!("run-7")));
    let granted = entries("acme", "type=granted").await;
    assert_eq!(rows(&granted, ["type", "reference"]), json!([["granted", "invoice-1"]]));
    let of_team = entries("acme", "spender=acme:nlp&type=captured,charged").await;
    let expected = json!([["captured", "2"], ["captured", "4"], ["charged", "5"]]);
    assert_eq!(rows(&of_team, ["type", "amount"]), expected);
    let second = entries("acme", "from=2020-01-02T00:00:00Z").await;
    assert_eq!(rows(&second, ["type"]), json!([["refunded"], ["returned"], ["captured"]]));
    let first = entries("acme", "to=2020-01-01T00:30:00Z").await;
    assert_eq!(rows(&first, ["type"]), json!([["charged"], ["granted"]]));
    assert_eq!(entries("acme", "job=no-such").await, json!([]));
    for (query, param) in [
        ("type=spent", "type"),
        ("type=", "type"),
        ("view=both", "view"),
        ("spender=a%20b", "spender"),
        ("from=2020-02-01T00:00:00Z&to=2020-01-01T00:00:00Z", "to"),
        ("cursor=x", "cursor"),
    ] {
        let path = format!("/v1/accounts/acme/entries?{query}");
        let problem = server.call("GET", &path, Value::Null).await.problem("invalid_field");
        assert_eq!(problem["param"], param, "{query}");
    }
}

fn micros(value: &Value) -> i128 {
    let sum: bursar_api::amount::Sum = serde_json::from_value(value.clone()).expect("an amount");
    sum.micros()
}

#[tokio::test]
async fn a_statement_has_a_line_for_what_was_spent_and_every_sum_adds_up() {
    let server = Server::start();
    spent(&server).await;
    let statement = async |account: &str, rest: &str| {
        server.get(&format!("/v1/accounts/{account}/statement?{MONTH}{rest}")).await
    };
    let org = statement("acme", "").await;
    assert_eq!((&org["opening"], &org["closing"]), (&json!("0"), &json!("985")));
    assert_eq!((&org["held_opening"], &org["held_closing"]), (&json!("0"), &json!("0")));
    assert_eq!((&org["spent"], &org["spending"]["total"]), (&json!("15"), &json!("15")));
    let sum = |list: &Value, field: &str| -> i128 {
        list.as_array().expect("lines").iter().map(|line| micros(&line[field])).sum()
    };
    for account in ["acme", "acme:nlp", "acme:nlp:x", "acme:vision", "umbra"] {
        for by in ["subtree", "account", "day", "job", "gpu_type", "class", "none", "label:team"] {
            for rest in ["", "&k=1"] {
                let found = statement(account, &format!("&by={by}{rest}")).await;
                let moved = |field: &str| sum(&found["movements"], field);
                assert_eq!(micros(&found["opening"]) + moved("amount"), micros(&found["closing"]));
                assert_eq!(
                    micros(&found["held_opening"]) + moved("held_change"),
                    micros(&found["held_closing"])
                );
                assert_eq!(moved("spent_change"), micros(&found["spent"]));
                let spending = &found["spending"];
                let lines = sum(&spending["lines"], "amount") + micros(&spending["other"]);
                assert_eq!(lines, micros(&spending["total"]), "{account} {by}");
                assert_eq!(spending["by"], by);
            }
        }
    }
    for (by, expected) in [
        ("subtree", json!([["acme:nlp", "11"], ["acme:vision", "4"]])),
        ("account", json!([["acme:nlp:x", "11"], ["acme:vision", "4"]])),
        ("day", json!([["2020-01-01", "16"], ["2020-01-02", "-1"]])),
        ("gpu_type", json!([[null, "9"], ["H100", "6"]])),
        ("class", json!([[null, "9"], ["high", "6"]])),
        ("job", json!([[null, "15"]])),
    ] {
        let found = statement("acme", &format!("&by={by}")).await;
        assert_eq!(rows(&found["spending"]["lines"], ["key", "amount"]), expected, "{by}");
    }
    let user = statement("acme:nlp:x", "").await;
    assert_eq!((&user["spent"], &user["spending"]["total"]), (&json!("0"), &json!("11")));
    // The parts of hours are exact too.
    let parts = "from=2020-01-01T00:30:00.000Z&to=2020-01-01T00:30:00.001Z";
    let found = server.get(&format!("/v1/accounts/acme/statement?{parts}")).await;
    let expected = json!([["acme:vision", "7"], ["acme:nlp", "4"]]);
    assert_eq!(rows(&found["spending"]["lines"], ["key", "amount"]), expected);
    let before = "from=2020-01-01T00:00:00.001Z&to=2020-01-01T00:30:00.000Z";
    let found = server.get(&format!("/v1/accounts/acme/statement?{before}")).await;
    assert_eq!(found["spending"]["total"], "0");
    for (query, param) in [("by=colour", "by"), ("k=0", "k"), ("k=101", "k")] {
        let path = format!("/v1/accounts/acme/statement?{MONTH}&{query}");
        let problem = server.call("GET", &path, Value::Null).await.problem("invalid_field");
        assert_eq!(problem["param"], param, "{query}");
    }
}

#[tokio::test]
async fn entries_and_statements_hide_other_accounts() {
    let server = Server::start();
    spent(&server).await;
    let key = server.key("viewer", "acme:nlp").await;
    let get = async |path: &str| server.send("GET", path, Value::Null, &key, &[]).await;
    let team = format!("/v1/accounts/acme:nlp/statement?{MONTH}&by=account");
    let team = get(&team).await.expect(200);
    assert!(!team.to_string().contains("vision"), "{team}");
    assert_eq!(team["spending"]["total"], "11");
    let path = "/v1/accounts/acme:nlp/entries?view=all&spender=acme:vision";
    assert_eq!(get(path).await.expect(200)["data"], json!([]));
    for path in ["entries?view=all".to_owned(), format!("statement?{MONTH}"), "budget-tree".into()]
    {
        for account in ["acme", "acme:vision", "umbra"] {
            get(&format!("/v1/accounts/{account}/{path}")).await.problem("not_found");
        }
    }
}

#[tokio::test]
async fn a_tree_of_budgets_says_which_one_refuses_first() {
    let server = Server::start();
    spent(&server).await;
    let set = async |account: &str, name: &str, limit: &str, mode: &str| {
        let path = format!("/v1/accounts/{account}/budgets/{name}");
        let body = json!({ "limit": limit, "period": "total", "mode": mode });
        server.call("PUT", &path, body).await.expect(200);
    };
    set("acme", "all", "100", "hard").await;
    set("acme", "hint", "10", "soft").await;
    set("acme:nlp", "team", "91", "hard").await;
    set("acme:nlp:x", "own", "11", "hard").await;
    set("umbra", "foreign", "1", "hard").await;
    let path = "/v1/accounts/acme:vision/budgets/gone";
    let body = json!({ "limit": "1", "period": "total", "mode": "hard" });
    server.call("PUT", path, body).await.expect(200);
    server.call("DELETE", path, Value::Null).await.expect(204);
    let tree = server.get("/v1/accounts/acme/budget-tree").await;
    let found: Vec<Value> = tree["levels"]
        .as_array()
        .expect("levels")
        .iter()
        .map(|level| {
            json!([
                level["account"],
                level["depth"],
                rows(&level["budgets"], ["name", "spent", "held", "limit", "remaining"]),
                rows(&level["binding"], ["account", "name", "remaining"]),
            ])
        })
        .collect();
    let expected = json!([
        [
            "acme",
            0,
            [["all", "15", "0", "100", "85"], ["hint", "15", "0", "10", "0"]],
            [["acme", "all", "85"]]
        ],
        ["acme:nlp", 1, [["team", "11", "0", "91", "80"]], [["acme:nlp", "team", "80"]]],
        ["acme:nlp:x", 2, [["own", "11", "0", "11", "0"]], [["acme:nlp:x", "own", "0"]]],
    ]);
    assert_eq!(Value::from(found), expected);
    assert_eq!(tree["has_more"], false);
    // An account without budgets shows which one above it binds.
    let vision = server.get("/v1/accounts/acme:vision/budget-tree").await;
    assert_eq!(vision["levels"].as_array().map(Vec::len), Some(1));
    let binding = rows(&vision["levels"][0]["binding"], ["account", "name"]);
    assert_eq!(binding, json!([["acme", "all"]]));
}

#[tokio::test]
async fn a_forecast_measures_the_window_that_is_asked_for() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "1000").await;
    let short = json!({
        "id": "short", "account": "acme", "amount": "100", "kind": "promotion",
        "expires_at": "2020-01-05T00:00:00Z"
    });
    server.call("POST", "/v1/grants", short).await.expect(201);
    server.advance(86_400).await;
    charge(&server, "c", "acme:nlp", "24").await;
    server.advance(3600).await;
    let day = server.get("/v1/accounts/acme/forecast").await;
    assert_eq!((&day["window"], &day["burn_per_hour"]), (&json!("24h"), &json!("1")));
    assert_eq!((&day["spendable"], &day["runway_seconds"]), (&json!("1076"), &json!(1076 * 3600)));
    assert_eq!(day["measured_from"], "2020-01-01T01:00:00.000Z");
    assert_eq!(
        (&day["month_spent"], &day["month_end"]),
        (&json!("24"), &json!("2020-02-01T00:00:00.000Z"))
    );
    // 30 days less one hour are left of the month.
    assert_eq!(day["month_projected"], json!((24 + 30 * 24 - 1).to_string()));
    // 71 hours are left until the rest of the short grant expires.
    assert_eq!(rows(&day["expiring"], ["amount", "at_risk"]), json!([["76", "5"]]));
    assert_eq!(day["at_risk"], "5");
    let hour = server.get("/v1/accounts/acme/forecast?window=1h").await;
    assert_eq!((&hour["burn_per_hour"], &hour["at_risk"]), (&json!("24"), &json!("0")));
    let week = server.get("/v1/accounts/acme:nlp/forecast?window=7d").await;
    assert_eq!(week["burn_per_hour"], "0.142857");
    let idle = server.get("/v1/accounts/acme:vision/forecast?window=1h").await;
    assert_eq!((&idle["burn_per_hour"], &idle["runway_seconds"]), (&json!("0"), &Value::Null));
    assert_eq!(idle["runs_out_at"], Value::Null);
    for window in ["", "24", "1w", "0h", "367d", "99999d"] {
        let path = format!("/v1/accounts/acme/forecast?window={window}");
        let problem = server.call("GET", &path, Value::Null).await.problem("invalid_field");
        assert_eq!(problem["param"], "window", "{window}");
    }
}
