//! When a server on PostgreSQL may lead: released or expired leases, and clocks that agree.

use serde_json::{Value, json};

use crate::journal_support::postgres::TestPostgres;
use crate::store::standby::Member;

/// Leases that a server holds, of the store and of machines.
const HELD: &str = "SELECT (SELECT count(*) FROM bursar_store WHERE until > clock_timestamp())
    + (SELECT count(*) FROM bursar_lease WHERE until > clock_timestamp())";

#[tokio::test]
async fn a_server_that_ends_leaves_every_lease_free() {
    let database = TestPostgres::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut server = Member::start(&database.url(), folder.path());
    assert_eq!(server.hear(), None);
    server.server.open("acme", "org").await;
    let term = database.sql("SELECT term FROM bursar_store");
    assert_eq!(server.server.terminate().code(), Some(0));
    assert_eq!(database.sql(HELD), "0");
    assert_eq!(database.sql("SELECT clean FROM bursar_store"), "t");
    let noted =
        "SELECT count(*) FROM bursar_machine JOIN bursar_head USING (machine, sequence, hash)";
    assert_eq!(database.sql(noted), "3", "the manifest says where the journals end");

    let mut next = Member::start(&database.url(), folder.path());
    assert_eq!(next.hear(), None, "it need not wait");
    assert_ne!(database.sql("SELECT term FROM bursar_store"), term);
    assert_eq!(next.server.get("/v1/accounts/acme").await["id"], "acme");
}

#[tokio::test]
async fn the_lead_of_a_server_that_was_killed_is_taken_when_it_has_run_out_and_not_before() {
    let database = TestPostgres::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut server = Member::start(&database.url(), folder.path());
    assert_eq!(server.hear(), None);
    server.server.open("acme", "org").await;
    server.server.crash();
    let until = "SELECT floor(extract(epoch FROM until) * 1000)::bigint FROM bursar_store";
    let until: i64 = database.sql(until).parse().expect("a number");
    let epochs = "SELECT max(epoch) FROM bursar_batch";
    let last: i64 = database.sql(epochs).parse().expect("a number");
    let mut next = Member::start(&database.url(), folder.path());
    while next.hear().is_some() {}
    assert_eq!(next.server.get("/v1/accounts/acme").await["id"], "acme");
    // Every owner begins with a barrier, at its own time.
    let first = format!("SELECT min(time) FROM bursar_batch WHERE epoch > {last}");
    let first: i64 = database.sql(&first).parse().expect("a number");
    assert!(first >= until, "it began at {first}, and the lead was held until {until}");
}

/// A clock of the database that can be moved: the role finds this function before the real one.
const CLOCK: &str = "CREATE SCHEMA moved; CREATE TABLE moved.clock (ahead interval NOT NULL);
    INSERT INTO moved.clock VALUES ('0 s'); GRANT USAGE ON SCHEMA moved TO bursar;
    GRANT SELECT ON moved.clock TO bursar;
    CREATE FUNCTION moved.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
      'SELECT pg_catalog.clock_timestamp() + ahead FROM moved.clock';
    ALTER ROLE bursar SET search_path = public, moved, pg_catalog";

#[tokio::test]
async fn a_server_whose_clock_is_not_the_databases_takes_no_machine_and_says_so() {
    let database = TestPostgres::start();
    database.sql(CLOCK);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let set = |ahead: &str| database.sql(&format!("UPDATE moved.clock SET ahead = '{ahead}'"));
    for (ahead, words) in
        [("1 hour", "s behind the clock of the database"), ("-1 hour", "s ahead of")]
    {
        set(ahead);
        let mut server = Member::start(&database.url(), folder.path());
        let reason = server.hear().expect("it does not lead");
        assert!(reason.contains(words) && reason.contains("takes no machine"), "{reason}");
        let ready = server.server.until_status("/readyz", 503).await;
        assert_eq!((&ready["ready"], &ready["owner"]), (&json!(false), &Value::Null));
        assert!(ready["reason"].as_str().is_some_and(|said| said.contains(words)), "{ready}");
        let off = |value: f64| value.abs() > 3_000.0;
        server.server.until_metric("bursar_store_clock_ahead_seconds", off).await;
        assert_eq!(database.sql("SELECT term, until FROM bursar_store"), "0|-infinity");
        set("0 s");
        assert_eq!(server.hear(), None, "it leads once the clocks agree");
        server.server.until_metric("bursar_store_clock_ahead_seconds", |value| !off(value)).await;
        assert_eq!(server.server.terminate().code(), Some(0));
        database.sql("UPDATE bursar_store SET term = 0, until = '-infinity'");
    }

    // One that leads keeps what it has, and says so.
    let mut leader = Member::start(&database.url(), folder.path());
    assert_eq!(leader.hear(), None);
    set("5 s");
    let reported = async || {
        let ready = leader.server.until_status("/readyz", 200).await;
        ready["time"]["database_clock"].as_str().map(str::to_owned)
    };
    while reported().await.is_none_or(|said| !said.contains("s behind")) {}
    leader.server.open("acme", "org").await;
    let mut standby = Member::start(&database.url(), folder.path());
    assert_eq!(standby.hear().as_ref(), Some(&leader.server.url), "it still names the leader");
    set("0 s");
    while reported().await.is_some() {}
}

#[tokio::test]
async fn a_snapshot_that_fails_is_counted_and_the_next_one_is_made() {
    let database = TestPostgres::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = folder.path().join("bursar.toml");
    std::fs::write(&config, "snapshot_every = 20\n").expect("the folder is ours");
    let config = config.display().to_string();
    let mut member = Member::with(&database.url(), folder.path(), &["--config", &config]);
    assert_eq!(member.hear(), None);
    let server = member.server;
    // No answer until the connection is cut: a link on which a part takes for ever.
    database.sql(
        "CREATE FUNCTION stuck() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN PERFORM pg_sleep(600); RETURN NEW; END $$;
         CREATE TRIGGER stuck BEFORE INSERT ON bursar_snapshot FOR EACH ROW
         WHEN (NEW.machine = 'ledger-0') EXECUTE FUNCTION stuck()",
    );
    server.open("acme", "org").await;
    server.grant("g", "acme", "1000000").await;
    let charge = json!({ "account": "acme", "amount": "1" });
    for _ in 0..30 {
        server.call("POST", "/v1/charges", charge.clone()).await.expect(201);
    }
    let failures = r#"bursar_snapshot_failures_total{machine="Ledger"}"#;
    let stuck =
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'INSERT INTO bursar_snapshot%'
        AND state = 'active'";
    database.wait_for(stuck, "1");
    server.call("POST", "/v1/charges", charge.clone()).await.expect(201);
    database.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE query LIKE 'INSERT INTO bursar_snapshot%' AND state = 'active'",
    );
    server.until_metric(failures, |count| count >= 1.0).await;
    assert_eq!(
        database.sql("SELECT count(*) FROM bursar_snapshot WHERE machine = 'ledger-0'"),
        "0"
    );
    database.sql("DROP TRIGGER stuck ON bursar_snapshot");
    for _ in 0..60 {
        server.call("POST", "/v1/charges", charge.clone()).await.expect(201);
    }
    let made = "SELECT count(*) > 0 FROM bursar_snapshot WHERE machine = 'ledger-0' AND chunk = 0";
    database.wait_for(made, "t");
}
