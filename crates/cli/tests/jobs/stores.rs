//! The journals of cells on disk: copied, restored, checked, and what a changed byte does.

use std::path::Path;
use std::process::{Command, Output};

use crate::agent::Agent;
use crate::world::{priced, small, submit, verify};

fn bursar(arguments: &[&str], data: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    command.args(arguments).arg("--data").arg(data);
    command.output().expect("the binary is there")
}

#[track_caller]
fn expect_good(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[tokio::test]
async fn cells_are_backed_up_and_restored_with_the_ledger_and_a_changed_byte_is_found() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, small("j")).await;
    agent.beat(&server).await;
    agent.run(&server, 30).await;
    agent.finish(&server, "j", 0).await;
    verify(&server);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let backup = folder.path().join("copy.db");
    let target = backup.to_str().expect("a plain path");
    expect_good(&bursar(&["admin", "backup", target], server.data()));
    assert!(folder.path().join("copy.db.cell-default").is_file());
    let restored = folder.path().join("restored");
    expect_good(&bursar(&["admin", "restore", target], &restored));
    expect_good(&bursar(&["admin", "check"], &restored));
    expect_good(&bursar(&["audit", "verify"], &restored));

    let file = restored.join("cell-default.db");
    let mut bytes = std::fs::read(&file).expect("the journal is there");
    let name = b"GPU-n1-0";
    let place = bytes.windows(name.len()).position(|found| found == name);
    bytes[place.expect("the node's GPU is in the journal")] ^= 1;
    std::fs::write(&file, bytes).expect("written");
    for command in [["audit", "verify"], ["admin", "check"]] {
        let output = bursar(&command, &restored);
        assert!(!output.status.success(), "{command:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("cell-default"), "{said}");
    }
}
