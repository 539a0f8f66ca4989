//! The map of a region and its figures over time.

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::server::Server;
use crate::world::*;

async fn get(server: &Server, key: &str, path: &str) -> Value {
    server.send("GET", path, Value::Null, key, &[]).await.expect(200)
}

/// The uses of all GPUs of a map as `node/device job account share running`.
fn uses(map: &Value) -> Vec<String> {
    let mut all = Vec::new();
    for node in map["nodes"].as_array().expect("nodes") {
        for (device, gpu) in node["gpus"].as_array().expect("gpus").iter().enumerate() {
            for used in gpu["used"].as_array().expect("uses") {
                let text = |field: &str| used[field].as_str().expect("text").to_owned();
                all.push(format!(
                    "{}/{device} {} {} {} {}",
                    node["id"].as_str().expect("a name"),
                    text("job"),
                    text("account"),
                    text("share"),
                    used["running"],
                ));
            }
        }
    }
    all
}

fn of(id: &str, account: &str, gpus: Value) -> Value {
    with(with(small(id), "account", account.into()), "gpus", gpus)
}

#[tokio::test]
async fn the_map_shows_own_jobs_by_name_and_others_as_other() {
    let server = priced(&[]).await;
    server.grant("theirs", "umbra", "100").await;
    let mut a = Agent::register(&server, "node-a", "H100", 4).await;
    let mut b = Agent::register(&server, "node-b", "A100", 2).await;
    let whole = |count: u32| json!({ "types": ["H100"], "count": count });
    submit(&server, of("two", "acme:nlp", whole(2))).await;
    submit(&server, of("part", "acme:vision", json!({ "types": ["H100"], "share": "0.25" }))).await;
    a.beat(&server).await;
    submit(&server, of("foreign", "umbra", whole(1))).await;
    let map = server.get("/v1/regions/default/map").await;
    // The last one is placed, and its agent has not reported it yet.
    assert_eq!(
        uses(&map),
        [
            "node-a/0 two acme:nlp 1 true",
            "node-a/1 two acme:nlp 1 true",
            "node-a/2 part acme:vision 0.25 true",
            "node-a/3 foreign umbra 1 false",
        ]
    );
    let gang = |kind: &str, gpus: u32, nodes: u32, each: u32| json!({ "type": kind, "gpus": gpus, "nodes": nodes, "gpus_per_node": each });
    assert_eq!(map["largest_gang"], json!([gang("A100", 2, 1, 2), gang("H100", 0, 0, 0)]));
    let node = &map["nodes"][0];
    assert_eq!((&node["rack"], &node["state"]), (&json!("r1"), &json!("ready")));
    assert_eq!(node["gpus"][0]["uuid"], "GPU-node-a-0");
    for (scope, expected) in [
        ("acme", ["two acme:nlp", "two acme:nlp", "part acme:vision", "other other"]),
        ("acme:vision", ["other other", "other other", "part acme:vision", "other other"]),
        ("umbra", ["other other", "other other", "other other", "foreign umbra"]),
    ] {
        let key = server.key("viewer", scope).await;
        let map = get(&server, &key, "/v1/regions/default/map").await;
        let seen: Vec<String> = uses(&map);
        for (line, expected) in seen.iter().zip(expected) {
            assert!(line.contains(expected), "{scope}: {line}");
        }
        assert_eq!(seen.len(), 4, "{scope}");
        // No field says more.
        for secret in ["two", "part", "foreign", "acme:nlp", "umbra"] {
            let is_shown = expected.iter().any(|line| line.contains(secret));
            assert_eq!(map.to_string().contains(secret), is_shown, "{scope} {secret}");
        }
    }
    let page = server.get("/v1/regions/default/map?limit=1").await;
    assert_eq!(
        (&page["has_more"], page["nodes"][0]["id"].as_str()),
        (&json!(true), Some("node-a"))
    );
    let cursor = page["next_cursor"].as_str().expect("a cursor");
    let page = server.get(&format!("/v1/regions/default/map?limit=1&cursor={cursor}")).await;
    assert_eq!(
        (&page["has_more"], page["nodes"][0]["id"].as_str()),
        (&json!(false), Some("node-b"))
    );
    for wrong in ["limit=0", "limit=1001", "cursor=x"] {
        let path = format!("/v1/regions/default/map?{wrong}");
        server.call("GET", &path, Value::Null).await.problem("invalid_field");
    }
    server.call("GET", "/v1/regions/nowhere/map", Value::Null).await.problem("not_found");
    b.beat(&server).await;
}

#[tokio::test]
async fn the_largest_gang_is_that_of_ready_nodes_that_the_key_sees() {
    let server = priced(&[]).await;
    for (node, count) in [("n1", 8), ("n2", 8), ("n3", 3)] {
        Agent::register(&server, node, "H100", count).await;
    }
    let own = server.key("agent", "umbra").await;
    Agent::register_under(&server, &own, "default", "theirs", "H100", 8).await;
    let largest = async |key: &str| {
        let map = get(&server, key, "/v1/regions/default/map").await;
        let gang = &map["largest_gang"][0];
        (gang["gpus"].clone(), gang["nodes"].clone(), gang["gpus_per_node"].clone())
    };
    let acme = server.key("viewer", "acme").await;
    assert_eq!(largest(&acme).await, (json!(16), json!(2), json!(8)));
    assert_eq!(largest(&server.root).await, (json!(24), json!(3), json!(8)));
    server.call("POST", "/v1/nodes/n1/drain", json!({})).await.expect(200);
    assert_eq!(largest(&acme).await, (json!(8), json!(1), json!(8)));
    let map = get(&server, &acme, "/v1/regions/default/map").await;
    assert!(!map.to_string().contains("theirs"), "{map}");
    assert_eq!(map["nodes"][0]["state"], "drained");
}

/// The values of a series.
fn values(series: &Value) -> Vec<String> {
    let points = series["points"].as_array().expect("points").iter();
    points.map(|point| point["value"].as_str().expect("a number").to_owned()).collect()
}

#[tokio::test]
async fn figures_of_a_region_are_recorded_by_its_own_time() {
    let server = priced(&[]).await;
    server.grant("theirs", "umbra", "100").await;
    let mut agent = Agent::register(&server, "node", "H100", 2).await;
    agent.run(&server, 120).await;
    for (id, account) in [("one", "acme:nlp"), ("two", "umbra"), ("three", "acme")] {
        submit(&server, of(id, account, json!({ "types": ["H100"], "count": 1 }))).await;
    }
    agent.beat(&server).await;
    agent.run(&server, 180).await;
    agent.finish(&server, "one", 0).await;
    agent.run(&server, 120).await;
    // 00:00 to 00:07, a point each minute; jobs begin at 00:02 and one ends at 00:05. A point
    // shows the end of the minute before it.
    let ask = async |key: &str, metric: &str| {
        let path = format!(
            "/v1/regions/default/series?metric={metric}&from=2020-01-01T00:00:00Z\
             &to=2020-01-01T00:07:00Z&points=8"
        );
        get(&server, key, &path).await
    };
    let root = server.root.clone();
    let series = ask(&root, "gpus_allocated").await;
    // Nothing is known of the first minute: it began before the first sample.
    assert_eq!(series["points"][0]["at"], "2020-01-01T00:01:00.000Z");
    assert_eq!(values(&series), ["0", "0", "2", "2", "2", "2", "2"]);
    assert_eq!(values(&ask(&root, "gpus_usable").await), ["2"; 7]);
    assert_eq!(values(&ask(&root, "jobs_waiting").await), ["0", "0", "1", "1", "1", "0", "0"]);
    assert_eq!(values(&ask(&root, "jobs_running").await), ["0", "0", "2", "2", "2", "2", "2"]);
    let umbra = server.key("viewer", "umbra").await;
    assert_eq!(values(&ask(&umbra, "jobs_running").await), ["0", "0", "1", "1", "1", "1", "1"]);
    assert_eq!(values(&ask(&umbra, "jobs_waiting").await), ["0"; 7]);
    let vision = server.key("viewer", "acme:vision").await;
    assert_eq!(values(&ask(&vision, "jobs_running").await), ["0"; 7]);
    let path = "/v1/regions/default/series?metric=jobs_running";
    assert!(values(&server.get(path).await).len() < 200, "the future and the unknown are left out");
    for wrong in ["points=1", "points=1001", "from=2020-01-01T00:07:00Z&to=2020-01-01T00:07:00Z"] {
        let path = format!("{path}&{wrong}");
        server.call("GET", &path, Value::Null).await.problem("invalid_field");
    }
    server.call("GET", "/v1/regions/default/series", Value::Null).await.problem("invalid_field");
    let path = "/v1/regions/nowhere/series?metric=jobs_running";
    server.call("GET", path, Value::Null).await.problem("not_found");
}
