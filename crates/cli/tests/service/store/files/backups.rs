//! Backup and restore of a data folder.

use std::path::Path;
use std::process::Command;

use super::{MANUAL, content, store};
use crate::server::{Server, refused, tool};

#[tokio::test]
async fn a_backup_is_everything_and_a_restored_server_serves_it() {
    let server = Server::start();
    server.open("acme", "org").await;
    server.grant("funds", "acme", "10").await;
    let key = server.key("viewer", "acme").await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let backup = folder.path().join("backup");
    let place = backup.to_str().expect("a plain path");
    tool(&["admin", "backup", place], server.data());
    server.grant("later", "acme", "90").await;
    let restored = folder.path().join("restored");
    tool(&["admin", "restore", place], &restored);
    tool(&["admin", "check"], &restored);
    let checkpoint = |data: &Path| std::fs::read(data.join("checkpoint.key")).expect("it is there");
    assert_eq!(checkpoint(&restored), checkpoint(server.data()));
    let again = Server::at(&restored, &MANUAL);
    let seen = again
        .send("GET", "/v1/accounts/acme/balance", serde_json::Value::Null, &key, &[])
        .await
        .expect(200);
    assert_eq!(seen["available"], "10", "the key is in it, and the grant behind the cut is not");
}

#[tokio::test]
async fn a_backup_is_not_served_and_a_store_that_was_cut_off_is_not_restored() {
    let server = store(false).await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let backup = folder.path().join("backup");
    tool(&["admin", "backup", backup.to_str().expect("a plain path")], server.data());
    let said = refused(&backup, &MANUAL);
    assert!(said.contains("it is a backup") && said.contains("bursar admin restore"), "{said}");
    tool(&["admin", "check"], &backup);

    let restored = folder.path().join("restored");
    let said = Command::new(env!("CARGO_BIN_EXE_bursar"))
        .args(["admin", "restore"])
        .arg(server.data())
        .arg("--data")
        .arg(&restored)
        .output()
        .expect("the binary is there");
    let words = String::from_utf8_lossy(&said.stderr);
    assert!(
        !said.status.success() && words.contains("it is not a backup as it was made"),
        "{words}"
    );
    assert!(content(&restored).is_empty(), "nothing was restored");
}

/// It would be lost with the store, and with `--logs` it would copy itself.
#[tokio::test]
async fn a_backup_inside_its_own_store_is_refused() {
    let server = store(false).await;
    let inside = server.data().join("logs/backup");
    let said = Command::new(env!("CARGO_BIN_EXE_bursar"))
        .args(["admin", "backup", "--logs", "--data"])
        .args([server.data(), &inside])
        .output()
        .expect("the binary is there");
    let words = String::from_utf8_lossy(&said.stderr);
    assert!(!said.status.success() && words.contains("outside of it"), "{words}");
    assert!(!inside.exists(), "nothing was written");
}

#[tokio::test]
async fn logs_that_are_shed_during_a_backup_are_left_out() {
    let server = store(false).await;
    let logs = server.data().join("logs").join("default");
    std::fs::create_dir_all(&logs).expect("it is ours");
    std::fs::write(logs.join("stays"), "here").expect("it is ours");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let shed = logs.clone();
    // Files and folders come and go for as long as copies are made.
    let shedding = std::thread::spawn(move || {
        let mut number = 0_u32;
        while stopped.try_recv().is_err() {
            number += 1;
            let (file, inner) = (shed.join(format!("f{number}")), shed.join(format!("d{number}")));
            std::fs::write(&file, "gone soon").expect("it is ours");
            std::fs::create_dir(&inner).expect("it is ours");
            std::fs::write(inner.join("f"), "gone soon").expect("it is ours");
            std::fs::remove_file(&file).expect("it is ours");
            std::fs::remove_dir_all(&inner).expect("it is ours");
        }
    });
    for number in 0..5 {
        let backup = folder.path().join(format!("backup-{number}"));
        let place = backup.to_str().expect("a plain path");
        tool(&["admin", "backup", "--logs", place], server.data());
        let kept = std::fs::read_to_string(backup.join("logs/default/stays")).expect("it stays");
        assert_eq!(kept, "here");
    }
    stop.send(()).expect("it listens");
    shedding.join().expect("no panic");
}

#[tokio::test]
async fn a_restore_notes_which_tails_are_in_use() {
    let server = store(false).await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let backup = folder.path().join("backup");
    let place = backup.to_str().expect("a plain path");
    tool(&["admin", "backup", place], server.data());
    let restored = folder.path().join("restored");
    tool(&["admin", "restore", place], &restored);
    let text = std::fs::read(restored.join("manifest.json")).expect("it is there");
    let manifest: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let machines = manifest["machines"].as_array().expect("a list");
    assert_eq!(machines.len(), 3, "{manifest}");
    for machine in machines {
        let name = machine["name"].as_str().expect("a name");
        let tail = restored.join(format!("{name}.db-tail"));
        let kept = std::fs::read(&tail).expect("it is there");
        assert_eq!(machine["tail"], true, "{machine}");
        assert_eq!(machine["tail_bytes"].as_u64(), u64::try_from(kept.len()).ok(), "{machine}");
        std::fs::remove_file(&tail).expect("it is ours");
        let said = refused(&restored, &MANUAL);
        assert!(said.contains(&format!("{name}.db-tail")), "{said}");
        std::fs::write(&tail, kept).expect("it is ours");
    }
    let again = Server::at(&restored, &MANUAL);
    assert_eq!(again.get("/v1/accounts/acme/balance").await["available"], "10");
}

#[tokio::test]
async fn a_store_that_cannot_be_restored_once_more_says_so() {
    let mut server = store(true).await;
    server.spoil("its manifest is not one that was written");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let backup = folder.path().join("backup");
    let place = backup.to_str().expect("a plain path");
    tool(&["admin", "backup", place], server.data());
    let file = backup.join("manifest.json");
    let text = std::fs::read_to_string(&file).expect("it is there");
    let last = format!("\"incarnation_base\": {}", u32::MAX);
    std::fs::write(&file, text.replace("\"incarnation_base\": 0", &last)).expect("it is ours");
    let target = folder.path().join("restored");
    let said = Command::new(env!("CARGO_BIN_EXE_bursar"))
        .args(["admin", "restore", place, "--data"])
        .arg(&target)
        .output()
        .expect("the binary is there");
    let words = String::from_utf8_lossy(&said.stderr);
    assert!(!said.status.success() && words.contains("manifest.json"), "{words}");
    assert!(words.contains("its generation is"), "{words}");
    assert!(content(&target).is_empty(), "nothing was restored");
}
