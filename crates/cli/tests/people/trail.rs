//! The trail of what people do: where the record of a change is, and who made it.

use serde_json::{Value, json};

use crate::server::{Answer, Server};

fn position(answer: &Answer) -> String {
    let header = answer.headers.get("bursar-position").expect("a position");
    header.to_str().expect("ascii").to_owned()
}

fn positions(list: &Value) -> Vec<u64> {
    let records = list["data"].as_array().expect("records").iter();
    records.map(|record| record["position"].as_u64().expect("a position")).collect()
}

#[tokio::test]
async fn a_change_of_every_machine_says_where_its_record_is() {
    let server = Server::start();
    server.tree().await;
    let number = |text: &str, machine: &str| {
        let place = text.strip_prefix(machine).and_then(|rest| rest.strip_prefix(':'));
        place.and_then(|place| place.parse::<u64>().ok()).unwrap_or_else(|| panic!("{text}"))
    };
    let key = json!({ "id": "k", "role": "viewer", "scope": "acme", "name": "n" });
    let made = server.call("POST", "/v1/keys", key).await;
    let first = number(&position(&made), "directory");
    let price = server.call("PUT", "/v1/prices/T4", json!({ "per_gpu_hour": "1" })).await;
    let second = number(&position(&price), "directory");
    let revoked = server.call("DELETE", "/v1/keys/k", Value::Null).await;
    let third = number(&position(&revoked), "directory");
    assert!(first < second && second < third, "{first} {second} {third}");
    let node = json!({
        "id": "n1", "region": "default", "cpus": 8, "memory_gib": 64,
        "gpus": [{ "uuid": "GPU-1", "type": "T4", "memory_gib": 16 }]
    });
    server.call("POST", "/v1/nodes", node).await.expect(201);
    let headers = [("Idempotency-Key", "once")];
    let drain = async || {
        let (path, body) = ("/v1/nodes/n1/drain", json!({ "force": false }));
        server.send("POST", path, body, &server.root, &headers).await
    };
    let drained = number(&position(&drain().await), "cell-default");
    // The answer to a repeat is the stored one; it made no record.
    let again = drain().await;
    assert!(again.is_replayed() && !again.headers.contains_key("bursar-position"));
    let resumed = server.call("POST", "/v1/nodes/n1/resume", json!({})).await;
    assert!(number(&position(&resumed), "cell-default") > drained);
    let granted = json!({ "account": "acme", "amount": "1", "kind": "purchase" });
    let granted = server.call("POST", "/v1/grants", granted).await;
    assert!(position(&granted).parse::<u64>().is_ok(), "the ledger's is a number");
}

#[tokio::test]
async fn a_record_is_found_by_its_position_and_the_records_of_an_actor_by_its_id() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "50").await;
    let key = json!({ "id": "spender", "role": "submitter", "scope": "acme:nlp", "name": "n" });
    let key = server.call("POST", "/v1/keys", key).await.expect(201);
    let secret = key["key"].as_str().expect("shown once").to_owned();
    let mut own = Vec::new();
    for id in ["a", "b", "c"] {
        let charge = json!({ "id": id, "account": "acme:nlp", "amount": "1" });
        let made = server.send("POST", "/v1/charges", charge, &secret, &[]).await;
        own.push(position(&made).parse::<u64>().expect("a number"));
        // Records of others between them.
        for other in 0..15 {
            let charge =
                json!({ "id": format!("{id}{other}"), "account": "acme", "amount": "0.1" });
            server.call("POST", "/v1/charges", charge).await.expect(201);
        }
    }
    let at = async |position: u64, key: &str| {
        let path = format!("/v1/audit?position={position}");
        server.send("GET", &path, Value::Null, key, &[]).await.expect(200)
    };
    for position in &own {
        let found = at(*position, &server.root).await;
        assert_eq!((positions(&found), &found["has_more"]), (vec![*position], &json!(false)));
        assert_eq!(found["data"][0]["actor"], "spender");
    }
    assert_eq!(positions(&at(1_000_000, &server.root).await), Vec::<u64>::new());
    assert_eq!(positions(&at(u64::MAX, &server.root).await), Vec::<u64>::new());
    // A scope sees its own records alone, also by position.
    let auditor = server.key("auditor", "acme:nlp").await;
    assert_eq!(positions(&at(own[0], &auditor).await), [own[0]]);
    assert_eq!(positions(&at(own[0] + 1, &auditor).await), Vec::<u64>::new());
    own.reverse();
    let mut found = Vec::new();
    let mut path = "/v1/audit?actor=spender&limit=2".to_owned();
    loop {
        let page = server.get(&path).await;
        assert!(page["data"].as_array().is_some_and(|records| records.len() <= 2));
        found.extend(positions(&page));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/v1/audit?actor=spender&limit=2&cursor={cursor}");
    }
    assert_eq!(found, own);
    assert_eq!(positions(&server.get("/v1/audit?actor=stranger").await), Vec::<u64>::new());
}

#[tokio::test]
async fn entries_that_name_a_grant_are_found() {
    let server = Server::start();
    server.tree().await;
    server.grant("first", "acme", "5").await;
    server.grant("second", "acme", "5").await;
    let charge = json!({ "id": "c", "account": "acme:nlp", "amount": "7" });
    server.call("POST", "/v1/charges", charge).await.expect(201);
    let entries = async |grant: &str| {
        let list = server.get(&format!("/v1/accounts/acme/entries?grant={grant}")).await;
        let rows = list["data"].as_array().expect("entries").clone();
        assert!(rows.iter().all(|row| row["grant"] == *grant), "{rows:?}");
        rows.len()
    };
    // A charge over several grants names none of them in its entry; its lots do.
    assert_eq!((entries("first").await, entries("second").await), (1, 1));
    server.call("POST", "/v1/grants/second/revoke", json!({})).await.expect(200);
    assert_eq!((entries("first").await, entries("second").await), (1, 2));
    assert_eq!(entries("third").await, 0);
}
