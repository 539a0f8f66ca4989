//! Checks afterwards: every machine serves, and the journals verify.

use serde_json::{Value, json};

use crate::world::{Client, REGIONS, gpus};

/// One change and one read through the directory, the ledger and each cell. `name` must be unique.
pub(crate) fn every_machine_serves(root: &mut Client, name: &str) {
    let ready = root.call("GET", "/readyz", &Value::Null).expect("an answer");
    assert_eq!(ready.status, 200, "{}", String::from_utf8_lossy(&ready.body));
    let gpu_type = format!("T-{name}");
    directory(root, name, &gpu_type);
    ledger(root, name);
    for region in REGIONS {
        cell(root, name, region, &gpu_type);
    }
}

fn directory(root: &mut Client, name: &str, gpu_type: &str) {
    root.must("PUT", &format!("/v1/prices/{gpu_type}"), json!({ "per_gpu_hour": "6" }));
    let key = json!({ "role": "viewer", "scope": "*", "name": name });
    let made = root.must("POST", "/v1/keys", key);
    let id = made["id"].as_str().expect("an id").to_owned();
    root.must("DELETE", &format!("/v1/keys/{id}"), Value::Null);
    root.must("GET", "/v1/keys?limit=100", Value::Null);
    root.must("GET", "/v1/prices?limit=100", Value::Null);
}

fn ledger(root: &mut Client, name: &str) {
    root.must("POST", "/v1/accounts", json!({ "id": name, "kind": "org" }));
    let id = format!("{name}-g");
    let grant = json!({ "id": id, "account": name, "amount": "100", "kind": "purchase" });
    root.must("POST", "/v1/grants", grant);
    let hold = format!("{name}-h");
    root.must("POST", "/v1/holds", json!({ "id": hold, "account": name, "amount": "10" }));
    root.must("POST", &format!("/v1/holds/{hold}/settle"), json!({ "total": "4" }));
    let balance = root.must("GET", &format!("/v1/accounts/{name}/balance"), Value::Null);
    assert_eq!((&balance["spendable"], &balance["held"]), (&json!("96"), &json!("0")));
    let entries = root.must("GET", &format!("/v1/accounts/{name}/entries"), Value::Null);
    assert!(!entries["data"].as_array().expect("a list").is_empty(), "{entries}");
}

fn cell(root: &mut Client, name: &str, region: &str, gpu_type: &str) {
    root.call("DELETE", &format!("/v1/regions/{region}/maintenance"), &Value::Null);
    let node = format!("{name}-{region}");
    let body = json!({
        "id": node, "region": region, "gpus": gpus(&node, gpu_type, 1), "cpus": 64, "memory_gib": 512
    });
    let incarnation = root.must("POST", "/v1/nodes", body)["incarnation"].clone();
    let job = format!("{node}-j");
    let body = json!({
        "id": job, "account": name, "gpus": { "types": [gpu_type] }, "regions": [region],
        "max_runtime_seconds": 60, "command": ["true"]
    });
    root.must("POST", "/v1/jobs", body);
    let heartbeat = format!("/v1/nodes/{node}/heartbeat");
    let mut attempt = Value::Null;
    // The order needs several messages between the machines.
    for seq in 1.. {
        let body = json!({ "incarnation": incarnation, "seq": seq, "attempts": [] });
        let heard = root.must("POST", &heartbeat, body);
        let orders = heard["orders"].as_array().cloned().unwrap_or_default();
        let started = orders.iter().find(|order| order["type"] == "start");
        if let Some(order) = started {
            attempt = order["attempt"].clone();
            let report = json!({ "id": attempt, "state": "succeeded", "gpu_ms_total": 1000, "exit_code": 0 });
            let body = json!({ "incarnation": incarnation, "seq": seq + 1, "attempts": [report] });
            root.must("POST", &heartbeat, body);
            break;
        }
        assert!(
            seq < 2000,
            "{region} never starts a job: {}",
            root.must("GET", &format!("/v1/jobs/{job}/why"), Value::Null)
        );
        std::thread::yield_now();
    }
    for look in 1.. {
        let state = root.must("GET", &format!("/v1/jobs/{job}"), Value::Null)["state"].clone();
        if state == "succeeded" {
            break;
        }
        assert!(look < 20_000, "{job} with {attempt} stays {state}");
        std::thread::yield_now();
    }
    root.must("GET", &format!("/v1/regions/{region}/queue"), Value::Null);
    root.must("DELETE", &format!("/v1/nodes/{node}"), Value::Null);
}
