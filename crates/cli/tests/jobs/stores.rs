//! The journals of cells on disk: copied, restored, checked, and what a changed byte does.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::server::Server;
use crate::world::{job, micros, priced, small, state, submit, verify};

fn bursar(arguments: &[&str], data: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    command.args(arguments).arg("--data").arg(data);
    command.output().expect("the binary is there")
}

#[track_caller]
pub(crate) fn expect_good(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[tokio::test]
async fn cells_are_backed_up_and_restored_with_the_ledger_and_a_changed_byte_is_found() {
    let server = priced(&[]).await;
    let mut agent = Agent::running(&server, "j", 30).await;
    agent.finish(&server, "j", 0).await;
    verify(&server);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let backup = folder.path().join("copy");
    let target = backup.to_str().expect("a plain path");
    expect_good(&bursar(&["admin", "backup", target], server.data()));
    for name in
        ["ledger-0.db", "directory.db", "cell-default.db", "checkpoint.key", "manifest.json"]
    {
        assert!(backup.join(name).is_file(), "{name}");
    }
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

/// Backs up a store under load.
fn backup_beside(data: &Path, target: &Path) -> std::thread::JoinHandle<Output> {
    let (data, target) = (data.to_owned(), target.to_owned());
    std::thread::spawn(move || {
        bursar(&["admin", "backup", "--logs", target.to_str().expect("a plain path")], &data)
    })
}

#[tokio::test]
async fn a_backup_under_load_restores_to_a_region_that_starts_jobs_and_fences_the_lost_future() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 2).await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut last = 0;
    for round in 0..3 {
        let backup = folder.path().join(format!("backup-{round}"));
        let copying = backup_beside(server.data(), &backup);
        work_beside(&server, &mut agent, &copying, &mut last).await;
        expect_good(&copying.join().expect("no panic"));
    }
    // One more that runs after the backup and will be lost.
    submit(&server, small("lost")).await;
    agent.beat(&server).await;
    assert!(agent.runs_job("lost"));

    for round in 0..3 {
        let backup = folder.path().join(format!("backup-{round}"));
        let target = backup.to_str().expect("a plain path");
        let data = folder.path().join(format!("restored-{round}"));
        expect_good(&bursar(&["admin", "restore", target], &data));
        expect_good(&bursar(&["audit", "verify"], &data));
        let restored = Server::at(&data, &["--clock", "manual"]);
        check_restored(&restored, &agent).await;
    }
}

/// A node as the server shows it.
async fn node(server: &Server, id: &str) -> Value {
    let nodes = server.get("/v1/nodes").await;
    let found = nodes["data"].as_array().expect("a list").iter().find(|one| one["id"] == id);
    found.cloned().unwrap_or_default()
}

/// Kills the server, changes its manifest, and starts it again.
fn restart_with(server: &mut Server, flags: &[&str], change: impl FnOnce(&Path)) {
    server.crash();
    change(&server.data().join("manifest.json"));
    server.restart(flags);
}

/// Loses the manifest. The operator has a new one made from the files.
fn lose(manifest: &Path) {
    std::fs::remove_file(manifest).expect("it is there");
    let folder = manifest.parent().expect("the folder of the store");
    expect_good(&bursar(&["admin", "adopt"], folder));
}

#[tokio::test]
async fn a_region_that_is_new_in_a_restored_store_is_fenced_and_loses_nothing_later() {
    let server = priced(&[]).await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let backup = folder.path().join("backup");
    let target = backup.to_str().expect("a plain path");
    expect_good(&bursar(&["admin", "backup", target], server.data()));
    let data = folder.path().join("restored");
    expect_good(&bursar(&["admin", "restore", target], &data));

    let flags = ["--clock", "manual", "--region", "default", "--region", "other"];
    let mut restored = Server::at(&data, &flags);
    let mut agent = Agent::register_in(&restored, "other", "n1", "H100", 1).await;
    let kept = node(&restored, "n1").await;
    assert!(kept["kept_until"].is_string(), "{kept}");
    submit(&restored, small("j")).await;
    agent.beat(&restored).await;
    assert!(!agent.runs_job("j"), "something of the lost future may run there");
    agent.run(&restored, 120).await;
    assert!(agent.runs_job("j"));
    for lost in [false, true] {
        restart_with(&mut restored, &flags, |manifest| {
            if lost {
                lose(manifest);
            }
        });
        agent.run(&restored, 120).await;
        assert!(agent.runs_job("j"));
        let job = job(&restored, "j").await;
        assert_eq!(job["attempts"].as_array().map(Vec::len), Some(1), "{job}");
    }
    // After its loss the other cells say what a new region must know.
    let flags = [&flags[..], &["--region", "third"]].concat();
    restart_with(&mut restored, &flags, lose);
    Agent::register_in(&restored, "third", "n3", "H100", 1).await;
    let kept = node(&restored, "n3").await;
    assert!(kept["kept_until"].is_string(), "{kept}");
}

/// Writes what an earlier build noted of a restore: a generation, in the manifest alone.
fn as_restored_earlier(manifest: &Path, generation: u32) {
    let text = std::fs::read(manifest).expect("it is there");
    let mut said: Value = serde_json::from_slice(&text).expect("JSON");
    said["incarnation_base"] = json!(generation);
    said.as_object_mut().expect("an object").remove("signer");
    for machine in said["machines"].as_array_mut().expect("a list") {
        machine.as_object_mut().expect("an object").remove("tail_bytes");
    }
    std::fs::write(manifest, said.to_string()).expect("written");
}

#[tokio::test]
async fn a_store_that_an_earlier_build_restored_and_served_goes_on() {
    let mut server = priced(&[]).await;
    let mut agent = Agent::running(&server, "j", 60).await;
    assert!(agent.runs_job("j"));
    // Restored five seconds after the clock began: the records of a minute came later.
    let flags = ["--clock", "manual"];
    restart_with(&mut server, &flags, |manifest| as_restored_earlier(manifest, 5));
    agent.incarnation += 5;
    for lost in [false, true] {
        agent.run(&server, 60).await;
        assert!(agent.runs_job("j"));
        assert_eq!(node(&server, "n1").await["kept_until"], Value::Null);
        let job = job(&server, "j").await;
        assert_eq!(job["attempts"].as_array().map(Vec::len), Some(1), "{job}");
        restart_with(&mut server, &flags, |manifest| {
            if lost {
                lose(manifest);
            }
        });
    }
    agent.beat(&server).await;
    assert!(agent.runs_job("j"), "the journal of the cell knows the generation by now");
}

#[tokio::test]
async fn a_store_that_an_earlier_build_restored_and_no_server_used_is_fenced() {
    let mut server = priced(&[]).await;
    let mut agent = Agent::running(&server, "j", 60).await;
    // Restored long after the last record.
    let generation = 200_000_000;
    let flags = ["--clock", "manual"];
    restart_with(&mut server, &flags, |manifest| as_restored_earlier(manifest, generation));
    agent.incarnation += u64::from(generation);
    let report = agent.report();
    agent.send(&server, report).await.problem("stale_incarnation");
    Agent::register(&server, "n1", "H100", 1).await;
    let kept = node(&server, "n1").await;
    assert!(kept["kept_until"].is_string(), "{kept}");
}

/// Runs a job that prints something to its end.
async fn prints(server: &Server, agent: &mut Agent, id: &str, (said, encoded): (&str, &str)) {
    submit(server, small(id)).await;
    agent.beat(server).await;
    let attempt = agent.attempt_of(id);
    let piece = json!({
        "incarnation": agent.incarnation, "attempt": attempt, "offset": 0, "data": encoded
    });
    server.call("POST", "/v1/nodes/n1/logs", piece).await.expect(200);
    while printed(server, id).await != said {}
    agent.run(server, 30).await;
    agent.finish(server, id, 0).await;
}

/// The output of a job.
async fn printed(server: &Server, id: &str) -> Value {
    server.call("GET", &format!("/v1/jobs/{id}/logs"), Value::Null).await.expect(200)
}

/// The names of the output in a folder.
fn outputs(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("it is there");
    let names = entries.map(|entry| entry.expect("read").file_name().into_string());
    let mut names: Vec<String> = names.map(|name| name.expect("a plain name")).collect();
    names.retain(|name| name.starts_with("att_"));
    names.sort();
    names
}

#[tokio::test]
async fn output_of_a_lost_future_is_not_shown_as_that_of_new_attempts() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    prints(&server, &mut agent, "kept", ("kept", "a2VwdA==")).await;
    agent.run(&server, 60).await;
    prints(&server, &mut agent, "lost", ("lost", "bG9zdA==")).await;
    let all = outputs(&server.data().join("logs"));
    assert_eq!(all.len(), 2, "{all:?}");

    let folder = tempfile::tempdir().expect("a temporary folder");
    let backup = folder.path().join("backup");
    let target = backup.to_str().expect("a plain path");
    expect_good(&bursar(&["admin", "backup", "--logs", target], server.data()));
    let data = folder.path().join("restored");
    let until = ["admin", "restore", target, "--until", "2020-01-01T00:00:45Z"];
    expect_good(&bursar(&until, &data));
    let logs = data.join("logs");
    assert_eq!(outputs(&logs), all[..1], "only what the ledger knows at the cut");

    // A folder for output that was there before, as a server on PostgreSQL may have.
    std::fs::copy(server.data().join("logs").join(&all[1]), logs.join(&all[1])).expect("copied");
    let restored = Server::at(&data, &["--clock", "manual"]);
    let mut agent = Agent::register(&restored, "n1", "H100", 1).await;
    submit(&restored, small("new")).await;
    agent.run(&restored, 120).await;
    assert!(agent.runs_job("new"));
    assert_eq!(printed(&restored, "new").await, "");
    assert_eq!(printed(&restored, "kept").await, "kept");
    let generation = std::fs::read_to_string(logs.join("generation")).expect("noted");
    assert_eq!(outputs(&logs.join(format!("lost-{}", generation.trim()))), all[1..]);
}

/// Runs jobs and charges while a task runs, and two more rounds.
pub(crate) async fn work_beside(
    server: &Server,
    agent: &mut Agent,
    copying: &std::thread::JoinHandle<Output>,
    last: &mut u32,
) {
    let mut more = 2;
    while more > 0 {
        more -= u32::from(copying.is_finished());
        *last += 1;
        submit(server, small(&format!("j{last}"))).await;
        agent.beat(server).await;
        agent.run(server, 10).await;
        agent.finish(server, &format!("j{last}"), 0).await;
    }
}

/// Checks that a restored store has all its credits, ignores agents from after the backup, and starts jobs.
pub(crate) async fn check_restored(restored: &Server, agent: &Agent) {
    let balance = restored.get("/v1/accounts/acme/balance").await;
    let sum = micros(&balance["available"]) + micros(&balance["held"]);
    let spent: u128 = sum_of_charges(restored).await;
    assert_eq!(sum + spent, 1_000_000_000, "what is not spent is there: {balance}");

    // Every report of an agent from after the backup is rejected.
    let mut old = Agent { key: restored.root.clone(), ..agent_of(agent) };
    let report = old.report();
    old.send(restored, report).await.problem("stale_incarnation");

    let mut fresh = Agent::register(restored, "n1", "H100", 2).await;
    assert!(fresh.incarnation > agent.incarnation + 1_000, "{}", fresh.incarnation);
    submit(restored, small("after")).await;
    // What was queued or ran at the cut goes first; everything starts and ends.
    for _ in 0..50 {
        fresh.run(restored, 30).await;
        let runs: Vec<String> = fresh
            .runs
            .values()
            .filter(|run| run.state == "running")
            .map(|run| run.job.clone())
            .collect();
        for job in runs {
            fresh.finish(restored, &job, 0).await;
        }
        if state(restored, "after").await == "succeeded" {
            break;
        }
    }
    assert_eq!(state(restored, "after").await, "succeeded", "jobs start again");
}

fn agent_of(agent: &Agent) -> Agent {
    Agent {
        node: agent.node.clone(),
        key: agent.key.clone(),
        incarnation: agent.incarnation,
        seq: agent.seq,
        runs: agent.runs.clone(),
    }
}

/// The charges of all jobs.
async fn sum_of_charges(server: &Server) -> u128 {
    let (mut sum, mut cursor) = (0, String::new());
    loop {
        let page = server.get(&format!("/v1/jobs?limit=100{cursor}")).await;
        for job in page["data"].as_array().expect("jobs") {
            sum += micros(&job["charged"]);
        }
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return sum,
        }
    }
}
