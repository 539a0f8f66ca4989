//! Lists of charges, refunds and transfers, and refunds with a reason.

use serde_json::{Value, json};

use crate::server::Server;

/// Charges, refunds and transfers on two days.
async fn moved(server: &Server) {
    server.tree().await;
    server.grant("g", "acme", "1000").await;
    server.grant("u", "umbra", "1000").await;
    for (id, account, amount) in
        [("c1", "acme:nlp:x", "5"), ("c2", "acme:vision", "7"), ("c3", "acme", "2")]
    {
        charge(server, id, account, amount).await;
    }
    server.advance(1).await;
    charge(server, "foreign", "umbra", "9").await;
    let refund = json!({
        "id": "r1", "charge": "c1", "amount": "1", "reason": "The node failed",
        "reference": "ticket-7"
    });
    server.call("POST", "/v1/refunds", refund).await.expect(201);
    server.advance(86_400).await;
    charge(server, "c4", "acme:nlp", "3").await;
    let refund = json!({ "id": "r2", "charge": "c2" });
    server.call("POST", "/v1/refunds", refund).await.expect(201);
    for (id, from, to, amount) in
        [("t1", "acme", "acme:nlp", "40"), ("t2", "acme:nlp", "acme:vision", "15")]
    {
        let body = json!({ "id": id, "from": from, "to": to, "amount": amount });
        server.call("POST", "/v1/transfers", body).await.expect(201);
    }
}

async fn charge(server: &Server, id: &str, account: &str, amount: &str) {
    let body = json!({ "id": id, "account": account, "amount": amount });
    server.call("POST", "/v1/charges", body).await.expect(201);
}

fn ids(list: &Value) -> Vec<&str> {
    let rows = list["data"].as_array().expect("a list");
    rows.iter().map(|row| row["id"].as_str().expect("an id")).collect()
}

#[tokio::test]
async fn charges_refunds_and_transfers_are_listed_by_account_and_period() {
    let server = Server::start();
    moved(&server).await;
    let later = "from=2020-01-02T00:00:00Z";
    let earlier = "to=2020-01-02T00:00:00Z";
    for (path, expected) in [
        ("charges?account=acme", vec!["c4", "c3", "c2", "c1"]),
        ("charges?account=acme:nlp", vec!["c4", "c1"]),
        ("charges?account=acme:nlp:x", vec!["c1"]),
        ("charges", vec!["c4", "foreign", "c3", "c2", "c1"]),
        ("refunds?account=acme", vec!["r2", "r1"]),
        ("refunds?account=acme:nlp", vec!["r1"]),
        ("refunds?account=acme&charge=c2", vec!["r2"]),
        ("refunds?account=umbra&charge=c2", vec![]),
        ("refunds?hold=c2", vec![]),
        ("transfers?account=acme:nlp", vec!["t2", "t1"]),
        ("transfers?account=acme:vision", vec!["t2"]),
        ("transfers?account=umbra", vec![]),
    ] {
        assert_eq!(ids(&server.get(&format!("/v1/{path}")).await), expected, "{path}");
    }
    for (list, new, old) in
        [("charges", vec!["c4"], vec!["c3", "c2", "c1"]), ("refunds", vec!["r2"], vec!["r1"])]
    {
        let path = |period: &str| format!("/v1/{list}?account=acme&{period}");
        assert_eq!(ids(&server.get(&path(later)).await), new);
        assert_eq!(ids(&server.get(&path(earlier)).await), old);
        let backwards = path(&format!("{later}&to=2020-01-01T00:00:00Z"));
        let problem = server.call("GET", &backwards, Value::Null);
        assert_eq!(problem.await.problem("invalid_field")["param"], "to");
    }
    let mut seen = Vec::new();
    let mut path = "/v1/charges?account=acme&limit=1".to_owned();
    loop {
        let page = server.get(&path).await;
        seen.extend(ids(&page).into_iter().map(str::to_owned));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/v1/charges?account=acme&limit=1&cursor={cursor}");
    }
    assert_eq!(seen, ["c4", "c3", "c2", "c1"]);
    for path in ["charges?cursor=x", "refunds?limit=0", "transfers?limit=101", "charges?id=c1"] {
        server.call("GET", &format!("/v1/{path}"), Value::Null).await.problem("invalid_field");
    }
    let both = server.call("GET", "/v1/refunds?charge=a&job=b", Value::Null).await;
    assert_eq!(both.problem("invalid_field")["param"], "charge");
}

#[tokio::test]
async fn a_listed_movement_is_the_one_that_is_read_by_its_id() {
    let server = Server::start();
    moved(&server).await;
    for list in ["charges", "refunds", "transfers"] {
        let page = server.get(&format!("/v1/{list}?account=acme")).await;
        for row in page["data"].as_array().expect("a list") {
            let id = row["id"].as_str().expect("an id");
            let mut one = server.get(&format!("/v1/{list}/{id}")).await;
            for field in ["as_of", "position"] {
                assert!(one[field].take() != Value::Null, "{list} {id} {field}");
                one.as_object_mut().expect("an object").remove(field);
            }
            assert_eq!(*row, one);
        }
    }
    for path in ["/v1/refunds/no-such", "/v1/transfers/r1", "/v1/refunds/t1"] {
        server.call("GET", path, Value::Null).await.problem("not_found");
    }
}

#[tokio::test]
async fn a_refund_keeps_its_reason_and_reference() {
    let server = Server::start();
    moved(&server).await;
    let body = json!({
        "id": "r3", "charge": "c4", "amount": "1", "reason": "Wrong account",
        "reference": "ticket-8"
    });
    let made = server.call("POST", "/v1/refunds", body.clone()).await.expect(201);
    assert_eq!((&made["reason"], &made["reference"]), (&body["reason"], &body["reference"]));
    let again = server.call("POST", "/v1/refunds", body.clone()).await.expect(200);
    assert_eq!(again, made);
    let mut other = body.clone();
    other["reason"] = json!("Another reason");
    server.call("POST", "/v1/refunds", other).await.problem("already_exists");
    let found = server.get("/v1/refunds/r3").await;
    assert_eq!((&found["reason"], &found["reference"]), (&body["reason"], &body["reference"]));
    assert_eq!((&found["account"], &found["charge"]), (&json!("acme:nlp"), &json!("c4")));
    assert_eq!((&found["refunded"], &found["lots"]), (&made["refunded"], &made["lots"]));
    assert_eq!(found["created_at"], "2020-01-02T00:00:01.000Z");
    let plain = server.get("/v1/refunds/r2").await;
    assert_eq!((&plain["reason"], &plain["reference"]), (&Value::Null, &Value::Null));
    let entries = server.get("/v1/accounts/acme/entries?type=refunded").await;
    let rows: Vec<Value> = entries["data"]
        .as_array()
        .expect("entries")
        .iter()
        .map(|row| json!([row["refund"], row["spender"], row["spent_change"], row["reference"]]))
        .collect();
    let expected = json!([
        ["r3", "acme:nlp", "-1", "ticket-8"],
        ["r2", "acme:vision", "-7", null],
        ["r1", "acme:nlp:x", "-1", "ticket-7"],
    ]);
    assert_eq!(Value::from(rows), expected);
    assert_eq!(entries["data"][0]["reason"], "Wrong account");
    let long = json!({ "charge": "c4", "reason": "x".repeat(1025) });
    let problem = server.call("POST", "/v1/refunds", long).await.problem("invalid_field");
    assert_eq!(problem["param"], "reason");
}

#[tokio::test]
async fn a_transfer_keeps_its_reason_and_reference() {
    let server = Server::start();
    moved(&server).await;
    let body = json!({
        "id": "t9", "from": "acme", "to": "acme:nlp", "amount": "1", "reason": "Second quarter",
        "reference": "ticket-9"
    });
    let made = server.call("POST", "/v1/transfers", body.clone()).await.expect(201);
    assert_eq!((&made["reason"], &made["reference"]), (&body["reason"], &body["reference"]));
    let again = server.call("POST", "/v1/transfers", body.clone()).await.expect(200);
    assert_eq!(again, made);
    let mut other = body.clone();
    other["reason"] = json!("Another reason");
    server.call("POST", "/v1/transfers", other).await.problem("already_exists");
    let found = server.get("/v1/transfers/t9").await;
    assert_eq!((&found["reason"], &found["reference"]), (&body["reason"], &body["reference"]));
    let plain = server.get("/v1/transfers/t1").await;
    assert_eq!((&plain["reason"], &plain["reference"]), (&Value::Null, &Value::Null));
    let entries = server.get("/v1/accounts/acme/entries?type=moved").await;
    let entry = &entries["data"][0];
    assert_eq!((&entry["reason"], &entry["reference"]), (&body["reason"], &body["reference"]));
    let long =
        json!({ "from": "acme", "to": "acme:nlp", "amount": "1", "reason": "x".repeat(1025) });
    let problem = server.call("POST", "/v1/transfers", long).await.problem("invalid_field");
    assert_eq!(problem["param"], "reason");
}

#[tokio::test]
async fn lists_show_nothing_outside_the_scope_of_a_key() {
    let server = Server::start();
    moved(&server).await;
    let key = server.key("viewer", "acme:nlp").await;
    let get = async |path: &str| server.send("GET", path, Value::Null, &key, &[]).await;
    for (list, expected) in
        [("charges", vec!["c4", "c1"]), ("refunds", vec!["r1"]), ("transfers", vec!["t2", "t1"])]
    {
        let page = get(&format!("/v1/{list}")).await.expect(200);
        assert_eq!(ids(&page), expected, "{list}");
        for hidden in ["acme", "acme:vision", "umbra", "acme:none"] {
            get(&format!("/v1/{list}?account={hidden}")).await.problem("not_found");
        }
    }
    for path in ["/v1/refunds/r2", "/v1/charges/c2"] {
        get(path).await.problem("not_found");
    }
    // The other side of a transfer is outside the scope.
    let incoming = get("/v1/transfers/t1").await.expect(200);
    assert_eq!((&incoming["from"], &incoming["to"]), (&json!("other"), &json!("acme:nlp")));
    assert_eq!((&incoming["amount"], &incoming["lots"]), (&json!("40"), &json!([])));
    let outgoing = get("/v1/transfers/t2").await.expect(200);
    assert_eq!((&outgoing["from"], &outgoing["to"]), (&json!("acme:nlp"), &json!("other")));
    assert_eq!(outgoing["lots"][0]["amount"], "15");
    let agent = server.key("agent", "acme").await;
    for list in ["charges", "refunds", "transfers"] {
        let path = format!("/v1/{list}");
        server.send("GET", &path, Value::Null, &agent, &[]).await.problem("forbidden");
    }
    // The same id in two tenants is ambiguous for a key of the whole platform alone.
    charge(&server, "c", "umbra", "1").await;
    let body = json!({ "id": "r1", "charge": "c" });
    let umbra = [("Bursar-Tenant", "umbra")];
    server.send("POST", "/v1/refunds", body, &server.root, &umbra).await.expect(201);
    server.call("GET", "/v1/refunds/r1", Value::Null).await.problem("ambiguous_id");
    assert_eq!(get("/v1/refunds/r1").await.expect(200)["account"], "acme:nlp:x");
    let found = server.send("GET", "/v1/refunds/r1", Value::Null, &server.root, &umbra).await;
    assert_eq!(found.expect(200)["account"], "umbra");
}

#[tokio::test]
async fn entries_of_a_subtree_are_those_of_every_account_in_it() {
    let server = Server::start();
    moved(&server).await;
    let all = server.get("/v1/accounts/acme/entries?view=subtree&limit=100").await;
    let owners = |list: &Value, field: &str| -> Vec<String> {
        let rows = list["data"].as_array().expect("a list").iter();
        let named = rows.filter_map(|row| row[field].as_str()).map(str::to_owned);
        named.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
    };
    assert_eq!(owners(&all, "account"), ["acme", "acme:nlp", "acme:vision"]);
    let nlp = server.get("/v1/accounts/acme:nlp/entries?view=subtree&limit=100").await;
    assert_eq!(owners(&nlp, "account"), ["acme", "acme:nlp"]);
    assert_eq!(owners(&nlp, "spender"), ["acme:nlp", "acme:nlp:x"]);
    let spent = server.get("/v1/accounts/acme:nlp/entries?view=subtree&type=charged").await;
    assert_eq!(spent["data"].as_array().map(Vec::len), Some(2), "{spent}");
    let viewer = server.key("viewer", "acme:nlp").await;
    let path = "/v1/accounts/acme/entries?view=subtree";
    server.send("GET", path, Value::Null, &viewer, &[]).await.problem("not_found");
}
