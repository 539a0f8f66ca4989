//! The audit trail of cells and of the directory: records, scopes, pages and proofs.

use std::process::Command;

use serde_json::{Value, json};

use crate::server::{Answer, Server};

/// The machine and the position in the answer to a change.
fn place(answer: &Answer) -> (String, u64) {
    let header = answer.headers["bursar-position"].to_str().expect("ascii");
    let (machine, position) = header.split_once(':').expect("a machine and a position");
    (machine.to_owned(), position.parse().expect("a number"))
}

fn records(list: &Value) -> &[Value] {
    list["data"].as_array().expect("records")
}

fn positions(list: &Value) -> Vec<u64> {
    let records = records(list).iter();
    records.map(|record| record["position"].as_u64().expect("a position")).collect()
}

fn node(id: &str) -> Value {
    json!({
        "id": id, "region": "default", "cpus": 8, "memory_gib": 64,
        "gpus": [{ "uuid": format!("GPU-{id}"), "type": "T4", "memory_gib": 16 }]
    })
}

async fn seen_by(server: &Server, key: &str, path: &str) -> Value {
    server.send("GET", path, Value::Null, key, &[]).await.expect(200)
}

#[tokio::test]
async fn a_record_of_a_cell_or_of_the_directory_is_found_at_its_place() {
    let server = Server::start();
    server.tree().await;
    let key = json!({ "id": "k", "role": "viewer", "scope": "acme", "name": "n" });
    let made = server.call("POST", "/v1/keys", key).await;
    let price = server.call("PUT", "/v1/prices/T4", json!({ "per_gpu_hour": "1" })).await;
    let revoked = server.call("DELETE", "/v1/keys/k", Value::Null).await;
    server.call("POST", "/v1/nodes", node("n1")).await.expect(201);
    let drained = server.call("POST", "/v1/nodes/n1/drain", json!({ "force": false })).await;
    let removed = server.call("DELETE", "/v1/nodes/n1", Value::Null).await;
    for (answer, command, event, about) in [
        (made, Value::Null, "key_created", json!([{ "type": "key", "id": "k" }])),
        (price, Value::Null, "price_set", json!([{ "type": "price", "id": "T4" }])),
        (revoked, Value::Null, "key_revoked", json!([{ "type": "key", "id": "k" }])),
        (drained, json!("drain_node"), "node_drained", json!([{ "type": "node", "id": "n1" }])),
        (removed, json!("remove_node"), "node_removed", json!([{ "type": "node", "id": "n1" }])),
    ] {
        let (machine, position) = place(&answer);
        let path = format!("/v1/audit?machine={machine}&position={position}");
        let found = server.get(&path).await;
        assert_eq!((positions(&found), &found["has_more"]), (vec![position], &json!(false)));
        let record = &records(&found)[0];
        assert_eq!((&record["actor"], &record["command"]), (&json!("root"), &command), "{record}");
        let events = record["events"].as_array().expect("names");
        assert!(events.contains(&json!(event)), "{record}");
        assert_eq!(record["about"], about);
        if machine == "directory" {
            let request = answer.headers["bursar-request-id"].to_str().expect("ascii");
            assert_eq!(record["request_id"], request, "{record}");
        }
    }
    for machine in ["cell-none", "ledger-1", "cell-", "x"] {
        let path = format!("/v1/audit?machine={machine}");
        server.call("GET", &path, Value::Null).await.problem("not_found");
    }
    // The ledger by its name is the ledger.
    let named = server.get("/v1/audit?machine=ledger-0").await;
    assert_eq!(positions(&named), positions(&server.get("/v1/audit").await));
}

#[tokio::test]
async fn the_trail_of_a_cell_is_read_in_pages_and_by_command() {
    let server = Server::start();
    server.call("POST", "/v1/nodes", node("n1")).await.expect(201);
    for _ in 0..5 {
        server.call("POST", "/v1/nodes/n1/drain", json!({ "force": false })).await.expect(200);
        server.call("POST", "/v1/nodes/n1/resume", json!({})).await.expect(200);
    }
    let whole = positions(&server.get("/v1/audit?machine=cell-default&limit=100").await);
    assert!(whole.len() > 10 && whole.is_sorted_by(|newer, older| newer >= older), "{whole:?}");
    for limit in [1, 3] {
        let first = format!("/v1/audit?machine=cell-default&limit={limit}");
        let (mut path, mut found) = (first.clone(), Vec::new());
        loop {
            let page = server.get(&path).await;
            found.extend(positions(&page));
            let Some(cursor) = page["next_cursor"].as_str() else { break };
            path = format!("{first}&cursor={cursor}");
        }
        assert_eq!(found, whole);
    }
    let after = whole[4];
    let newer = server.get(&format!("/v1/audit?machine=cell-default&after={after}")).await;
    assert_eq!(positions(&newer), whole[..4]);
    let drains = "/v1/audit?machine=cell-default&command=drain_node,plan_maintenance";
    let drains = server.get(drains).await;
    assert_eq!(records(&drains).len(), 5);
    assert!(records(&drains).iter().all(|record| record["command"] == "drain_node"));
    let opened = server.get("/v1/audit?command=open_region").await;
    assert!(!records(&opened).is_empty(), "the ledger has the filter too");
    let path = "/v1/audit?command=,";
    server.call("GET", path, Value::Null).await.problem("invalid_field");
}

#[tokio::test]
async fn a_tenant_sees_its_own_records_of_cells_and_of_the_directory_alone() {
    let server = Server::start();
    server.tree().await;
    let (acme, umbra) = (server.key("admin", "acme").await, server.key("admin", "umbra").await);
    let agent = server.key("agent", "acme").await;
    server.call("PUT", "/v1/prices/T4", json!({ "per_gpu_hour": "1" })).await.expect(200);
    server.call("POST", "/v1/nodes", node("of-platform")).await.expect(201);
    let drain = async |name: &str, key: &str| {
        let path = format!("/v1/nodes/{name}/drain");
        server.send("POST", &path, json!({ "force": false }), key, &[]).await.expect(200)
    };
    drain("of-platform", &server.root).await;
    server.send("POST", "/v1/nodes", node("own"), &agent, &[]).await.expect(201);
    drain("own", &acme).await;
    let cell = "/v1/audit?machine=cell-default&limit=100";
    let seen = seen_by(&server, &acme, cell).await;
    let own = json!([{ "type": "node", "id": "acme/own" }]);
    assert!(records(&seen).len() >= 2, "{seen}");
    assert!(records(&seen).iter().all(|record| record["about"] == own), "{seen}");
    assert_eq!(records(&seen_by(&server, &umbra, cell).await), [] as [Value; 0]);
    // The number of a removed node is used again by another tenant.
    server.send("DELETE", "/v1/nodes/own", Value::Null, &acme, &[]).await.expect(204);
    let other = server.key("agent", "umbra").await;
    server.send("POST", "/v1/nodes", node("theirs"), &other, &[]).await.expect(201);
    let seen = seen_by(&server, &umbra, cell).await;
    let text = seen.to_string();
    assert!(
        text.contains("umbra/theirs") && !text.contains("acme") && !text.contains("platform"),
        "{text}"
    );
    let directory = "/v1/audit?machine=directory&limit=100";
    let key = json!({ "id": "made-by-acme", "role": "viewer", "scope": "acme:nlp", "name": "n" });
    server.send("POST", "/v1/keys", key, &acme, &[]).await.expect(201);
    let seen = seen_by(&server, &acme, directory).await.to_string();
    assert!(seen.contains("made-by-acme") && !seen.contains("price_set"), "{seen}");
    assert!(!seen_by(&server, &umbra, directory).await.to_string().contains("made-by-acme"));
    let nlp = server.key("auditor", "acme:nlp").await;
    let seen = seen_by(&server, &nlp, directory).await;
    assert_eq!(records(&seen).len(), 2, "its own key and that of its scope: {seen}");
    for path in ["checkpoint?machine=directory", "checkpoint?machine=cell-default"] {
        let path = format!("/v1/audit/{path}");
        server.send("GET", &path, Value::Null, &acme, &[]).await.problem("forbidden");
    }
    seen_by(&server, &acme, "/v1/audit/checkpoint").await;
}

#[tokio::test]
async fn records_of_every_machine_are_proven_but_those_with_a_secret() {
    let server = Server::start();
    server.call("POST", "/v1/nodes", node("n1")).await.expect(201);
    server.call("PUT", "/v1/prices/T4", json!({ "per_gpu_hour": "1" })).await.expect(200);
    let mut journals = std::collections::BTreeSet::new();
    for machine in ["ledger-0", "directory", "cell-default"] {
        let checkpoint = server.get(&format!("/v1/audit/checkpoint?machine={machine}")).await;
        let size = checkpoint["size"].as_u64().expect("a size");
        let path = format!("/v1/audit/proof?machine={machine}&position={size}");
        let proof = server.get(&path).await;
        assert_eq!(proof["checkpoint"]["journal"], checkpoint["journal"]);
        assert!(proof["frame"].as_str().is_some_and(|frame| frame.len() > 20), "{proof}");
        journals.insert(checkpoint["journal"].as_str().expect("an identity").to_owned());
    }
    assert_eq!(journals.len(), 3);
    let all = server.get("/v1/audit?machine=directory&limit=100").await;
    let holds_secret = |record: &&Value| record["events"] == json!(["attempt_secret_set"]);
    let secret = records(&all).iter().find(holds_secret).expect("it was set at the start");
    let path = format!("/v1/audit/proof?machine=directory&position={}", secret["position"]);
    server.call("GET", &path, Value::Null).await.problem("forbidden");
    let show = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
        command.args(arguments).env("BURSAR_SERVER", &server.url).env("BURSAR_KEY", &server.root);
        let shown = command.output().expect("it runs");
        let text = String::from_utf8(shown.stdout).expect("text");
        serde_json::from_str::<Value>(&text).unwrap_or_else(|_| panic!("{text}"))
    };
    let newest = records(&all)[0]["position"].to_string();
    let arguments = ["audit", "show", &newest, "--machine", "directory", "-o", "json"];
    assert!(show(&arguments).to_string().contains("price_set"));
}

#[tokio::test]
async fn a_request_is_found_exactly_even_while_the_clock_stands_still() {
    let server = Server::start();
    server.tree().await;
    let mut requests = Vec::new();
    for id in ["a", "b", "c"] {
        let body = json!({ "id": id, "account": "acme", "amount": "1", "kind": "grant" });
        let answer = server.call("POST", "/v1/grants", body).await;
        let request = answer.headers["bursar-request-id"].to_str().expect("ascii").to_owned();
        requests
            .push((request, answer.headers["bursar-position"].to_str().expect("ascii").to_owned()));
        answer.expect(201);
    }
    for (request, position) in requests {
        let found = server.get(&format!("/v1/search?q={request}")).await;
        let hit = &records(&found)[0];
        assert_eq!((records(&found).len(), &hit["exact"]), (1, &json!(true)), "{found}");
        assert_eq!(hit["position"].to_string(), position);
    }
    let price = server.call("PUT", "/v1/prices/T4", json!({ "per_gpu_hour": "1" })).await;
    let request = price.headers["bursar-request-id"].to_str().expect("ascii").to_owned();
    let found = server.get(&format!("/v1/search?q={request}")).await;
    let hit = &records(&found)[0];
    assert_eq!((&hit["machine"], &hit["name"]), (&json!("directory"), &json!("price_set")));
    let auditor = server.key("auditor", "acme").await;
    let found = seen_by(&server, &auditor, &format!("/v1/search?q={request}")).await;
    assert_eq!(found["data"], json!([]));
}
