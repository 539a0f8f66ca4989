//! Jobs on a PostgreSQL store: the ledger and the cells are machines of one database.

use std::path::Path;
use std::process::{Command, Output};

use crate::agent::Agent;
use crate::server::Server;
use crate::stores::{check_restored, expect_good, work_beside};
use crate::world::{H100, check_charges, furnish, job, micros, price_of, small, submit};

/// A folder for the database server.
pub(crate) struct TempDir(tempfile::TempDir);

impl TempDir {
    pub(crate) fn new() -> TempDir {
        TempDir(tempfile::tempdir().expect("a temporary folder"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

#[path = "../../../journal/tests/support/postgres.rs"]
#[allow(dead_code, unreachable_pub, reason = "the journal's tests use the rest of it")]
mod servers;

/// What jobs print, and the key that signs checkpoints, are not in the database.
#[tokio::test]
async fn output_of_jobs_outlives_a_server_on_a_postgres_store() {
    let database = servers::TestPostgres::start();
    let folder = TempDir::new();
    let place = |name: &str| folder.path().join(name).display().to_string();
    let (root, elsewhere, url) = (place("root.key"), place("elsewhere"), database.url());
    let manual = ["--clock", "manual", "--unsafe-single-postgres", "--store", url.as_str()];
    let flags = [&manual[..], &["--root-key-file", root.as_str()]].concat();
    let signer =
        async |server: &Server| server.get("/v1/audit/checkpoint").await["public_key"].clone();
    let server = Server::on_store(&flags);
    furnish(&server).await;
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, small("j")).await;
    agent.beat(&server).await;
    let chunk = serde_json::json!({
        "incarnation": 1, "attempt": agent.attempt_of("j"), "offset": 0, "data": "aGVsbG8K"
    });
    server.call("POST", "/v1/nodes/n1/logs", chunk).await.expect(200);
    assert_eq!(server.get("/v1/jobs/j/logs").await, "hello\n");
    let key = signer(&server).await;
    assert!(key.is_string(), "{key}");
    assert!(server.terminate().success());
    assert!(folder.path().join("state/logs").is_dir(), "beside the root key");
    let server = Server::on_store(&flags);
    assert_eq!(server.get("/v1/jobs/j/logs").await, "hello\n");
    assert_eq!(signer(&server).await, key);
    assert!(server.terminate().success());
    std::fs::rename(place("state"), &elsewhere).expect("moved");
    let server = Server::on_store(&[&flags[..], &["--state", elsewhere.as_str()]].concat());
    assert_eq!(server.get("/v1/jobs/j/logs").await, "hello\n");
}

/// The command that makes a backup of a store whose signing key is kept elsewhere.
fn backing_up<'a>(store: &'a str, target: &'a str) -> [&'a str; 6] {
    ["admin", "backup", "--store", store, "--without-key", target]
}

#[tokio::test]
async fn a_job_runs_on_a_postgres_store_and_the_books_verify() {
    let database = servers::TestPostgres::start();
    let server = Server::on_manual_store(&database.url());
    furnish(&server).await;
    let mut agent = Agent::running(&server, "j", 60).await;
    agent.finish(&server, "j", 0).await;
    let ended = job(&server, "j").await;
    check_charges(&ended);
    assert_eq!(micros(&ended["charged"]), price_of(H100, 60_000));
    let machines =
        database.sql("SELECT string_agg(machine, ' ' ORDER BY machine) FROM bursar_head");
    assert_eq!(machines, "cell-default directory ledger-0");
    let output = Command::new(env!("CARGO_BIN_EXE_bursar"))
        .args(["audit", "verify", "--store", &database.url()])
        .output()
        .expect("the binary is there");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("cell default"), "{said}");
}

/// Nothing is written meanwhile: reads and heartbeats come back by themselves.
#[tokio::test]
async fn reads_and_agents_survive_a_restart_of_postgresql() {
    let mut database = servers::TestPostgres::start();
    let server = Server::on_manual_store(&database.url());
    furnish(&server).await;
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, small("j")).await;
    agent.beat(&server).await;
    // One of each machine: the directory, the ledger and the cell.
    let reads = ["/v1/keys", "/v1/accounts/acme/balance", "/v1/nodes/n1"];
    let status = async |path: &str| server.call("GET", path, serde_json::Value::Null).await.status;
    for _ in 0..2 {
        database.stop();
        server.until_status("/readyz", 503).await;
        // Until its lease runs out a machine may still answer.
        for path in reads {
            while status(path).await == 200 {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        }
        let refused = server.call("GET", reads[1], serde_json::Value::Null).await;
        refused.problem("unavailable");
        database.start_again();
        let watch = tokio::time::Instant::now();
        for path in reads {
            while status(path).await != 200 {
                // Only to fail instead of hanging if it never comes back.
                assert!(watch.elapsed().as_secs() < 120, "{path} did not come back");
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            println!("{path} came back {} ms after PostgreSQL", watch.elapsed().as_millis());
        }
        server.until_status("/readyz", 200).await;
        for path in reads {
            assert_eq!(status(path).await, 200, "{path}: it is ready, so every read is answered");
        }
    }
    agent.beat(&server).await;
    agent.run(&server, 60).await;
    agent.finish(&server, "j", 0).await;
    check_charges(&job(&server, "j").await);
}

fn bursar(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    command.args(arguments).output().expect("the binary is there")
}

#[tokio::test]
async fn a_backup_of_postgresql_under_load_restores_into_an_empty_database_and_fences_agents() {
    let database = servers::TestPostgres::start();
    let folder = TempDir::new();
    let place = |name: &str| folder.path().join(name).display().to_string();
    let server = Server::on_manual_store(&database.url());
    furnish(&server).await;
    let mut agent = Agent::register(&server, "n1", "H100", 2).await;
    let (mut last, backups) = (0, ["one", "two"]);
    for name in backups {
        let (store, target) = (database.url(), place(name));
        let copying = std::thread::spawn(move || bursar(&backing_up(&store, &target)));
        work_beside(&server, &mut agent, &copying, &mut last).await;
        expect_good(&copying.join().expect("no panic"));
    }
    // One more that runs after the backup and will be lost.
    submit(&server, small("lost")).await;
    agent.beat(&server).await;
    assert!(agent.runs_job("lost"));

    for name in backups {
        let (url, backup) = (database.database(name), place(name));
        let unsafely = "--unsafe-single-postgres";
        expect_good(&bursar(&["admin", "restore", &backup, "--store", &url, unsafely]));
        expect_good(&bursar(&["audit", "verify", "--store", &url]));
        let restored = Server::on_manual_store(&url);
        check_restored(&restored, &agent).await;
        assert!(restored.terminate().success());
        // A backup of what was restored is of the same line of stores, and so is what becomes of it.
        let again = place(&format!("{name}-again"));
        expect_good(&bursar(&backing_up(&url, &again)));
        let base = |file: &str| {
            let text = std::fs::read(folder.path().join(file).join("manifest.json"));
            let manifest: serde_json::Value =
                serde_json::from_slice(&text.expect("it is there")).expect("JSON");
            manifest["incarnation_base"].as_u64().expect("a number")
        };
        assert_eq!(base(name), 0);
        assert!(base(&format!("{name}-again")) > 1_000, "it was restored once");
    }
}
