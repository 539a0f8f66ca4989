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
