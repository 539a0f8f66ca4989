//! A store moves from a folder into PostgreSQL.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::journal_support::postgres::TestPostgres;
use crate::server::{Server, refused};

/// A root key that the folder and the database both use.
const ROOT_KEY: &str = "root-key-of-a-store-that-moves-and-is-long-enough";

async fn post(server: &Server, path: &str, body: Value) {
    let answer = server.call("POST", path, body).await;
    assert!(matches!(answer.status, 200 | 201), "{path}: {}", answer.body);
}

/// The answers to some questions, without the time and position at which they were given.
async fn answers(server: &Server) -> Vec<Value> {
    let mut answers = Vec::new();
    for path in [
        "/v1/accounts",
        "/v1/accounts/acme/balance",
        "/v1/accounts/acme/entries",
        "/v1/grants/g",
        "/v1/holds/open",
        "/v1/holds/closed",
        "/v1/charges/paid",
        "/v1/jobs/waiting",
        "/v1/prices",
        "/v1/keys",
    ] {
        let mut said = server.get(path).await;
        forget_when(&mut said);
        // The blockers of a waiting job are those of now.
        let is_job = path.starts_with("/v1/jobs/");
        answers.push(if is_job { json!([said["id"], said["state"]]) } else { said });
    }
    answers
}

fn forget_when(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for name in ["as_of", "position", "last_used_at", "blockers"] {
                fields.remove(name);
            }
            fields.values_mut().for_each(forget_when);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_when),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Runs the binary; returns whether it succeeded, and what it said.
fn bursar(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_bursar")).args(arguments).output();
    let output = output.expect("the binary is there");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

fn start(root: &str, place: &[&str]) -> Server {
    Server::on_store(&[&["--root-key-file", root], place].concat())
}

#[tokio::test]
async fn a_folder_is_not_served_once_its_store_may_be_in_a_database() {
    let database = TestPostgres::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = |name: &str| folder.path().join(name).display().to_string();
    let (root, data) = (place("root.key"), place("data"));
    std::fs::write(&root, ROOT_KEY).expect("the folder is ours");
    let server = start(&root, &["--data", &data]);
    post(&server, "/v1/accounts", json!({ "id": "acme", "kind": "org" })).await;
    assert!(server.terminate().success());
    let move_to = |to: &str| {
        let (data, to) = (data.clone(), to.to_owned());
        move || {
            let to = ["--to", &to, "--unsafe-single-postgres"];
            bursar(&[&["admin", "migrate", "--data", &data], &to[..]].concat())
        }
    };
    // A move that cannot have taken place leaves no mark.
    let taken = database.database("taken");
    database.sql_in("taken", "CREATE TABLE other (id integer)");
    let (done, said) = move_to(&taken)();
    assert!(!done && said.contains("not empty"), "{said}");
    let server = start(&root, &["--data", &data]);
    post(&server, "/v1/accounts", json!({ "id": "umbra", "kind": "org" })).await;
    assert!(server.terminate().success());

    // The connection ends while the commit waits for its standby: whether it took place is not known.
    database.sql("ALTER SYSTEM SET synchronous_standby_names = 'absent'");
    database.sql("SELECT pg_reload_conf()");
    let moving = std::thread::spawn(move_to(&database.url()));
    let waits = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    database.wait_for(&format!("SELECT count(*) {waits}"), "1");
    database.sql(&format!("SELECT pg_terminate_backend(pid) {waits}"));
    let (done, said) = moving.join().expect("it ends");
    assert!(!done && said.contains("not known"), "{said}");
    let said = refused(Path::new(&data), &["--root-key-file", &root]);
    assert!(said.contains("moved") && said.contains("--not-moved"), "{said}");
    database.sql("ALTER SYSTEM RESET synchronous_standby_names");
    database.sql("SELECT pg_reload_conf()");
    let second = database.database("second");
    let (done, said) = move_to(&second)();
    assert!(!done && said.contains("--not-moved"), "{said}");
    let (done, said) = bursar(&["admin", "adopt", "--not-moved", "--data", &data]);
    assert!(done, "{said}");
    let (done, said) = move_to(&second)();
    assert!(done, "{said}");
    let said = refused(Path::new(&data), &["--root-key-file", &root]);
    assert!(said.contains("moved"), "{said}");
}

#[tokio::test]
async fn a_store_moves_into_postgresql_with_its_work_and_answers_as_before() {
    let database = TestPostgres::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = |name: &str| folder.path().join(name).display().to_string();
    let (root, data, store) = (place("root.key"), place("data"), database.url());
    std::fs::write(&root, ROOT_KEY).expect("the folder is ours");
    let server = start(&root, &["--data", &data]);
    post(&server, "/v1/accounts", json!({ "id": "acme", "kind": "org" })).await;
    let grant = json!({ "id": "g", "account": "acme", "amount": "100", "kind": "purchase" });
    post(&server, "/v1/grants", grant).await;
    for id in ["open", "closed"] {
        let hold = json!({ "id": id, "account": "acme", "amount": "7", "ttl_seconds": 864_000 });
        post(&server, "/v1/holds", hold).await;
    }
    post(&server, "/v1/holds/closed/settle", json!({ "total": "3" })).await;
    let charge = json!({ "id": "paid", "account": "acme", "amount": "2" });
    post(&server, "/v1/charges", charge.clone()).await;
    let price = json!({ "per_gpu_hour": "6" });
    assert_eq!(server.call("PUT", "/v1/prices/H100", price).await.status, 200);
    let job = json!({
        "id": "waiting", "account": "acme", "gpus": { "types": ["H100"], "count": 1 },
        "max_runtime_seconds": 600, "command": ["true"]
    });
    post(&server, "/v1/jobs", job).await;
    post(&server, "/v1/keys", json!({ "role": "viewer", "scope": "acme", "name": "k" })).await;
    let before = answers(&server).await;

    let key = place("checkpoint.key");
    let flags = ["--checkpoint-key", key.as_str(), "--unsafe-single-postgres"];
    let move_it =
        || bursar(&[&["admin", "migrate", "--data", &data, "--to", &store], &flags[..]].concat());
    let (done, said) = move_it();
    assert!(!done && said.contains(&data), "a server runs: {said}");
    assert!(server.terminate().success());
    let (done, said) = move_it();
    assert!(done, "{said}");
    for machine in ["cell-default", "ledger-0", "directory"] {
        assert!(said.contains(&format!("{machine}: record ")), "{said}");
    }
    assert_eq!(said.matches("has the same digest").count(), 3, "{said}");
    let (again, said) = move_it();
    assert!(!again, "there is a store already: {said}");
    let (whole, said) = bursar(&["audit", "verify", "--store", &store]);
    assert!(whole, "{said}");

    let server = start(&root, &["--store", &store, "--unsafe-single-postgres"]);
    assert_eq!(answers(&server).await, before);
    // What was done before is a repeat.
    post(&server, "/v1/charges", charge).await;
    assert_eq!(answers(&server).await, before);
    post(&server, "/v1/holds/open/settle", json!({ "total": "1" })).await;
    assert!(server.terminate().success());
}
