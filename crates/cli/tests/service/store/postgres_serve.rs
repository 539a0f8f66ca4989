//! The service on a real PostgreSQL: the main flow, a restart, and a crash.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::journal_support::postgres::TestPostgres;
use crate::server::{Server, tool};
use crate::store::postgres_store::{content, refused, start_logged};

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

/// Makes a backup of a PostgreSQL store; says whether it was made, and what was said.
fn backup(store: &str, flags: &[&str], target: &Path) -> (bool, String) {
    let made = Command::new(env!("CARGO_BIN_EXE_bursar"))
        .args(["admin", "backup", "--store", store])
        .args(flags)
        .arg(target)
        .output()
        .expect("the binary is there");
    let said = String::from_utf8_lossy(&[made.stdout, made.stderr].concat()).into_owned();
    (made.status.success(), said)
}

#[tokio::test]
async fn a_signing_key_that_is_lost_or_another_is_refused_on_postgresql() {
    let database = TestPostgres::start();
    let (store, folder) = (address(&database), tempfile::tempdir().expect("a temporary folder"));
    let root = folder.path().join("root.key");
    let file = folder.path().join("checkpoint.key");
    let server = start(&store, &root);
    server.tree().await;
    let signed_by = signer(&server).await;
    assert_eq!(server.terminate().code(), Some(0));
    let own = std::fs::read(&file).expect("it was made");
    for foreign in [true, false] {
        if foreign {
            std::fs::write(&file, [7; 32]).expect("it is ours");
        } else {
            std::fs::remove_file(&file).expect("it is ours");
        }
        let before = content(&database);
        let said = refused(&store, &root);
        assert!(said.contains("checkpoint.key") && said.contains("Put back the file"), "{said}");
        assert!(said.contains("--new-checkpoint-key"), "{said}");
        assert_eq!(content(&database), before, "something was written");
        assert_eq!(file.exists(), foreign, "no key is made");
    }
    // Servers of one store have one key: another one is refused before it stands by.
    std::fs::write(&file, &own).expect("it is ours");
    let server = start(&store, &root);
    assert_eq!(signer(&server).await, signed_by);
    let elsewhere = tempfile::tempdir().expect("a temporary folder");
    let said = refused(&store, &elsewhere.path().join("root.key"));
    assert!(said.contains("checkpoint.key") && said.contains("Put back the file"), "{said}");
    assert_eq!(server.terminate().code(), Some(0));

    // The way out.
    std::fs::remove_file(&file).expect("it is ours");
    let place = root.to_str().expect("a plain path");
    let flags = ["--store", &store, "--unsafe-single-postgres", "--root-key-file", place];
    let clock = ["--clock", "manual"];
    let server = Server::on_store(&[&flags[..], &clock, &["--new-checkpoint-key"]].concat());
    let new = signer(&server).await;
    assert_ne!(new, signed_by);
    assert_eq!(server.terminate().code(), Some(0));
    let server = start(&store, &root);
    assert_eq!(signer(&server).await, new);
}

#[tokio::test]
async fn a_backup_of_a_postgresql_store_has_the_key_that_signs_or_says_aloud_that_it_has_none() {
    let database = TestPostgres::start();
    let (store, folder) = (address(&database), tempfile::tempdir().expect("a temporary folder"));
    let server = start(&store, &folder.path().join("root.key"));
    let signed_by = signer(&server).await;
    let place = |name: &str| folder.path().join(name).display().to_string();
    let (key, target) = (place("checkpoint.key"), folder.path().join("backup"));
    let (done, said) = backup(&store, &[], &target);
    assert!(!done, "{said}");
    assert!(said.contains("--checkpoint-key") && said.contains("--without-key"), "{said}");
    std::fs::write(place("other.key"), [7; 32]).expect("the folder is ours");
    let (done, said) = backup(&store, &["--checkpoint-key", &place("other.key")], &target);
    assert!(!done && said.contains("other.key") && said.contains("signed under"), "{said}");
    assert!(std::fs::read_dir(&target).map_or(true, |mut all| all.next().is_none()), "{said}");

    let (done, said) = backup(&store, &["--checkpoint-key", &key], &target);
    assert!(done, "{said}");
    let signer_in = |folder: &Path| {
        let text = std::fs::read(folder.join("manifest.json")).expect("it is there");
        serde_json::from_slice::<Value>(&text).expect("JSON")["signer"].clone()
    };
    assert_eq!(signer_in(&target), signed_by);
    let without = folder.path().join("without");
    let (done, said) = backup(&store, &["--without-key"], &without);
    assert!(done && !without.join("checkpoint.key").exists(), "{said}");
    assert_eq!(signer_in(&without), signed_by);

    // A restored database knows the key as well.
    let url = database.database("restored");
    let restored = Command::new(env!("CARGO_BIN_EXE_bursar"))
        .args(["admin", "restore", target.to_str().expect("a plain path"), "--store", &url])
        .args(["--unsafe-single-postgres", "--checkpoint-key", &key])
        .output()
        .expect("the binary is there");
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    let known = database.sql_in("restored", "SELECT signer FROM bursar_store");
    assert_eq!(Value::from(known), signed_by);
}

#[tokio::test]
async fn history_of_a_postgresql_store_goes_on_where_it_was_after_a_restart() {
    let database = TestPostgres::start();
    let (store, folder) = (address(&database), tempfile::tempdir().expect("a temporary folder"));
    let (root, state) = (folder.path().join("root.key"), folder.path().join("state"));
    let log = folder.path().join("log");
    let place = state.display().to_string();
    let flags = ["--state", place.as_str()];
    let begins_at = |said: &str| -> u64 {
        let line = said.lines().find(|line| line.contains("history continues")).expect(said);
        let number = line.rsplit_once("position").expect(line).1;
        let digits: String = number
            .chars()
            .skip_while(|sign| !sign.is_ascii_digit())
            .take_while(char::is_ascii_digit)
            .collect();
        digits.parse().expect(line)
    };
    let said = start_logged(&store, &root, &flags, &log);
    assert_eq!(begins_at(&said), 0, "it is new: {said}");
    let root_key = root.display().to_string();
    let more = ["--clock", "manual", "--unsafe-single-postgres", "--root-key-file", &root_key];
    let server = Server::on_store(&[&["--store", store.as_str()], &flags[..], &more].concat());
    server.open("acme", "org").await;
    // What was asked for is kept.
    server.get("/v1/accounts/acme/entries").await;
    assert_eq!(server.terminate().code(), Some(0));
    assert!(state.join("history.db").is_file(), "it outlives the process");
    let said = start_logged(&store, &root, &flags, &log);
    assert!(begins_at(&said) > 0, "it was built again: {said}");

    // One that another process has is left to it.
    let lock = std::fs::File::open(state.join("history.lock")).expect("it is there");
    lock.lock().expect("no server runs");
    let said = start_logged(&store, &root, &flags, &log);
    assert_eq!(begins_at(&said), 0, "another process has it: {said}");
    assert!(said.contains("history.lock"), "{said}");
    drop(lock);
    let said = start_logged(&store, &root, &flags, &log);
    assert!(begins_at(&said) > 0, "it was built again: {said}");
}

#[tokio::test]
async fn a_backup_of_a_postgresql_store_has_what_jobs_printed_if_asked_to() {
    let database = TestPostgres::start();
    let (store, folder) = (address(&database), tempfile::tempdir().expect("a temporary folder"));
    let server = start(&store, &folder.path().join("root.key"));
    server.open("acme", "org").await;
    let state = folder.path().join("state");
    let logs = state.join("logs/default");
    std::fs::create_dir_all(&logs).expect("the folder is ours");
    std::fs::write(logs.join("printed"), "here").expect("the folder is ours");
    let place = |name: &str| folder.path().join(name);
    let flag = state.display().to_string();
    let (done, said) = backup(&store, &["--without-key", "--state", &flag], &place("with"));
    assert!(done, "{said}");
    let printed = std::fs::read_to_string(place("with").join("logs/default/printed"));
    assert_eq!(printed.expect("it was copied"), "here");
    let (done, said) = backup(&store, &["--without-key"], &place("without"));
    assert!(done && !place("without").join("logs").exists(), "{said}");
    let nowhere = place("nowhere").display().to_string();
    let (done, said) = backup(&store, &["--without-key", "--state", &nowhere], &place("none"));
    assert!(!done && said.contains(&nowhere), "{said}");
}
