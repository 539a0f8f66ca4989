//! The stores of several ledger shards: what they forget, and their move into a database.

use std::process::Command;

use serde_json::{Value, json};

use super::archive::NO_WINDOW;
use super::postgres_serve::{address, start};
use crate::journal_support::postgres::TestPostgres;
use crate::rehearsal::rehearse_postgres;
use crate::server::{Server, tool};

const ORGS: [&str; 2] = ["acme", "umbra"];

/// Two orgs on two shards, each with a hold that was settled.
async fn settled(server: &Server) {
    for org in ORGS {
        server.open(org, "org").await;
        server.grant(&format!("g-{org}"), org, "100").await;
        let hold = json!({ "id": format!("h-{org}"), "account": org, "amount": "10" });
        server.call("POST", "/v1/holds", hold).await.expect(201);
        let path = format!("/v1/holds/h-{org}/settle");
        server.call("POST", &path, json!({ "total": "4" })).await.expect(200);
    }
    let shards = server.get("/v1/shards").await;
    let orgs: Vec<&Value> = (0..2).map(|shard| &shards["data"][shard]["orgs"]).collect();
    assert_eq!(orgs, [1, 1], "{shards}");
}

async fn balances(server: &Server) -> Vec<Value> {
    let mut all = Vec::new();
    for org in ORGS {
        let balance = server.get(&format!("/v1/accounts/{org}/balance")).await;
        all.push(json!([balance["available"], balance["held"]]));
    }
    all
}

#[tokio::test]
async fn what_every_shard_has_forgotten_is_found_by_its_id() {
    let server = Server::configured(NO_WINDOW, &["--clock", "manual", "--shards", "2"]);
    settled(&server).await;
    server.until_forgotten().await;
    for org in ORGS {
        let path = format!("/v1/holds/h-{org}");
        assert_eq!(server.get(&path).await["captured"], "4");
        let again = server.call("POST", &format!("{path}/settle"), json!({ "total": "4" })).await;
        assert_eq!(again.expect(200)["account"], org);
        let refund = json!({ "id": format!("r-{org}"), "hold": format!("h-{org}"), "amount": "1" });
        server.call("POST", "/v1/refunds", refund).await.expect(201);
    }
    assert_eq!(balances(&server).await, [json!(["97", "0"]), json!(["97", "0"])]);
    for name in ["archive-0.db", "archive-1.db", "history.db", "history-1.db"] {
        assert!(server.data().join(name).is_file(), "{name}");
    }
}

#[tokio::test]
async fn two_shards_move_into_postgresql_and_survive_a_crash_there() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = |name: &str| folder.path().join(name);
    let mut server = Server::at(&place("data"), &["--clock", "manual", "--shards", "2"]);
    settled(&server).await;
    let before = balances(&server).await;
    server.stop();
    server.spoil("its store was moved away");
    let database = TestPostgres::start();
    let store = address(&database);
    let key = place("checkpoint.key").display().to_string();
    let to = ["admin", "migrate", "--unsafe-single-postgres", "--to", &store];
    let said = tool(&[&to[..], &["--checkpoint-key", &key]].concat(), &place("data"));
    for machine in ["ledger-0", "ledger-1"] {
        assert!(said.contains(&format!("{machine}: record ")), "{said}");
    }
    let mut server = start(&store, &place("root.key"));
    assert_eq!(balances(&server).await, before);
    server.grant("more", "umbra", "1").await;
    server.crash();
    server.spoil("the next server has its store");
    let server = start(&store, &place("root.key"));
    assert_eq!(server.get("/v1/grants/more").await["account"], "umbra");
    let names = server.get("/v1/cluster").await["machines"].to_string();
    assert!(names.contains("ledger-0") && names.contains("ledger-1"), "{names}");
    // It has no machine before the next start.
    server.call("POST", "/v1/shards", json!({})).await.expect(201);
    assert_eq!(server.terminate().code(), Some(0));
    rehearse_postgres(&store);
    database.sql(
        "UPDATE bursar_batch SET payload = set_byte(payload, 20, get_byte(payload, 20) # 1)
         WHERE machine = 'ledger-0' AND sequence = (SELECT sequence FROM bursar_batch
            WHERE machine = 'ledger-0' ORDER BY length(payload) DESC LIMIT 1)",
    );
    let (status, report) = verified(&["--store", &store]);
    assert_eq!((status, &report["ok"]), (Some(1), &json!(false)));
    assert_eq!(held(&report), [("ledger-0", false), ("ledger-1", true)], "all are read: {report}");
}

/// The one document that an audit prints.
fn verified(of: &[&str]) -> (Option<i32>, Value) {
    let mut audit = Command::new(env!("CARGO_BIN_EXE_bursar"));
    audit.args(["audit", "verify", "-o", "json"]).args(of);
    let said = audit.output().expect("it runs");
    let words = String::from_utf8_lossy(&said.stderr).into_owned();
    (said.status.code(), serde_json::from_slice(&said.stdout).expect(&words))
}

/// The ledgers of a report, and whether each is good.
fn held(report: &Value) -> Vec<(&str, bool)> {
    let ledgers = report["ledgers"].as_array().expect("several ledgers");
    ledgers
        .iter()
        .map(|one| (one["machine"].as_str().expect("a name"), one["ok"] == json!(true)))
        .collect()
}

#[tokio::test]
async fn a_store_is_set_back_to_before_a_shard_was_added() {
    let mut server = Server::with(&["--clock", "manual"]);
    server.open("acme", "org").await;
    server.grant("g-acme", "acme", "100").await;
    server.advance(60).await;
    let until = server.get("/v1/clock").await["now"].as_str().expect("an instant").to_owned();
    server.advance(60).await;
    server.call("POST", "/v1/shards", json!({})).await.expect(201);
    server.stop();
    server.restart(&["--clock", "manual"]);
    server.open("umbra", "org").await;
    assert_eq!(server.get("/v1/accounts/umbra").await["shard"], "ledger-1");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text = |name: &str| folder.path().join(name).display().to_string();
    tool(&["admin", "backup", &text("copy")], server.data());
    let data = folder.path().join("restored");
    tool(&["admin", "restore", &text("copy"), "--until", &until], &data);
    let restored = Server::at(&data, &["--clock", "manual"]);
    assert_eq!(restored.get("/v1/shards").await["data"].as_array().map(Vec::len), Some(1));
    assert_eq!(restored.get("/v1/accounts/acme/balance").await["available"], "100");
    restored.call("GET", "/v1/accounts/umbra", Value::Null).await.problem("not_found");
}

#[tokio::test]
async fn a_shard_store_without_its_manifest_is_adopted_only_with_every_ledger() {
    let sharded = ["--clock", "manual", "--shards", "2"];
    let mut server = Server::with(&sharded);
    settled(&server).await;
    let before = balances(&server).await;
    server.stop();
    let data = server.data().to_owned();
    std::fs::remove_file(data.join("manifest.json")).expect("it is ours");
    let mut kept = Vec::new();
    for entry in std::fs::read_dir(&data).expect("it is there") {
        let path = entry.expect("it can be listed").path();
        let name = path.file_name().expect("it has one").to_string_lossy().into_owned();
        if name.starts_with("ledger-1.db") && path.is_file() {
            kept.push((path.clone(), std::fs::read(&path).expect("it is ours")));
            std::fs::remove_file(path).expect("it is ours");
        }
    }
    let mut adopt = Command::new(env!("CARGO_BIN_EXE_bursar"));
    let said = adopt.args(["admin", "adopt", "--data"]).arg(&data).output().expect("it runs");
    let words = String::from_utf8_lossy(&said.stderr);
    assert!(!said.status.success(), "it was adopted");
    assert!(words.contains("ledger-1.db: the file is missing"), "{words}");
    assert!(!data.join("manifest.json").exists());
    for (path, bytes) in kept {
        std::fs::write(path, bytes).expect("it is ours");
    }
    let said = tool(&["admin", "adopt"], &data);
    assert!(said.contains("ledger-0, ledger-1"), "{said}");
    server.restart(&sharded);
    assert_eq!(balances(&server).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_ledger_of_a_folder_and_of_a_server_is_verified_in_one_report() {
    let server = Server::with(&["--clock", "manual", "--shards", "2"]);
    settled(&server).await;
    let (status, local) = verified(&["--data", server.data().to_str().expect("a plain path")]);
    assert_eq!(status, Some(0), "{local}");
    assert_eq!(held(&local), [("ledger-0", true), ("ledger-1", true)]);
    let auditor = server.key("auditor", "*").await;
    let of = ["--server", &server.url, "--key", &auditor];
    let (status, remote) = verified(&of);
    assert_eq!(status, Some(0), "{remote}");
    assert_eq!(held(&remote), [("ledger-0", true), ("ledger-1", true)]);
    // An earlier checkpoint is that of one ledger.
    let second = server.get("/v1/audit/checkpoint?machine=ledger-1").await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let since = folder.path().join("since.json");
    std::fs::write(&since, second.to_string()).expect("the folder is ours");
    let since = since.to_str().expect("a plain path");
    server.grant("later", "umbra", "1").await;
    let (status, remote) = verified(&[&of[..], &["--since", since]].concat());
    assert_eq!(status, Some(0), "{remote}");
    let continued: Vec<&Value> = (0..2).map(|at| &remote["ledgers"][at]["continues"]).collect();
    assert_eq!(continued, [&Value::Null, &second["size"]]);
    let (_, one) = verified(&[&of[..], &["--machine", "ledger-1"]].concat());
    assert_eq!(one["journal"], second["journal"]);
}
