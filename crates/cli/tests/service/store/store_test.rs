//! `bursar admin store-test` on a real PostgreSQL.

use std::process::{Command, Output};

use crate::journal_support::postgres::TestPostgres;
use crate::server::Server;

fn store_test(store: &str, flags: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    let output = command.args(["admin", "store-test", store]).args(flags).output();
    let Output { status, stdout, stderr } = output.expect("the binary is there");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (status.code(), text(&stdout), text(&stderr))
}

/// Schemas of the test that are left, and tables of a store.
const LEFT: &str =
    "SELECT (SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'bursar_store_test%'),
    (SELECT count(*) FROM pg_tables WHERE schemaname = 'public')";

#[test]
fn a_fit_database_keeps_every_law_and_nothing_is_left_in_it() {
    let postgres = TestPostgres::start();
    let (code, said, why) = store_test(&postgres.url(), &["--unsafe-single-postgres"]);
    assert_eq!(code, Some(0), "{said}{why}");
    assert_eq!(said.lines().filter(|line| line.starts_with("ok    ")).count(), 9, "{said}");
    assert_eq!(said.lines().count(), 9, "{said}");
    assert!(said.contains("refused") && said.contains("then given"), "{said}");
    assert_eq!(postgres.sql(LEFT), "0|0");

    // Without the flag a missing standby is a failure, and everything else is still tested.
    let (code, said, why) = store_test(&postgres.url(), &[]);
    assert_eq!(code, Some(1), "{said}{why}");
    let failed: Vec<&str> = said.lines().filter(|line| line.starts_with("FAIL  ")).collect();
    assert_eq!((failed.len(), said.lines().count()), (1, 9), "{said}");
    assert!(failed[0].contains("synchronous_standby_names"), "{said}");
    assert!(why.contains("1 of the laws do not hold"), "{why}");
    assert_eq!(postgres.sql(LEFT), "0|0");
}

#[tokio::test]
async fn a_store_in_use_in_the_same_database_is_not_touched() {
    let postgres = TestPostgres::start();
    let server = Server::on_postgres(&postgres.url());
    server.open("acme", "org").await;
    let before = postgres.sql("SELECT machine, journal FROM bursar_journal ORDER BY 1");
    let (code, said, why) = store_test(&postgres.url(), &["--unsafe-single-postgres"]);
    assert_eq!(code, Some(0), "{said}{why}");
    assert_eq!(postgres.sql("SELECT machine, journal FROM bursar_journal ORDER BY 1"), before);
    server.grant("grant", "acme", "5").await;
    assert_eq!(server.get("/v1/accounts/acme/balance").await["available"], "5");
}

#[test]
fn missing_rights_weak_settings_and_a_clock_that_runs_back_are_named() {
    let postgres = TestPostgres::start();
    postgres.sql("CREATE ROLE poor LOGIN; REVOKE CREATE ON DATABASE bursar FROM PUBLIC");
    let poor = postgres.url().replace("user=bursar", "user=poor");
    let (code, said, _) = store_test(&poor, &["--unsafe-single-postgres"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("FAIL  the role has the rights") && said.contains("GRANT CREATE"),
        "{said}"
    );

    postgres.sql("ALTER SYSTEM SET full_page_writes = off; ");
    postgres.sql("SELECT pg_reload_conf()");
    postgres.wait_for("SHOW full_page_writes", "off");
    let (code, said, _) = store_test(&postgres.url(), &["--unsafe-single-postgres"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("FAIL  the settings keep acknowledged changes"), "{said}");
    assert_eq!(postgres.sql(LEFT), "0|0");
    postgres.sql("ALTER SYSTEM RESET full_page_writes");
    postgres.sql("SELECT pg_reload_conf()");
    postgres.wait_for("SHOW full_page_writes", "on");

    // A clock that the role finds before the real one: each reading is a second earlier.
    postgres.sql(
        "CREATE SCHEMA moved; GRANT USAGE ON SCHEMA moved TO bursar;
         CREATE SEQUENCE moved.reading; GRANT ALL ON SEQUENCE moved.reading TO bursar;
         CREATE FUNCTION moved.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
           $$ SELECT pg_catalog.clock_timestamp() - nextval('moved.reading') * interval '1 s' $$;
         ALTER ROLE bursar SET search_path = public, moved, pg_catalog",
    );
    let (code, said, _) = store_test(&postgres.url(), &["--unsafe-single-postgres"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("FAIL  the clock of the database runs forward: "), "{said}");
    assert!(said.contains("it ran back by"), "{said}");
}

#[test]
fn a_database_that_does_not_answer_is_named() {
    let (code, said, why) = store_test("host=/nowhere user=bursar dbname=bursar", &[]);
    assert_eq!((code, said.as_str()), (Some(1), ""));
    assert!(why.contains("the test broke off"), "{why}");
}
