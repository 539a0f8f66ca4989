//! Jobs on a PostgreSQL store: the ledger and the cells are machines of one database.

use std::path::Path;
use std::process::Command;

use crate::agent::Agent;
use crate::server::Server;
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
async fn what_jobs_print_outlives_a_server_on_a_postgres_store() {
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

#[tokio::test]
async fn a_job_runs_on_a_postgres_store_and_the_books_verify() {
    let database = servers::TestPostgres::start();
    let server = Server::on_manual_store(&database.url());
    furnish(&server).await;
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, small("j")).await;
    agent.beat(&server).await;
    agent.run(&server, 60).await;
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
    database.stop();
    server.until_status("/readyz", 503).await;
    let refused = server.call("GET", "/v1/accounts/acme/balance", serde_json::Value::Null).await;
    refused.problem("unavailable");
    database.start_again();
    let watch = tokio::time::Instant::now();
    let path = "/v1/accounts/acme/balance";
    while server.call("GET", path, serde_json::Value::Null).await.status != 200 {
        assert!(watch.elapsed().as_secs() < 120, "reads do not come back");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    println!("reads came back {} ms after PostgreSQL", watch.elapsed().as_millis());
    server.until_status("/readyz", 200).await;
    agent.beat(&server).await;
    agent.run(&server, 60).await;
    agent.finish(&server, "j", 0).await;
    check_charges(&job(&server, "j").await);
}
