//! A server whose journals are in a real PostgreSQL.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::journal_support::postgres::TestPostgres;
use crate::server::Server;

fn verify(store: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bursar"))
        .args(["audit", "verify", "--store", store, "-o", "json"])
        .output()
        .expect("the binary starts")
}

/// The result of blocking work, outside the runtime of the test.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("no panic")
}

#[tokio::test]
async fn the_auditor_reads_a_journal_in_postgresql_and_finds_a_changed_record() {
    let postgres = aside(TestPostgres::start).await;
    let store = postgres.url();
    // Nothing is there yet: the auditor says so, and makes nothing.
    let nothing = verify(&store);
    assert_eq!(nothing.status.code(), Some(1));
    let words = String::from_utf8_lossy(&nothing.stderr).into_owned();
    assert!(words.contains("there is no store in this database"), "{words}");
    postgres.sql(
        "DO $$ BEGIN IF EXISTS (SELECT FROM pg_tables WHERE tablename LIKE 'bursar%') THEN
           RAISE EXCEPTION 'a table was created'; END IF; END $$",
    );
    let mut server = {
        let store = store.clone();
        aside(move || Server::on_postgres(&store)).await
    };
    server.spoil("a byte of its journal is changed");
    server.open("acme", "org").await;
    server.grant("grant", "acme", "1000").await;
    for number in 0..10 {
        let body = json!({ "id": format!("hold-{number}"), "account": "acme", "amount": "2" });
        server.call("POST", "/v1/holds", body).await.expect(201);
    }
    // Beside the running server.
    let whole = verify(&store);
    assert!(whole.status.success(), "{}", String::from_utf8_lossy(&whole.stderr));
    let report: Value = serde_json::from_slice(&whole.stdout).expect("JSON");
    assert_eq!((&report["ok"], &report["compared_with_live"]), (&json!(true), &json!(true)));

    let changed =
        "UPDATE bursar_batch SET payload = set_byte(payload, 20, get_byte(payload, 20) # 1)
                   WHERE machine = 'ledger-0' AND sequence = 5";
    postgres.sql(changed);
    let broken = verify(&store);
    assert_eq!(broken.status.code(), Some(1));
    let words = String::from_utf8_lossy(&broken.stderr).into_owned();
    assert!(words.contains('5'), "the bad batch is named: {words}");
}

#[tokio::test]
async fn an_unencrypted_connection_to_another_machine_is_rejected() {
    let output = verify("postgres://bursar@db.example/bursar?sslmode=disable");
    assert_eq!(output.status.code(), Some(1));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(words.contains("--unsafe-plaintext-postgres"), "{words}");
    assert!(words.contains("sslmode=verify-full"), "{words}");
}
