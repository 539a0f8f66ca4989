//! A server that seals old records: everything reads them, from wherever they are.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::json;

use crate::journal_support::postgres::TestPostgres;
use crate::operation::feed::events;
use crate::server::Server;
use crate::store::standby::Member;

/// Snapshots are frequent and segments small, so that a short test seals some.
const SETTINGS: &str = "snapshot_every = 30\n[journal]\nsegment_bytes = 1048576\n";

/// The files of the ledger's segments in the folder of a store.
fn segments(data: &Path) -> Vec<PathBuf> {
    let folder = std::fs::read_dir(data.join("ledger-0.db.segments"));
    let files = folder.into_iter().flatten().map(|entry| entry.expect("listed").path());
    let mut files: Vec<_> =
        files.filter(|file| file.extension().is_some_and(|end| end == "segment")).collect();
    files.sort();
    files
}

/// Changes the metadata of an account, until segments are there.
async fn until_sealed(server: &Server, sealed: impl Fn() -> usize, wanted: usize) {
    let note = "a note that compresses well ".repeat(300);
    let mut changes = 0;
    while sealed() < wanted {
        for _ in 0..40 {
            changes += 1;
            let body = json!({ "metadata": { "note": note, "n": changes } });
            server.call("PATCH", "/v1/accounts/acme", body).await.expect(200);
        }
        assert!(changes < 1_000_000, "nothing is sealed");
    }
}

/// Runs the binary.
fn bursar(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    command.args(arguments).output().expect("the binary is there")
}

#[tokio::test]
async fn old_records_are_sealed_archived_and_read_wherever_they_are() {
    let mut server = Server::configured(SETTINGS, &["--clock", "manual"]);
    server.open("acme", "org").await;
    let root = server.root.clone();
    server.grant("funds", "acme", "7").await;
    let data = server.data().to_owned();
    until_sealed(&server, || segments(&data).len(), 3).await;
    let [first, ..] = &segments(&data)[..] else { panic!("three are there") };
    let name = first.file_name().expect("it has one").to_string_lossy().into_owned();
    // A cursor before the first segment ends.
    let before = events(&server, &root, "/v1/events?after=0", None, 40).await;
    let place = data.to_string_lossy().into_owned();
    let verified = bursar(&["audit", "verify", "--data", &place]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    // Beside the running server.
    let archive = data.with_file_name("archive");
    let to = archive.to_string_lossy().into_owned();
    let moved = bursar(&["admin", "archive", "--data", &place, "--to", &to]);
    let said = String::from_utf8_lossy(&moved.stdout);
    assert!(moved.status.success() && said.contains("ledger-0: "), "{said}");
    assert!(!first.exists(), "it was moved");
    assert!(!segments(&data).is_empty(), "the newest stays");
    let after = events(&server, &root, "/v1/events?after=0", None, 40).await;
    assert_eq!(after, before, "an old cursor reads the archive");
    for command in ["verify", "check"] {
        let area = if command == "verify" { "audit" } else { "admin" };
        let checked = bursar(&[area, command, "--data", &place]);
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    }
    // A start needs neither the archive nor what is beside the journal.
    server.stop();
    let away = data.with_file_name("away");
    std::fs::rename(&archive, &away).expect("it is ours");
    server.restart(&["--clock", "manual"]);
    assert_eq!(server.get("/v1/accounts/acme/balance").await["available"], "7");
    for arguments in [
        &["audit", "verify", "--data", &place][..],
        &["admin", "check", "--data", &place],
        &["admin", "backup", "--data", &place, &data.with_file_name("copy").to_string_lossy()],
    ] {
        let refused = bursar(arguments);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains(&name), "{arguments:?}: {said}");
        assert!(said.contains("mount"), "{said}");
    }
    std::fs::rename(&away, &archive).expect("it is ours");
    // History is built again from all records.
    let entries = "/v1/accounts/acme/entries?limit=100";
    let expected = server.get(entries).await;
    server.stop();
    for name in ["history.db", "history.db-wal", "history.db-shm"] {
        // Not every one is there after a clean stop.
        let _ = std::fs::remove_file(data.join(name));
    }
    server.restart(&["--clock", "manual"]);
    // A read waits for history, and is refused while history is too far behind.
    let mut looks = 0;
    let rebuilt = loop {
        let answer = server.call("GET", entries, serde_json::Value::Null).await;
        if answer.status == 200 {
            break answer.body;
        }
        looks += 1;
        assert!(looks < 100, "{}", answer.body);
    };
    assert_eq!(rebuilt["data"], expected["data"]);
}

#[tokio::test]
async fn segments_of_a_database_are_archived_beside_its_server_and_read_from_the_folder() {
    let database = TestPostgres::start();
    let url = database.url();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = folder.path().join("bursar.toml");
    std::fs::write(&config, SETTINGS).expect("the folder is ours");
    let config = config.to_string_lossy().into_owned();
    let mut member = Member::with(&url, folder.path(), &["--config", &config]);
    assert_eq!(member.hear(), None);
    let server = &mut member.server;
    server.open("acme", "org").await;
    let root = server.root.clone();
    let count = |table: &str| {
        let sql = format!("SELECT count(*) FROM {table} WHERE machine = 'ledger-0'");
        database.sql(&sql).parse::<usize>().expect("a number")
    };
    until_sealed(server, || count("bursar_segment"), 3).await;
    let before = events(server, &root, "/v1/events?after=0", None, 40).await;
    let archive = folder.path().join("archive");
    let to = archive.to_string_lossy().into_owned();
    let moved = bursar(&["admin", "archive", "--store", &url, "--to", &to]);
    let said = String::from_utf8_lossy(&moved.stdout);
    let problem = String::from_utf8_lossy(&moved.stderr);
    assert!(moved.status.success() && said.contains("ledger-0: "), "{said}{problem}");
    assert!(count("bursar_segment_place") >= 2, "all but the newest");
    let files = std::fs::read_dir(&archive).expect("it is there").map(|entry| {
        let entry = entry.expect("listed").path();
        std::fs::read_dir(entry).expect("a folder").count()
    });
    assert_eq!(files.sum::<usize>(), count("bursar_segment_place"));
    let after = events(server, &root, "/v1/events?after=0", None, 40).await;
    assert_eq!(after, before, "an old cursor reads the folder");
    let verify = || bursar(&["audit", "verify", "--store", &url]);
    let copy = folder.path().join("copy").to_string_lossy().into_owned();
    let backup = || bursar(&["admin", "backup", "--store", &url, "--without-key", &copy]);
    let verified = verify();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    let away = folder.path().join("away");
    std::fs::rename(&archive, &away).expect("it is ours");
    for refused in [verify(), backup()] {
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success(), "it reads all records");
        assert!(said.contains(&to) && said.contains("mount"), "{said}");
    }
    server.open("umbra", "org").await;
    std::fs::rename(&away, &archive).expect("it is ours");
    for done in [verify(), backup()] {
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}
