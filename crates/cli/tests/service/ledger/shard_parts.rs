//! Batches, reports and pages whose parts are of several ledger shards.

use serde_json::{Value, json};

use super::shards::{ids, spread, two};
use crate::server::Server;

fn charge(org: &str) -> Value {
    json!({ "method": "POST", "path": "/v1/charges", "body": { "account": org, "amount": "1" } })
}

fn hold(id: &str, org: &str) -> Value {
    let body = json!({ "id": id, "account": org, "amount": "10" });
    json!({ "method": "POST", "path": "/v1/holds", "body": body })
}

fn release(id: &str) -> Value {
    json!({ "method": "POST", "path": format!("/v1/holds/{id}/release"), "body": {} })
}

fn statuses(results: &Value) -> Vec<u64> {
    let all = results["results"].as_array().expect("results").iter();
    all.map(|one| one["status"].as_u64().expect("a status")).collect()
}

/// The number of orgs that are assigned to shards.
async fn assigned(server: &Server) -> u64 {
    let shards = server.get("/v1/shards").await;
    let all = shards["data"].as_array().expect("a list").iter();
    all.map(|shard| shard["orgs"].as_u64().expect("a number")).sum()
}

async fn batch(server: &Server, operations: Value) -> Value {
    server.call("POST", "/v1/batch", json!({ "operations": operations })).await.expect(200)
}

#[tokio::test]
async fn no_shard_is_assigned_for_what_is_refused() {
    let server = two();
    spread(&server).await;
    let open = |number: usize| {
        let body = json!({ "id": format!("org-{number}"), "kind": "org" });
        json!({ "method": "POST", "path": "/v1/accounts", "body": body })
    };
    let many = |count: usize| json!({ "operations": (0..count).map(open).collect::<Vec<_>>() });
    server.call("POST", "/v1/batch", many(1001)).await.problem("invalid_field");
    let viewer = server.key("viewer", "*").await;
    server.send("POST", "/v1/batch", many(1), &viewer, &[]).await.problem("forbidden");
    let wrong = json!({ "id": "zeta", "kind": "nonsense" });
    assert_eq!(server.call("POST", "/v1/accounts", wrong.clone()).await.status, 422);
    let wrong = json!({ "method": "POST", "path": "/v1/accounts", "body": wrong });
    assert_eq!(statuses(&batch(&server, json!([wrong, charge("umbra")])).await), [422, 201]);
    assert_eq!(assigned(&server).await, 2);
    assert_eq!(statuses(&server.call("POST", "/v1/batch", many(3)).await.expect(200)), [201; 3]);
    assert_eq!(assigned(&server).await, 5);
}

#[tokio::test]
async fn the_operations_of_a_batch_of_two_shards_count_once() {
    let limit = "[limits]\noperations = 100\n";
    let server = Server::configured(limit, &["--clock", "manual", "--shards", "2"]);
    spread(&server).await;
    let billing = server.key("billing", "*").await;
    let small = |org: &str| {
        let mut charge = charge(org);
        charge["body"]["amount"] = "0.01".into();
        charge
    };
    let half = |count: usize| [vec![small("acme"); count], vec![small("umbra"); count]].concat();
    let batch = |count: usize| json!({ "operations": half(count) });
    let above = server.send("POST", "/v1/batch", batch(101), &billing, &[]).await;
    above.problem("invalid_field");
    // The burst is 200.
    let results = server.send("POST", "/v1/batch", batch(100), &billing, &[]).await.expect(200);
    let charged = statuses(&results).iter().filter(|status| **status == 201).count();
    assert_eq!(charged, 200);
}

#[tokio::test]
async fn an_ambiguous_part_is_refused_alone() {
    let server = two();
    spread(&server).await;
    for org in ["acme", "umbra"] {
        for id in ["same", org] {
            let hold = json!({ "id": id, "account": org, "amount": "10" });
            server.call("POST", "/v1/holds", hold).await.expect(201);
        }
    }
    let parts = json!([release("same"), charge("acme"), charge("umbra"), release("same")]);
    let results = batch(&server, parts).await;
    assert_eq!(statuses(&results), [409, 201, 201, 409], "{results}");
    assert_eq!(results["results"][0]["body"]["code"], "ambiguous_id", "{results}");
    let record = |hold: &str| json!({ "hold": hold, "seq": 1, "amount_total": "3" });
    let records = json!({ "records": [record("same"), record("acme"), record("umbra")] });
    let results = server.call("POST", "/v1/usage", records).await.expect(200);
    assert_eq!(statuses(&results), [409, 200, 200], "{results}");
    // What the batch creates in one tenant may be in another one already.
    let parts = json!([hold("umbra", "acme"), release("umbra"), charge("umbra")]);
    let results = batch(&server, parts).await;
    assert_eq!(statuses(&results), [201, 409, 201], "{results}");
    let atomic = json!({ "atomic": true, "operations": [charge("acme"), release("same")] });
    server.call("POST", "/v1/batch", atomic).await.problem("ambiguous_id");
}

#[tokio::test]
async fn parts_that_name_nothing_do_not_make_a_batch_one_of_several_shards() {
    let server = two();
    spread(&server).await;
    let atomic =
        |org: &str| json!({ "atomic": true, "operations": [charge(org), release("unknown")] });
    let first = server.call("POST", "/v1/batch", atomic("acme")).await;
    let second = server.call("POST", "/v1/batch", atomic("umbra")).await;
    assert_eq!(first.status, second.status, "{first:?} {second:?}");
    assert_eq!(first.body["code"], second.body["code"]);
    assert_eq!(first.body["detail"], second.body["detail"]);
    assert_eq!(server.get("/v1/accounts/umbra/balance").await["available"], "100");
}

#[tokio::test]
async fn a_report_of_two_shards_is_rehearsed_as_it_is_run() {
    let server = two();
    spread(&server).await;
    for org in ["acme", "umbra"] {
        let body = hold(org, org)["body"].clone();
        server.call("POST", "/v1/holds", body).await.expect(201);
    }
    let report = |holds: &[&str]| {
        let record = |hold: &&str| json!({ "hold": hold, "seq": 1, "amount_total": "3" });
        let records: Vec<Value> = holds.iter().map(record).collect();
        json!({ "method": "POST", "path": "/v1/usage", "body": { "records": records } })
    };
    for holds in [&["acme", "umbra"], &["umbra", "umbra"]] {
        server.call("POST", "/v1/dry-run", report(holds)).await.expect(204);
    }
    let refused = server.call("POST", "/v1/dry-run", report(&["acme", "umbra", "unknown"])).await;
    refused.problem("not_found");
    assert_eq!(server.get("/v1/holds/umbra").await["captured"], "0");
}

#[tokio::test]
async fn a_list_is_of_all_shards_with_and_without_a_tenant() {
    let server = two();
    spread(&server).await;
    let asked = [("bursar-tenant", "umbra")];
    let grants = server.send("GET", "/v1/grants", Value::Null, &server.root, &asked).await;
    assert_eq!(
        ids(&grants.expect(200)).len(),
        2,
        "the header is for ids that several tenants have"
    );
    for twice in ["limit=3&limit=3", "cursor=a&cursor=a"] {
        let path = format!("/v1/grants?{twice}");
        let refused = server.call("GET", &path, Value::Null).await.problem("invalid_field");
        assert!(refused["detail"].as_str().expect("words").contains("twice"), "{refused}");
    }
}

#[tokio::test]
async fn pages_of_each_size_show_each_entry_of_two_shards_once() {
    let server = two();
    spread(&server).await;
    let mut made = Vec::new();
    for (number, org) in
        ["acme", "acme", "acme", "umbra", "acme", "umbra", "umbra"].iter().enumerate()
    {
        let id = format!("h{number}");
        server.call("POST", "/v1/holds", hold(&id, org)["body"].clone()).await.expect(201);
        server.advance(60).await;
        made.insert(0, id);
    }
    // From the ledgers, and from their histories.
    for list in ["/v1/holds?state=open&", "/v1/holds?"] {
        for size in 1..=8 {
            let (mut seen, mut cursor) = (Vec::new(), String::new());
            loop {
                let page = server.get(&format!("{list}limit={size}{cursor}")).await;
                assert!(page["data"].as_array().expect("a list").len() <= size);
                seen.extend(ids(&page).into_iter().map(str::to_owned));
                match page["next_cursor"].as_str() {
                    Some(next) => cursor = format!("&cursor={next}"),
                    None => break,
                }
            }
            assert_eq!(seen, made, "{list} by {size}");
        }
    }
}
