//! The clock of the database is set, or its commits are slow.

use std::time::Duration;

use crate::clients::TestClients;
use crate::journal_support::postgres::TestPostgres;
use crate::members::{ROOT_KEY, ServerProcesses};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_whose_clock_is_set_forward_gets_no_second_leader() {
    let database = TestPostgres::start();
    let cluster = ServerProcesses::start(&database.url());
    let clients = TestClients::new(&cluster.urls, ROOT_KEY);
    let body = serde_json::json!({ "id": "acme", "kind": "org" });
    assert_eq!(clients.ask("POST", "/v1/accounts", body).await.0, 201);
    cluster.leader(&database);
    let term = database.sql("SELECT term FROM bursar_store");
    // The stored end of the lead is as it is when the clock is three seconds ahead.
    for _ in 0..10 {
        database.sql("UPDATE bursar_store SET until = until - interval '3 s'");
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    assert_eq!(database.sql("SELECT term FROM bursar_store"), term, "another member led");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_whose_commits_take_more_than_a_second_has_a_leader() {
    let database = TestPostgres::start();
    let mut cluster = ServerProcesses::start(&database.url());
    let clients = TestClients::new(&cluster.urls, ROOT_KEY);
    let open = async |id: &str| {
        let body = serde_json::json!({ "id": id, "kind": "org" });
        let (status, said) = clients.ask("POST", "/v1/accounts", body).await;
        assert!(matches!(status, 200 | 201), "{said}");
    };
    open("acme").await;
    let leader = cluster.leader(&database);
    database.sql(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
           'BEGIN PERFORM pg_sleep(1.2); RETURN NULL; END'",
    );
    database.sql(
        "CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON bursar_store DEFERRABLE INITIALLY DEFERRED
         FOR EACH ROW EXECUTE FUNCTION slow()",
    );
    cluster.kill(leader);
    open("umbra").await;
    let term = database.sql("SELECT term FROM bursar_store");
    tokio::time::sleep(Duration::from_secs(6)).await;
    open("later").await;
    assert_eq!(database.sql("SELECT term FROM bursar_store"), term, "the leader lost its lead");
}
