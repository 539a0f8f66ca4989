//! What a server reports about a data folder that was changed.

mod backups;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::server::{Server, refused, tool};

const MANUAL: [&str; 2] = ["--clock", "manual"];
/// What must be there, or acknowledged changes are gone.
const NEEDED: [&str; 6] = [
    "ledger-0.db",
    "ledger-0.db-tail",
    "directory.db",
    "directory.db-tail",
    "cell-default.db",
    "cell-default.db-tail",
];

/// A store with money in it, whose server has ended: in order, or as by a power cut.
async fn store(in_order: bool) -> Server {
    let mut server = Server::start();
    server.open("acme", "org").await;
    server.grant("funds", "acme", "10").await;
    if in_order {
        server.stop();
    } else {
        server.crash();
    }
    server
}

/// Every file of a folder with its content, but for what says who has it open.
fn content(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("it is there") {
        let path = entry.expect("it can be listed").path();
        let name = path.file_name().expect("it has one").to_string_lossy().into_owned();
        if path.is_file() && !name.ends_with(".lock") && !name.ends_with("-shm") {
            files.insert(name, std::fs::read(&path).expect("it is ours"));
        }
    }
    files
}

/// Why `admin adopt` makes no manifest for a folder.
#[track_caller]
fn cannot_adopt(data: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    let said = command.args(["admin", "adopt", "--data"]).arg(data).output().expect("it runs");
    assert!(!said.status.success(), "it was adopted");
    String::from_utf8_lossy(&said.stderr).into_owned()
}

#[tokio::test]
async fn a_missing_or_emptied_file_is_refused_by_name_and_nothing_is_written() {
    for in_order in [true, false] {
        let mut server = store(in_order).await;
        let data = server.data().to_owned();
        for name in NEEDED {
            let file = data.join(name);
            let kept = std::fs::read(&file).expect(name);
            for is_missing in [true, false] {
                if is_missing {
                    std::fs::remove_file(&file).expect("it is ours");
                } else {
                    std::fs::write(&file, []).expect("it is ours");
                }
                let before = content(&data);
                let said = refused(&data, &MANUAL);
                assert!(said.contains(name) && said.contains("admin restore"), "{said}");
                assert!(content(&data) == before, "{name}: something was written");
                std::fs::write(&file, &kept).expect("it is ours");
            }
        }
        server.restart(&MANUAL);
        let balance = server.get("/v1/accounts/acme/balance").await;
        assert_eq!(balance["available"], "10", "{balance}");
    }
}

#[tokio::test]
async fn a_root_key_file_that_holds_no_key_is_refused_before_anything_is_written() {
    let mut server = store(true).await;
    let data = server.data().to_owned();
    let root = std::fs::read_to_string(data.join("root.key")).expect("it is there");
    let (half, mistyped) = (&root[..root.len() / 2], root.replace("bur_", "bur_x"));
    let texts = ["", "bur_", "two words", half, &mistyped];
    let file = data.join("root.key");
    for text in texts {
        std::fs::write(&file, text).expect("it is ours");
        let before = content(&data);
        let said = refused(&data, &MANUAL);
        assert!(said.contains(&file.display().to_string()), "{text:?}: {said}");
        assert!(said.contains("Nothing was changed") && said.contains("move"), "{said}");
        assert!(content(&data) == before, "{text:?}: something was written");
    }
    std::fs::write(&file, &root).expect("it is ours");
    server.restart(&MANUAL);
    assert_eq!(server.get("/v1/accounts/acme/balance").await["available"], "10");
}

#[tokio::test]
async fn a_root_key_that_may_be_guessed_begins_no_store_and_stops_none_that_is_there() {
    let mut server = store(true).await;
    for short in ["short-secret", "a-root-key-with-a-sign-that-is-not-usual!"] {
        let fresh = tempfile::tempdir().expect("a temporary folder");
        let file = fresh.path().join("root.key");
        std::fs::write(&file, short).expect("it is ours");
        let said = refused(fresh.path(), &MANUAL);
        assert!(said.contains(&file.display().to_string()), "{said}");
        assert!(
            said.contains("No record was written") && said.contains("choose another"),
            "{said}"
        );
        assert_eq!(content(fresh.path()).len(), 1, "something was written");

        std::fs::write(server.data().join("root.key"), short).expect("it is ours");
        server.root = short.to_owned();
        server.restart(&MANUAL);
        assert_eq!(server.get("/v1/accounts/acme/balance").await["available"], "10");
        server.stop();
    }
}

#[tokio::test]
async fn a_missing_ledger_is_named_by_every_command_that_opens_the_folder() {
    let server = store(true).await;
    let file = server.data().join("ledger-0.db");
    let kept = std::fs::read(&file).expect("it is there");
    std::fs::remove_file(&file).expect("it is ours");
    for arguments in [["audit", "verify"], ["admin", "check"]] {
        let said = Command::new(env!("CARGO_BIN_EXE_bursar"))
            .args(arguments)
            .arg("--data")
            .arg(server.data())
            .output()
            .expect("the binary is there");
        let words = String::from_utf8_lossy(&said.stderr);
        assert!(!said.status.success(), "{words}");
        assert!(words.contains("ledger-0.db: the file is missing"), "{words}");
        assert!(words.contains("admin restore"), "{words}");
    }
    std::fs::write(&file, kept).expect("it is ours");
}

#[tokio::test]
async fn a_record_of_the_directory_that_was_changed_is_found() {
    let server = store(true).await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (kept, data) = (folder.path().join("kept"), folder.path().join("data"));
    let bursar = |arguments: &[&str]| {
        let said = Command::new(env!("CARGO_BIN_EXE_bursar")).args(arguments).output();
        let said = said.expect("the binary is there");
        (said.status.success(), String::from_utf8_lossy(&said.stderr).into_owned())
    };
    let plain = |path: &std::path::Path| path.to_str().expect("a plain path").to_owned();
    let (from, kept, data) = (plain(server.data()), plain(&kept), plain(&data));
    for arguments in
        [["admin", "backup", &kept, "--data", &from], ["admin", "restore", &kept, "--data", &data]]
    {
        let (done, words) = bursar(&arguments);
        assert!(done, "{words}");
    }
    let file = rusqlite::Connection::open(format!("{data}/directory.db")).expect("it is there");
    let change = "UPDATE batch SET payload = zeroblob(length(payload)) WHERE sequence = 2";
    assert_eq!(file.execute(change, []).expect("it is a journal"), 1);
    drop(file);
    for command in ["audit verify", "admin check"] {
        let (group, verb) = command.split_once(' ').expect("two words");
        let (whole, words) = bursar(&[group, verb, "--data", &data]);
        assert!(!whole && words.contains("directory.db: "), "{command}: {words}");
    }
}

#[tokio::test]
async fn an_older_copy_of_one_file_is_noticed() {
    let mut server = store(true).await;
    let data = server.data().to_owned();
    let old: BTreeMap<_, _> =
        content(&data).into_iter().filter(|(name, _)| name.starts_with("ledger-0.db")).collect();
    server.restart(&MANUAL);
    server.grant("more", "acme", "5").await;
    server.stop();
    let new = content(&data);
    for (name, bytes) in &old {
        std::fs::write(data.join(name), bytes).expect("it is ours");
    }
    let said = refused(&data, &MANUAL);
    assert!(said.contains("ledger-0.db") && said.contains("older copy"), "{said}");
    for (name, bytes) in &new {
        std::fs::write(data.join(name), bytes).expect("it is ours");
    }
    server.restart(&MANUAL);
    assert_eq!(server.get("/v1/accounts/acme/balance").await["available"], "15");
}

#[tokio::test]
async fn a_ledger_that_is_older_than_its_cell_is_noticed_without_the_manifests_help() {
    let mut server = Server::start();
    let data = server.data().to_owned();
    server.open("acme", "org").await;
    server.stop();
    let old = content(&data);
    server.restart(&MANUAL);
    // The cell receives every account.
    server.open("umbra", "org").await;
    let quota = json!({ "running_jobs": 3 });
    server.call("PUT", "/v1/accounts/umbra/quota", quota).await.expect(200);
    server.advance(1).await;
    server.stop();
    let new = content(&data);
    // Everything but the cell is from an older copy: also the manifest.
    for (name, bytes) in old.iter().filter(|(name, _)| !name.starts_with("cell-")) {
        std::fs::write(data.join(name), bytes).expect("it is ours");
    }
    let said = refused(&data, &MANUAL);
    assert!(said.contains("ledger-0.db is an older copy than cell-default.db"), "{said}");
    for (name, bytes) in &new {
        std::fs::write(data.join(name), bytes).expect("it is ours");
    }
    server.restart(&MANUAL);
}

#[tokio::test]
async fn a_file_of_another_store_is_refused() {
    let (mut server, other) = (store(true).await, store(true).await);
    let data = server.data().to_owned();
    let kept = content(&data);
    for name in ["ledger-0.db", "ledger-0.db-wal", "ledger-0.db-tail"] {
        std::fs::copy(other.data().join(name), data.join(name)).expect(name);
    }
    let said = refused(&data, &MANUAL);
    assert!(said.contains("ledger-0.db") && said.contains("belongs here"), "{said}");
    for (name, bytes) in kept {
        std::fs::write(data.join(name), bytes).expect("it is ours");
    }
    std::fs::copy(other.data().join("cell-default.db"), data.join("cell-mars.db")).expect("copied");
    let said = refused(&data, &MANUAL);
    assert!(said.contains("cell-mars.db"), "{said}");
    std::fs::remove_file(data.join("cell-mars.db")).expect("it is ours");
    server.restart(&MANUAL);
}

#[tokio::test]
async fn a_store_without_its_manifest_is_refused_until_it_is_adopted_whole() {
    let mut server = store(true).await;
    let data = server.data().to_owned();
    assert!(cannot_adopt(&data).contains("nothing to adopt"));
    std::fs::remove_file(data.join("manifest.json")).expect("it is ours");
    let before = content(&data);
    let said = refused(&data, &MANUAL);
    assert!(said.contains("manifest.json: it is missing"), "{said}");
    assert!(said.contains("admin restore") && said.contains("admin adopt"), "{said}");
    assert!(content(&data) == before, "something was written");
    let kept = std::fs::read(data.join("directory.db")).expect("it is there");
    std::fs::remove_file(data.join("directory.db")).expect("it is ours");
    let said = cannot_adopt(&data);
    assert!(said.contains("directory.db"), "{said}");
    std::fs::write(data.join("directory.db"), kept).expect("it is ours");
    let said = tool(&["admin", "adopt"], &data);
    assert!(said.contains("cell-default, directory, ledger-0"), "{said}");
    server.restart(&MANUAL);
    assert_eq!(server.get("/v1/accounts/acme/balance").await["available"], "10");
    assert!(data.join("manifest.json").is_file());
}

#[tokio::test]
async fn a_cell_of_which_every_file_is_gone_with_the_manifest_is_refused_by_name() {
    for in_order in [true, false] {
        let mut server = store(in_order).await;
        let data = server.data().to_owned();
        let kept = content(&data);
        // Also what SQLite and locks leave beside it.
        for entry in std::fs::read_dir(&data).expect("it is there") {
            let file = entry.expect("it can be listed");
            if file.file_name().to_string_lossy().starts_with("cell-default.db") {
                std::fs::remove_file(file.path()).expect("it is ours");
            }
        }
        std::fs::remove_file(data.join("manifest.json")).expect("it is ours");
        let before = content(&data);
        assert!(refused(&data, &MANUAL).contains("manifest.json: it is missing"));
        let said = cannot_adopt(&data);
        assert!(said.contains("cell-default.db: the file is missing"), "{said}");
        assert!(said.contains("admin restore"), "{said}");
        assert!(content(&data) == before, "something was written");
        for (name, bytes) in &kept {
            std::fs::write(data.join(name), bytes).expect("it is ours");
        }
        server.restart(&MANUAL);
        assert_eq!(server.get("/v1/accounts/acme/balance").await["available"], "10");
    }
}

#[tokio::test]
async fn deleting_lock_files_lets_no_second_server_in() {
    let server = Server::start();
    for name in ["ledger-0.db.lock", "directory.db.lock", "cell-default.db.lock"] {
        std::fs::remove_file(server.data().join(name)).expect(name);
    }
    let said = refused(server.data(), &MANUAL);
    assert!(said.contains("in use by another process"), "{said}");
    server.open("acme", "org").await;
}

#[tokio::test]
async fn only_the_owner_can_look_into_a_store() {
    let server = store(true).await;
    let mode = |path: &Path| path.metadata().expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(server.data()), 0o700);
    for entry in std::fs::read_dir(server.data()).expect("it is there") {
        let path = entry.expect("it can be listed").path();
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&path), expected, "{}", path.display());
    }
}

#[tokio::test]
async fn history_of_another_past_is_built_again() {
    let mut server = store(true).await;
    let data = server.data().to_owned();
    let old = content(&data);
    server.restart(&MANUAL);
    server.grant("lost", "acme", "5").await;
    // History has come so far before it is asked.
    server.get("/v1/accounts/acme/entries").await;
    server.stop();
    // Everything is from the copy but history, which knows of a grant that never was.
    for (name, bytes) in old.iter().filter(|(name, _)| !name.starts_with("history")) {
        std::fs::write(data.join(name), bytes).expect("it is ours");
    }
    server.restart(&MANUAL);
    server.grant("found", "acme", "7").await;
    let entries = server.get("/v1/accounts/acme/entries").await.to_string();
    assert!(entries.contains("found") && !entries.contains("lost"), "{entries}");
    server.call("GET", "/v1/holds/none", serde_json::Value::Null).await.problem("not_found");
}

#[tokio::test]
async fn a_signing_key_that_was_lost_or_replaced_is_refused_until_a_new_one_is_asked_for() {
    let mut server = store(true).await;
    let file = server.data().join("checkpoint.key");
    let own = std::fs::read(&file).expect("it is there");
    std::fs::write(&file, [7; 32]).expect("it is ours");
    let before = content(server.data());
    let said = refused(server.data(), &MANUAL);
    assert!(said.contains("checkpoint.key") && said.contains("Put back the file"), "{said}");
    assert!(content(server.data()) == before, "something was written");
    std::fs::remove_file(&file).expect("it is ours");
    let before = content(server.data());
    let said = refused(server.data(), &MANUAL);
    assert!(said.contains("checkpoint.key") && said.contains("--new-checkpoint-key"), "{said}");
    assert!(content(server.data()) == before, "something was written");
    server.restart(&[&MANUAL[..], &["--new-checkpoint-key"]].concat());
    assert_ne!(std::fs::read(&file).expect("it was made"), own);
    server.stop();
    server.restart(&MANUAL);
}
