//! A store moves from a folder into PostgreSQL.

use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::clients::TestClients;
use crate::journal_support::postgres::TestPostgres;
use crate::members::{ROOT_KEY, free_url};

const BURSAR: &str = env!("CARGO_BIN_EXE_bursar");

/// A server, killed when the test ends.
struct Serving {
    child: Child,
    clients: std::sync::Arc<TestClients>,
}

impl Serving {
    fn start(root_key: &str, flags: &[&str]) -> Serving {
        let url = free_url();
        let child = Command::new(BURSAR)
            .args(["serve", "--listen", url.trim_start_matches("http://")])
            .args(["--root-key-file", root_key])
            .args(flags)
            .env("BURSAR_LOG", "error")
            .stdout(Stdio::null())
            .spawn();
        let clients = TestClients::new(&[url], ROOT_KEY);
        Serving { child: child.expect("the binary is there"), clients }
    }

    fn stop(mut self) {
        let process = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &process]).status();
        assert!(sent.expect("kill is there").success());
        assert!(self.child.wait().expect("it is ours").success());
    }

    async fn post(&self, path: &str, body: Value) {
        let (status, said) = self.clients.ask("POST", path, body).await;
        assert!(matches!(status, 200 | 201), "{path}: {said}");
    }

    /// The answers to some questions, without the time and position at which they were given.
    async fn answers(&self) -> Vec<Value> {
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
            let (status, mut said) = self.clients.ask("GET", path, Value::Null).await;
            assert_eq!(status, 200, "{path}: {said}");
            forget_when(&mut said);
            // The blockers of a waiting job are those of now.
            let is_job = path.starts_with("/v1/jobs/");
            answers.push(if is_job { json!([said["id"], said["state"]]) } else { said });
        }
        answers
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
    let output = Command::new(BURSAR).args(arguments).output().expect("the binary is there");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// Starts a server on a folder, which must end with an error; returns what it said.
async fn refused(root_key: &str, data: &str) -> String {
    let url = free_url();
    let mut server = Command::new(BURSAR)
        .args(["serve", "--listen", url.trim_start_matches("http://")])
        .args(["--root-key-file", root_key, "--data", data])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary is there");
    while server.try_wait().expect("it is ours").is_none() {
        if reqwest::get(format!("{url}/healthz")).await.is_ok() {
            let _ = server.kill();
            panic!("a folder whose store was moved is served");
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let output = server.wait_with_output().expect("it is ours");
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_is_not_served_once_its_store_may_be_in_a_database() {
    let database = TestPostgres::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = |name: &str| folder.path().join(name).display().to_string();
    let (root, data) = (place("root.key"), place("data"));
    std::fs::write(&root, ROOT_KEY).expect("the folder is ours");
    let server = Serving::start(&root, &["--data", &data]);
    server.post("/v1/accounts", json!({ "id": "acme", "kind": "org" })).await;
    server.stop();
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
    let server = Serving::start(&root, &["--data", &data]);
    server.post("/v1/accounts", json!({ "id": "umbra", "kind": "org" })).await;
    server.stop();

    // The connection ends while the commit waits for its standby: whether it took place is not known.
    database.sql("ALTER SYSTEM SET synchronous_standby_names = 'absent'");
    database.sql("SELECT pg_reload_conf()");
    let moving = std::thread::spawn(move_to(&database.url()));
    let waits = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    database.wait_for(&format!("SELECT count(*) {waits}"), "1");
    database.sql(&format!("SELECT pg_terminate_backend(pid) {waits}"));
    let (done, said) = moving.join().expect("it ends");
    assert!(!done && said.contains("not known"), "{said}");
    let said = refused(&root, &data).await;
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
    let said = refused(&root, &data).await;
    assert!(said.contains("moved"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_moves_into_postgresql_with_its_work_and_answers_as_before() {
    let database = TestPostgres::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = |name: &str| folder.path().join(name).display().to_string();
    let (root, data, store) = (place("root.key"), place("data"), database.url());
    std::fs::write(&root, ROOT_KEY).expect("the folder is ours");
    let server = Serving::start(&root, &["--data", &data]);
    server.post("/v1/accounts", json!({ "id": "acme", "kind": "org" })).await;
    let grant = json!({ "id": "g", "account": "acme", "amount": "100", "kind": "purchase" });
    server.post("/v1/grants", grant).await;
    for id in ["open", "closed"] {
        let hold = json!({ "id": id, "account": "acme", "amount": "7", "ttl_seconds": 864_000 });
        server.post("/v1/holds", hold).await;
    }
    server.post("/v1/holds/closed/settle", json!({ "total": "3" })).await;
    let charge = json!({ "id": "paid", "account": "acme", "amount": "2" });
    server.post("/v1/charges", charge.clone()).await;
    let price = json!({ "per_gpu_hour": "6" });
    assert_eq!(server.clients.ask("PUT", "/v1/prices/H100", price).await.0, 200);
    let job = json!({
        "id": "waiting", "account": "acme", "gpus": { "types": ["H100"], "count": 1 },
        "max_runtime_seconds": 600, "command": ["true"]
    });
    server.post("/v1/jobs", job).await;
    server.post("/v1/keys", json!({ "role": "viewer", "scope": "acme", "name": "k" })).await;
    let before = server.answers().await;

    let key = place("checkpoint.key");
    let flags = ["--checkpoint-key", key.as_str(), "--unsafe-single-postgres"];
    let move_it =
        || bursar(&[&["admin", "migrate", "--data", &data, "--to", &store], &flags[..]].concat());
    let (done, said) = move_it();
    assert!(!done && said.contains(&data), "a server runs: {said}");
    server.stop();
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

    let server = Serving::start(&root, &["--store", &store, "--unsafe-single-postgres"]);
    assert_eq!(server.answers().await, before);
    // What was done before is a repeat.
    server.post("/v1/charges", charge).await;
    assert_eq!(server.answers().await, before);
    server.post("/v1/holds/open/settle", json!({ "total": "1" })).await;
    server.stop();
    crate::rehearsal::rehearse_postgres(&store);
}
