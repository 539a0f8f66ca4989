//! Every file of a data folder, one after the other, removed, emptied, cut, older than it was and of another
//! store, while no server runs and while one does. Afterwards a server refuses by the file's name and with
//! how to fix it, and has changed nothing; or every acknowledged change is there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::server::Server;

/// What happens to a file.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Harm {
    Removed,
    Emptied,
    Halved,
    /// It is the one that another store has under this name.
    Foreign,
    /// It is the one that the store had before.
    Older,
}

/// The files without which acknowledged changes are gone.
const NEEDED: [&str; 6] = [
    "cell-default.db",
    "cell-default.db-tail",
    "directory.db",
    "directory.db-tail",
    "ledger-0.db",
    "ledger-0.db-tail",
];
/// Snapshots are made soon.
const SET_UP: &str = "snapshot_every = 3\n";

/// A store with money, keys and a node, whose server has ended; and what it was before.
struct Template {
    server: Server,
    older: BTreeMap<String, Vec<u8>>,
    other: BTreeMap<String, Vec<u8>>,
    flags: Vec<String>,
    viewer: String,
    answers: Value,
    _folder: TempDir,
}

/// Every file of a folder with its content.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("it is there") {
        let path = entry.expect("it can be listed").path();
        if path.is_file() {
            let name = path.file_name().expect("it has one").to_string_lossy().into_owned();
            files.insert(name, std::fs::read(&path).expect("it is ours"));
        }
    }
    files
}

/// What was done with a file, or `None` if there is none.
fn if_there<T>(done: std::io::Result<T>) -> Option<T> {
    match done {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        done => Some(done.expect("it is ours")),
    }
}

/// What a refusal must not change. The rest says who has it open, and a log with nothing in it says
/// nothing: looking at a database makes one.
fn lasting(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = files(folder);
    files.retain(|name, bytes| {
        let is_log = name.ends_with("-wal") && bytes.is_empty();
        !is_log && !name.ends_with(".lock") && !name.ends_with("-shm")
    });
    files
}

async fn furnish(server: &Server) -> String {
    server.tree().await;
    server.call("PUT", "/v1/prices/H100", json!({ "per_gpu_hour": "6" })).await.expect(200);
    server.grant("funds", "acme", "10").await;
    let hold = json!({ "id": "h", "account": "acme:nlp", "amount": "4" });
    server.call("POST", "/v1/holds", hold).await.expect(201);
    let node = json!({
        "id": "n1", "region": "default", "cpus": 8, "memory_gib": 64,
        "gpus": [{ "uuid": "GPU-n1-0", "type": "H100", "memory_gib": 80 }]
    });
    server.call("POST", "/v1/nodes", node).await.expect(201);
    server.key("viewer", "*").await
}

/// What is asked of every machine, and of history.
async fn answers(server: &Server, key: &str) -> Value {
    let get = async |path: &str| {
        server.send("GET", path, Value::Null, key, &[]).await.expect(200)["data"].clone()
    };
    let balance = server.get("/v1/accounts/acme/balance").await;
    json!({
        "available": balance["available"], "held": balance["held"],
        "entries": get("/v1/accounts/acme/entries?limit=100").await,
        "prices": get("/v1/prices").await, "nodes": get("/v1/nodes").await[0]["id"],
    })
}

impl Template {
    async fn new(in_order: bool) -> Template {
        let folder = TempDir::new().expect("a temporary folder");
        let set_up = folder.path().join("bursar.toml");
        std::fs::write(&set_up, SET_UP).expect("the folder is ours");
        let set_up = set_up.display().to_string();
        let flags = ["--clock", "manual", "--config", &set_up].map(str::to_owned).to_vec();
        let plain: Vec<&str> = flags.iter().map(String::as_str).collect();
        let mut other = Server::with(&plain);
        furnish(&other).await;
        other.stop();
        let mut server = Server::with(&plain);
        let viewer = furnish(&server).await;
        server.stop();
        let older = files(server.data());
        server.restart(&plain);
        server.grant("more", "acme", "5").await;
        server.call("PUT", "/v1/prices/A100", json!({ "per_gpu_hour": "3" })).await.expect(200);
        server.call("POST", "/v1/nodes/n1/drain", json!({})).await.expect(200);
        let answers = answers(&server, &viewer).await;
        if in_order {
            server.stop();
        } else {
            server.crash();
        }
        let other = files(other.data());
        Template { server, older, other, flags, viewer, answers, _folder: folder }
    }

    fn flags(&self) -> Vec<&str> {
        self.flags.iter().map(String::as_str).collect()
    }

    /// A copy of the store.
    fn copy(&self, folder: &TempDir, name: &str) -> PathBuf {
        let copy = folder.path().join(name);
        std::fs::create_dir(&copy).expect("it is new");
        for (name, bytes) in files(self.server.data()) {
            std::fs::write(copy.join(name), bytes).expect("it is ours");
        }
        copy
    }

    /// Does it to a file; says whether that changed anything. A server removes its older snapshots at any
    /// time, so the file may be gone.
    fn harm(&self, file: &Path, harm: Harm) -> bool {
        let name = file.file_name().expect("it has one").to_string_lossy().into_owned();
        let Some(now) = if_there(std::fs::read(file)) else { return false };
        let bytes = match harm {
            Harm::Removed => return if_there(std::fs::remove_file(file)).is_some(),
            Harm::Emptied => Vec::new(),
            Harm::Halved => now[..now.len() / 2].to_vec(),
            Harm::Foreign | Harm::Older => {
                let from = if harm == Harm::Older { &self.older } else { &self.other };
                match from.get(&name) {
                    Some(bytes) => bytes.clone(),
                    None => return false,
                }
            }
        };
        if bytes == now {
            return false;
        }
        // In place: a server that has it open sees it.
        std::fs::write(file, bytes).expect("it is ours");
        true
    }
}

/// A refusal says which file, or which journal it belongs to, and what to do.
#[track_caller]
fn check_refusal(said: &str, name: &str, what: &str) {
    let journal = name.split_once(".db").map_or(name, |(journal, _)| journal);
    assert!(said.contains(name) || said.contains(&format!("{journal}.db")), "{what}: {said}");
    let ways = ["admin restore", "restore it from a backup", "remove it", "Put back"];
    assert!(ways.iter().any(|way| said.contains(way)), "{what}: {said}");
}

/// Harms every file of a store that no server has; says which harms were refused.
async fn harm_all(in_order: bool, harms: &[Harm]) -> BTreeSet<(String, Harm)> {
    let template = Template::new(in_order).await;
    let folder = TempDir::new().expect("a temporary folder");
    let mut refused = BTreeSet::new();
    let names = files(template.server.data());
    for name in names.keys().filter(|name| !name.ends_with(".lock")) {
        for harm in harms {
            let what = format!("{name} {harm:?}");
            let copy = template.copy(&folder, &what);
            if !template.harm(&copy.join(name), *harm) {
                continue;
            }
            let before = lasting(&copy);
            match Server::try_at(&copy, &template.flags()) {
                Err(said) => {
                    check_refusal(&said, name, &what);
                    assert!(lasting(&copy) == before, "{what}: something was written");
                    refused.insert((name.clone(), *harm));
                }
                Ok(mut server) => {
                    server.spoil("one of many copies");
                    assert_eq!(
                        answers(&server, &template.viewer).await,
                        template.answers,
                        "{what}"
                    );
                }
            }
            std::fs::remove_dir_all(&copy).expect("it is ours");
        }
    }
    refused
}

/// What must have been refused: without it something is gone.
#[track_caller]
fn check_needed(refused: &BTreeSet<(String, Harm)>, harms: &[Harm]) {
    for name in NEEDED {
        for harm in harms {
            assert!(refused.contains(&(name.to_owned(), *harm)), "{name} {harm:?} was not refused");
        }
    }
}

#[tokio::test]
async fn no_loss_is_silent_with_a_file_of_a_store_that_was_stopped() {
    let harms = [Harm::Removed, Harm::Emptied, Harm::Halved, Harm::Foreign, Harm::Older];
    let refused = harm_all(true, &harms).await;
    // What was cut from a database may lie in the log beside it; what was cut from a tail lies nowhere.
    check_needed(&refused, &[Harm::Removed, Harm::Emptied, Harm::Foreign]);
    for (name, harm) in [
        ("manifest.json", Harm::Removed),
        ("manifest.json", Harm::Emptied),
        ("manifest.json", Harm::Halved),
        ("manifest.json", Harm::Foreign),
        ("checkpoint.key", Harm::Removed),
        ("checkpoint.key", Harm::Emptied),
        ("checkpoint.key", Harm::Halved),
        ("checkpoint.key", Harm::Foreign),
        ("root.key", Harm::Emptied),
        ("cell-default.db-tail", Harm::Halved),
        ("directory.db-tail", Harm::Halved),
        ("ledger-0.db-tail", Harm::Halved),
    ] {
        assert!(refused.contains(&(name.to_owned(), harm)), "{name} {harm:?} was not refused");
    }
    // What is derived is made again.
    let derived = |name: &str| {
        ["history.db", "archive-0.db"].iter().any(|file| name.starts_with(file))
            || name.contains(".snapshot-")
    };
    let wrong: Vec<_> = refused.iter().filter(|(name, _)| derived(name)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[tokio::test]
async fn no_loss_is_silent_with_a_file_of_a_store_that_was_killed() {
    let harms = [Harm::Removed, Harm::Emptied, Harm::Halved, Harm::Foreign, Harm::Older];
    let refused = harm_all(false, &harms).await;
    check_needed(&refused, &[Harm::Removed, Harm::Emptied, Harm::Foreign]);
}

/// Harms every file of a store under a running server, goes on, kills it, and starts it again.
async fn harm_running(harm: Harm) {
    let template = Template::new(true).await;
    let folder = TempDir::new().expect("a temporary folder");
    for name in files(template.server.data()).keys() {
        let what = format!("{name} {harm:?}");
        let copy = template.copy(&folder, &what);
        let flags = template.flags();
        let mut server = Server::at(&copy, &flags);
        server.spoil("one of many copies");
        server.grant("during", "acme", "7").await;
        if !template.harm(&copy.join(name), harm) {
            continue;
        }
        let body = json!({ "id": "after", "account": "acme", "amount": "100", "kind": "purchase" });
        let path = format!("{}/v1/grants", server.url);
        let sent = server.client.post(path).bearer_auth(&server.root).json(&body).send().await;
        let acknowledged = sent.is_ok_and(|answer| answer.status() == 201);
        drop(server);
        match Server::try_at(&copy, &flags) {
            Err(said) => check_refusal(&said, name, &what),
            Ok(mut server) => {
                server.spoil("one of many copies");
                let balance = server.get("/v1/accounts/acme/balance").await;
                let available = balance["available"].as_str().expect("an amount").to_owned();
                let both = available == "118";
                assert!(both || (available == "18" && !acknowledged), "{what}: {balance}");
                let path = "/v1/accounts/acme/entries?limit=100";
                let entries = server.get(path).await["data"].to_string();
                assert!(entries.contains("during"), "{what}: {entries}");
            }
        }
        std::fs::remove_dir_all(&copy).expect("it is ours");
    }
}

#[tokio::test]
async fn no_loss_is_silent_with_a_file_that_is_removed_under_a_server() {
    harm_running(Harm::Removed).await;
}

#[tokio::test]
async fn no_loss_is_silent_with_a_file_that_is_emptied_under_a_server() {
    harm_running(Harm::Emptied).await;
}

#[tokio::test]
async fn no_loss_is_silent_with_a_file_of_another_store_under_a_server() {
    harm_running(Harm::Foreign).await;
}
