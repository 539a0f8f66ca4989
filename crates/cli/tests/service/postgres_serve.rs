//! The service on a real PostgreSQL: the main flow, a restart, and a crash.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::journal_support::postgres::TestPostgres;
use crate::server::{Server, tool};

/// The address of a database whose socket lies in a folder.
pub(crate) fn address(database: &TestPostgres) -> String {
    let words = database.url();
    let word = |name: &str| {
        let found = words.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        found.expect("it is named").to_owned()
    };
    let host = word("host").replace('/', "%2F");
    format!("postgres://{}@{host}:{}/{}", word("user"), word("port"), word("dbname"))
}

pub(crate) fn start(store: &str, root: &Path) -> Server {
    let root = root.to_str().expect("a plain path");
    Server::on_store(&[
        "--store",
        store,
        "--unsafe-single-postgres",
        "--root-key-file",
        root,
        "--clock",
        "manual",
    ])
}

async fn signer(server: &Server) -> Value {
    server.get("/v1/audit/checkpoint").await["public_key"].clone()
}

#[tokio::test]
async fn the_main_flow_survives_a_restart_and_a_crash_on_postgresql() {
    let database = TestPostgres::start();
    let store = address(&database);
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let root: PathBuf = folder.path().join("root.key");
    let server = start(&store, &root);
    server.tree().await;
    server.grant("g", "acme", "10").await;
    let place = json!({ "id": "h", "account": "acme:nlp", "amount": "4" });
    server.call("POST", "/v1/holds", place).await.expect(201);
    server.call("POST", "/v1/holds/h/capture", json!({ "total": "1" })).await.expect(200);
    let refused = json!({ "account": "acme", "amount": "7" });
    server.call("POST", "/v1/charges", refused).await.problem("insufficient_credits");
    let signed_by = signer(&server).await;
    let balance = server.get("/v1/accounts/acme/balance").await;
    assert_eq!((&balance["available"], &balance["held"]), (&json!("6"), &json!("3")));
    assert_eq!(server.terminate().code(), Some(0));

    let mut server = start(&store, &root);
    let again = server.get("/v1/accounts/acme/balance").await;
    assert_eq!((&again["available"], &again["held"]), (&balance["available"], &balance["held"]));
    assert_eq!(signer(&server).await, signed_by, "the key outlives the process");
    let key = [("Idempotency-Key", "k")];
    let settle = json!({ "total": "2.5" });
    let path = "/v1/holds/h/settle";
    let secret = server.root.clone();
    let settled = server.send("POST", path, settle.clone(), &secret, &key).await.expect(200);
    server.crash();

    let server = start(&store, &root);
    let replayed = server.send("POST", path, settle, &secret, &key).await;
    assert!(replayed.is_replayed());
    assert_eq!(replayed.expect(200), settled);
    assert_eq!(server.get("/v1/grants/g").await["spent"], "2.5");
    assert_eq!(signer(&server).await, signed_by);
    let entries = server.get("/v1/accounts/acme/entries").await;
    assert_eq!(entries["data"][0]["balance_after"], "7.5", "history was built again");
    let verified = Command::new(env!("CARGO_BIN_EXE_bursar"))
        .args(["audit", "verify", "--store", &store])
        .output()
        .expect("the binary is there");
    let text = String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success(), "{text}");
}

#[tokio::test]
async fn a_postgresql_store_is_backed_up_beside_its_server_into_the_same_form() {
    let database = TestPostgres::start();
    let store = address(&database);
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let root: PathBuf = folder.path().join("root.key");
    let server = start(&store, &root);
    server.tree().await;
    server.grant("g", "acme", "10").await;
    let (backup, key) = (folder.path().join("backup"), folder.path().join("checkpoint.key"));
    let made = Command::new(env!("CARGO_BIN_EXE_bursar"))
        .args(["admin", "backup", "--store", &store, "--checkpoint-key"])
        .args([&key, &backup])
        .output()
        .expect("the binary is there");
    let said = String::from_utf8_lossy(&[made.stdout, made.stderr].concat()).into_owned();
    assert!(made.status.success(), "{said}");
    server.grant("later", "acme", "90").await;
    let restored = folder.path().join("restored");
    tool(&["admin", "restore", backup.to_str().expect("a plain path")], &restored);
    tool(&["audit", "verify"], &restored);
    let again = Server::at(&restored, &["--clock", "manual"]);
    assert_eq!(again.get("/v1/accounts/acme/balance").await["available"], "10");
    assert_eq!(signer(&again).await, signer(&server).await);
}
