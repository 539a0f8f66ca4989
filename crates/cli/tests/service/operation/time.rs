//! Time over restarts: timers that fell due meanwhile, and wrong clocks.

use serde_json::{Value, json};

use crate::server::{Server, tool};

/// A server whose manual clock stands in 2020, with credits until the next day and a hold for an hour;
/// then ended.
async fn of_2020() -> Server {
    let mut server = Server::start();
    server.open("acme", "org").await;
    let grant = json!({
        "id": "short", "account": "acme", "amount": "10", "kind": "purchase",
        "expires_at": "2020-01-02T00:00:00Z"
    });
    server.call("POST", "/v1/grants", grant).await.expect(201);
    let hold = json!({ "id": "h", "account": "acme", "amount": "4", "ttl_seconds": 3600 });
    server.call("POST", "/v1/holds", hold).await.expect(201);
    server.stop();
    server
}

async fn available(server: &Server) -> Value {
    server.get("/v1/accounts/acme/balance").await["available"].clone()
}

/// The times of the ledger's records, and those of what fell due.
fn records(server: &Server) -> Vec<Value> {
    let out = server.data().parent().expect("it has one").join("records.jsonl");
    let place = out.to_str().expect("a plain path");
    tool(&["admin", "export", "--to", place], server.data());
    let text = std::fs::read_to_string(&out).expect("it was written");
    std::fs::remove_file(out).expect("it is ours");
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

#[tokio::test]
async fn timers_that_fell_due_while_no_server_ran_fire_at_their_own_instant() {
    let mut server = of_2020().await;
    server.restart(&["--accept-clock"]);
    assert_eq!(available(&server).await, "0");
    let hold = server.get("/v1/holds/h").await;
    assert_eq!(hold["state"], "lapsed", "{hold}");
    tool(&["audit", "verify"], server.data());
    tool(&["admin", "check"], server.data());
    let records = records(&server);
    let times: Vec<&str> = records.iter().filter_map(|record| record["at"].as_str()).collect();
    assert!(times.len() > 5 && times.is_sorted(), "{times:?}");
    let text = |at: &str| {
        let found = records.iter().filter(|record| record["at"] == at);
        found.map(ToString::to_string).collect::<String>()
    };
    assert!(text("2020-01-01T01:00:00.001Z").contains("hold_closed"), "{records:?}");
    assert!(text("2020-01-02T00:00:00.001Z").contains("bucket_expired"), "{records:?}");
}

#[tokio::test]
async fn a_clock_far_ahead_at_a_start_expires_nothing_until_it_is_accepted() {
    let mut server = of_2020().await;
    server.restart(&[]);
    assert_eq!(server.get("/v1/holds/h").await["state"], "lapsed", "leases go on");
    assert_eq!(available(&server).await, "10", "no grant dies");
    let ready = server.send("GET", "/readyz", Value::Null, "", &[]).await.expect(200);
    let said = ready["time"].to_string();
    assert!(said.contains("no grant expires") && said.contains("accept-clock"), "{ready}");
    server.until_metric("bursar_clock_expiry_waits", |waits| waits == 1.0).await;
    // What has not expired can be spent.
    server
        .call("POST", "/v1/charges", json!({ "id": "c", "account": "acme", "amount": "1" }))
        .await
        .expect(201);
    tool(&["audit", "verify"], server.data());
    // It is remembered, although the last record is now of today.
    server.crash_and_restart(&[]);
    assert_eq!(available(&server).await, "9");

    let viewer = server.key("viewer", "*").await;
    let denied = server.send("POST", "/v1/clock/accept", Value::Null, &viewer, &[]).await;
    assert_eq!(denied.status, 403, "{}", denied.body);
    let key = [("Idempotency-Key", "looked")];
    let path = "/v1/clock/accept";
    let accepted = server.send("POST", path, Value::Null, &server.root, &key).await;
    assert!(!accepted.is_replayed());
    let accepted = accepted.expect(200);
    assert_eq!(available(&server).await, "0");
    // A repeat is answered, and accepts nothing that came later.
    let again = server.send("POST", path, Value::Null, &server.root, &key).await;
    assert!(again.is_replayed());
    assert_eq!(again.expect(200), accepted);
    let other = json!({ "advance_seconds": 1 });
    server.send("POST", path, other, &server.root, &key).await.problem("invalid_field");
    let ready = server.send("GET", "/readyz", Value::Null, "", &[]).await.expect(200);
    assert_eq!(ready["time"], Value::Null, "{ready}");
    server.until_metric("bursar_clock_expiry_waits", |waits| waits == 0.0).await;
}

#[tokio::test]
async fn a_clock_that_is_behind_the_records_is_not_accepted_and_nothing_expires() {
    let mut server = of_2020().await;
    // Expiry waits.
    server.restart(&[]);
    assert_eq!(available(&server).await, "10");
    server.stop();
    // The clock was wrong for a while, and is set right.
    server.restart(&["--clock", "manual"]);
    let ahead = json!({ "now": "2200-01-01T00:00:00Z" });
    server.call("POST", "/v1/clock", ahead).await.expect(200);
    server.open("umbra", "org").await;
    server.stop();
    for arguments in [&[][..], &["--accept-clock"]] {
        server.restart(arguments);
        assert_eq!(available(&server).await, "10", "{arguments:?}");
        let refused = server.call("POST", "/v1/clock/accept", Value::Null).await.expect(409);
        let said = refused["detail"].to_string();
        assert!(said.contains("behind the time of the records"), "{refused}");
        let key = [("Idempotency-Key", "behind")];
        let path = "/v1/clock/accept";
        let kept = server.send("POST", path, Value::Null, &server.root, &key).await;
        assert_eq!(kept.is_replayed(), !arguments.is_empty(), "it outlives a restart");
        let kept = kept.expect(409);
        let again = server.send("POST", path, Value::Null, &server.root, &key).await;
        assert!(again.is_replayed());
        assert_eq!(again.expect(409), kept);
        assert_eq!(available(&server).await, "10", "{arguments:?}");
        let ready = server.send("GET", "/readyz", Value::Null, "", &[]).await.expect(200);
        let next = ready["time"]["next"].to_string();
        assert!(next.contains("restore BACKUP --until"), "{ready}");
        assert!(said.contains("restore BACKUP --until"), "{refused}");
        server.stop();
    }
}

#[tokio::test]
async fn with_the_clock_behind_the_last_record_time_goes_on() {
    let mut server = Server::start();
    server.open("acme", "org").await;
    server.grant("funds", "acme", "10").await;
    // Once the clock was wrong.
    let ahead = json!({ "now": "2200-01-01T00:00:00Z" });
    server.call("POST", "/v1/clock", ahead).await.expect(200);
    server.open("umbra", "org").await;
    server.stop();
    server.restart(&[]);
    let first = server.get("/v1/accounts/acme/balance").await["as_of"].clone();
    let first = first.as_str().expect("an instant").to_owned();
    assert!(first.as_str() >= "2200-01-01T00:00:00.000Z", "{first}");
    let hold = json!({ "id": "h", "account": "acme", "amount": "4", "ttl_seconds": 1 });
    server.call("POST", "/v1/holds", hold).await.expect(201);
    // Its lease ends, because time goes on.
    while server.get("/v1/holds/h").await["state"] == "open" {
        tokio::task::yield_now().await;
    }
    let ready = server.send("GET", "/readyz", Value::Null, "", &[]).await.expect(200);
    assert!(ready["time"]["wall_clock"].to_string().contains("behind the last record"), "{ready}");
    assert!(ready["clock_ahead_ms"].as_i64().is_some_and(|ahead| ahead < -1_000_000), "{ready}");
    server.until_metric("bursar_clock_ahead_seconds", |ahead| ahead < -1e3).await;
    // And never runs back, over another restart either.
    let last = server.get("/v1/accounts/acme/balance").await["as_of"].to_string();
    server.crash_and_restart(&[]);
    let after = server.get("/v1/accounts/acme/balance").await["as_of"].to_string();
    assert!(after >= last, "{after} {last}");
}

#[tokio::test]
async fn after_a_clock_was_a_year_ahead_a_restore_goes_back_to_before() {
    let server = Server::start();
    server.open("acme", "org").await;
    let grant = json!({
        "id": "half-a-year", "account": "acme", "amount": "10", "kind": "purchase",
        "expires_at": "2020-07-01T00:00:00Z"
    });
    server.call("POST", "/v1/grants", grant).await.expect(201);
    let key = server.key("viewer", "acme").await;
    server.advance(3600).await;
    server.grant("later", "acme", "1").await;
    let before = server.get("/v1/accounts/acme/balance").await;
    // The clock is wrong by a year, and is accepted.
    let wrong = json!({ "now": "2021-01-01T02:00:00Z" });
    server.call("POST", "/v1/clock", wrong).await.expect(200);
    assert_eq!(available(&server).await, "1", "it has expired");
    server.grant("meanwhile", "acme", "100").await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = folder.path().join("backup");
    let backup = place.to_str().expect("a plain path");
    // Beside the running server.
    tool(&["admin", "backup", backup], server.data());

    let data = folder.path().join("restored");
    tool(&["admin", "restore", backup, "--until", "2020-01-01T12:00:00Z"], &data);
    let restored = Server::at(&data, &["--clock", "manual"]);
    let path = "/v1/accounts/acme/balance";
    let after = restored.send("GET", path, Value::Null, &key, &[]).await.expect(200);
    assert_eq!(
        (&after["available"], &after["expiring"]),
        (&before["available"], &before["expiring"])
    );
    assert!(after["as_of"].as_str().is_some_and(|now| now < "2020-01-02"), "{after}");
    restored.call("GET", "/v1/grants/meanwhile", Value::Null).await.problem("not_found");
    restored.grant("new", "acme", "2").await;
    tool(&["audit", "verify"], &data);

    // An instant before there was anything is a mistake, and leaves nothing behind.
    let nothing = folder.path().join("nothing");
    let refused = std::process::Command::new(env!("CARGO_BIN_EXE_bursar"))
        .args(["admin", "restore", backup, "--until", "2019-12-31", "--data"])
        .arg(&nothing)
        .output()
        .expect("the binary is there");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("no record that is so old"), "{said}");
    assert!(std::fs::read_dir(&nothing).is_ok_and(|mut all| all.next().is_none()), "{said}");
}

#[tokio::test]
async fn credits_that_expire_soon_are_pointed_out_once_at_each_time_before() {
    let server = Server::start();
    server.tree().await;
    let grant = json!({
        "account": "acme", "amount": "10", "kind": "grant", "expires_at": "2020-03-01T00:00:00Z"
    });
    server.call("POST", "/v1/grants", grant).await.expect(201);
    // The clock begins on 2020-01-01, 60 days before.
    let hours = [("30d", 31 * 24), ("14d", 16 * 24), ("7d", 7 * 24), ("1d", 5 * 24), ("6h", 20)];
    for (before, advance) in hours {
        server.advance(advance * 3600).await;
        let name = format!("bursar_expiry_warnings_total{{before=\"{before}\"}}");
        server.until_metric(&name, |count| count == 1.0).await;
    }
    let metrics = server.send("GET", "/metrics", Value::Null, "", &[]).await.expect(200);
    let metrics = metrics.as_str().expect("text");
    let counts = metrics.lines().filter(|line| line.starts_with("bursar_expiry_warnings_total{"));
    assert!(counts.clone().count() == 5 && counts.clone().all(|line| line.ends_with("} 1")));
}
