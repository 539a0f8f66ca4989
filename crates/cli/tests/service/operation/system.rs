//! Health, metrics, start and end of the process.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::{Value, json};

use crate::server::Server;

#[tokio::test]
async fn health_readiness_and_metrics_are_served() {
    let server = Server::start();
    server.tree().await;
    let plain = async |path: &str| server.send("GET", path, Value::Null, "", &[]).await.expect(200);
    assert_eq!(plain("/healthz").await["status"], "ok");
    assert_eq!(plain("/readyz").await["machines"]["ledger-0"], "serving");
    let metrics = plain("/metrics").await.as_str().expect("text").to_owned();
    for name in [
        "bursar_http_requests_total{method=\"POST\",route=\"/v1/accounts\",status=\"201\"} 5",
        "bursar_journal_records_total{machine=\"Ledger\"}",
        "bursar_journal_append_duration_seconds_bucket",
        "bursar_mailbox_waiting",
        "bursar_self_check_violations_total 0",
        "bursar_writer_serving{machine=\"Ledger\"} 1",
        "bursar_history_position",
    ] {
        assert!(metrics.contains(name), "{name} is missing in:\n{metrics}");
    }
    assert!(plain("/docs").await.as_str().is_some_and(|page| page.contains("/v1/holds")));
    let index = plain("/docs/problems").await;
    assert!(index.as_str().is_some_and(|page| page.contains("/docs/problems/hold_closed")));
    let page = plain("/docs/problems/hold_closed").await;
    assert!(page.as_str().is_some_and(|page| page.contains("hold_closed")));
    // With the dashboard or without it.
    assert!(plain("/").await.as_str().is_some_and(|page| page.contains("<title>Bursar</title>")));
}

/// What clients may rely on: operations, fields of answers, and words of enumerations, one to a line.
fn names(described: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (path, item) in described["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            names.insert(format!("{} {path}", method.to_uppercase()));
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let name = parameter["name"].as_str().unwrap_or_default();
                names.insert(format!("{} {path} ?{name}", method.to_uppercase()));
            }
        }
    }
    for (schema, shape) in described["components"]["schemas"].as_object().expect("schemas") {
        for field in shape["properties"].as_object().into_iter().flatten() {
            names.insert(format!("{schema}.{}", field.0));
        }
        for word in shape["enum"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            names.insert(format!("{schema} = {word}"));
        }
    }
    names
}

/// Run with `UPDATE_OPENAPI=1` to add new names. None is ever removed.
#[tokio::test]
async fn the_interface_only_grows() {
    let server = Server::start();
    let described = server.send("GET", "/openapi.json", Value::Null, "", &[]).await.expect(200);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../openapi/v1.names");
    let known = std::fs::read_to_string(path).unwrap_or_default();
    let known: BTreeSet<String> = known.lines().map(str::to_owned).collect();
    let now = names(&described);
    let gone: Vec<&String> = known.difference(&now).collect();
    assert_eq!(gone, Vec::<&String>::new(), "clients rely on these");
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        let all: Vec<String> = known.union(&now).cloned().collect();
        std::fs::write(path, all.join("\n") + "\n").expect("written");
        return;
    }
    let new: Vec<&String> = now.difference(&known).collect();
    assert_eq!(new, Vec::<&String>::new(), "new names: run with UPDATE_OPENAPI=1");
}

/// Run with `UPDATE_OPENAPI=1` after the interface has changed on purpose.
#[tokio::test]
async fn the_committed_description_is_the_one_that_the_server_gives() {
    let server = Server::start();
    let described = server.send("GET", "/openapi.json", Value::Null, "", &[]).await.expect(200);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../openapi/v1.json");
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        let text = serde_json::to_string_pretty(&described).expect("plain");
        std::fs::write(path, text + "\n").expect("written");
    }
    let committed = std::fs::read_to_string(path).expect("openapi/v1.json is there");
    let committed: Value = serde_json::from_str(&committed).expect("JSON");
    assert!(committed == described, "openapi/v1.json differs: run with UPDATE_OPENAPI=1");
    for (path, item) in described["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let name = format!("{method} {path}");
            assert!(operation["summary"].is_string(), "{name} says nothing");
            for (status, response) in operation["responses"].as_object().expect("responses") {
                assert!(response["description"].is_string(), "{name} {status} says nothing");
            }
        }
    }
}

#[tokio::test]
async fn it_exits_with_zero_on_a_signal_and_keeps_acknowledged_changes() {
    let server = Server::start();
    server.tree().await;
    let stream = server
        .client
        .get(format!("{}/v1/events", server.url))
        .bearer_auth(&server.root)
        .send()
        .await
        .expect("the server is there");
    let status = server.terminate();
    assert_eq!(status.code(), Some(0));
    drop(stream);
}

#[tokio::test]
async fn a_manual_clock_goes_on_from_where_it_was() {
    let mut server = Server::start();
    assert_eq!(server.get("/v1/clock").await["now"], "2020-01-01T00:00:00.000Z");
    let moved = server.call("POST", "/v1/clock", json!({ "now": "2020-06-01T00:00:00Z" })).await;
    assert_eq!(moved.expect(200)["now"], "2020-06-01T00:00:00.000Z");
    for wrong in [
        json!({ "now": "2020-05-31T00:00:00Z" }),
        json!({}),
        json!({ "now": "2021-01-01T00:00:00Z", "advance_seconds": 1 }),
        json!({ "now": "9999-12-31T23:59:59.999Z" }),
        json!({ "advance_seconds": u64::MAX }),
    ] {
        server.call("POST", "/v1/clock", wrong).await.problem("invalid_field");
    }
    server.crash_and_restart(&["--clock", "manual"]);
    assert_eq!(server.get("/v1/clock").await["now"], "2020-06-01T00:00:00.000Z");
    let wall = Server::with(&[]);
    wall.call("GET", "/v1/clock", Value::Null).await.problem("not_found");
}

fn bursar(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_bursar"))
        .args(arguments)
        .output()
        .expect("the binary is there");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn an_unsafe_or_mistyped_configuration_is_rejected_with_a_fix() {
    let (started, text) = bursar(&["serve", "--dev", "--listen", "0.0.0.0:0"]);
    assert!(!started && text.contains("--unsafe-plaintext"), "{text}");
    let (started, text) = bursar(&["serve"]);
    assert!(!started && text.contains("--data"), "{text}");
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let file = folder.path().join("bursar.toml");
    let path = file.to_str().expect("a plain path");
    std::fs::write(&file, "listem = \"127.0.0.1:7070\"\n").expect("written");
    let (fine, text) = bursar(&["config", "check", path]);
    assert!(!fine && text.contains("listem"), "{text}");
    std::fs::write(&file, "listen = \"127.0.0.1:7070\"\ndata = \"data\"\n").expect("written");
    let (fine, text) = bursar(&["config", "check", path]);
    assert!(fine, "{text}");
}

#[tokio::test]
async fn the_root_key_is_read_from_its_file() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let file = folder.path().join("root");
    std::fs::write(&file, "an-old-secret-of-mine-that-is-long-enough\n").expect("written");
    let server = Server::with(&["--root-key-file", file.to_str().expect("a plain path")]);
    assert_eq!(server.root, "an-old-secret-of-mine-that-is-long-enough");
    server.open("acme", "org").await;
    let wrong = "an-old-secret-of-mine-that-is-long-enougi";
    let answer = server.send("GET", "/v1/accounts/acme", Value::Null, wrong, &[]).await;
    answer.problem("unauthenticated");
}

#[tokio::test]
async fn a_server_that_is_restarted_often_makes_snapshots_all_the_same() {
    const CHANGES: u32 = 30;
    let mut server = Server::configured("snapshot_every = 40\n", &[]);
    let snapshots = |server: &Server| {
        let files = std::fs::read_dir(server.data()).expect("the folder of the server");
        let names = files.map(|file| file.expect("it can be listed").file_name());
        let of_ledger = |name: &std::ffi::OsString| {
            let name = name.to_string_lossy();
            name.contains("ledger") && name.contains(".snapshot-")
        };
        names.filter(of_ledger).count()
    };
    server.open("acme", "org").await;
    for round in 0..2 {
        for number in 0..CHANGES {
            server.grant(&format!("g{round}-{number}"), "acme", "1").await;
        }
        if round == 0 {
            assert_eq!(snapshots(&server), 0, "{CHANGES} changes are too few for one");
            let file = server.data().with_file_name("bursar.toml");
            server.crash_and_restart(&["--config", file.to_str().expect("a plain path")]);
        }
    }
    for _ in 0..500 {
        if snapshots(&server) > 0 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("no snapshot after twice {CHANGES} changes");
}
