//! Two servers on one PostgreSQL: one leads and owns every machine, the other stands by.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::journal_support::postgres::TestPostgres;
use crate::server::Server;

const ROOT_KEY: &str = "root-key-of-two-servers-that-is-long-enough-to-be-taken";
/// The longest wait for a line of the server.
const START_TIMEOUT: Duration = Duration::from_secs(180);

/// A server, and what it says about itself.
pub(crate) struct Member {
    pub(crate) server: Server,
    lines: Receiver<String>,
}

impl Member {
    /// Starts a server; its address is known once it says something.
    pub(crate) fn start(store: &str, folder: &Path) -> Member {
        Member::with(store, folder, &[])
    }

    /// The same with more flags.
    pub(crate) fn with(store: &str, folder: &Path, flags: &[&str]) -> Member {
        let root = folder.join("root.key");
        if !root.exists() {
            // Another one may be reading it.
            std::fs::write(&root, ROOT_KEY).expect("the folder is ours");
        }
        let mut child = Command::new(env!("CARGO_BIN_EXE_bursar"))
            .args(["serve", "--listen", "127.0.0.1:0", "--unsafe-single-postgres"])
            .args(["--store", store, "--root-key-file"])
            .arg(&root)
            .args(flags)
            .env("BURSAR_LOG", "error")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary is there");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines() {
                // The end of the test needs no more lines.
                let _ = sender.send(line.expect("text"));
            }
        });
        Member { server: Server::adopt(child, String::new(), ROOT_KEY, store), lines }
    }

    /// What it says next: its address and, if it stands by, the leader's or why there is none.
    pub(crate) fn hear(&mut self) -> Option<String> {
        let line = self.lines.recv_timeout(START_TIMEOUT).expect("it says what it is");
        if let Some(url) = line.strip_prefix("listening on ") {
            self.server.url = url.to_owned();
            return None;
        }
        let rest = line.strip_prefix("standby on ").unwrap_or_else(|| panic!("{line}"));
        let named = rest.split_once(", leader ").or_else(|| rest.split_once(": "));
        let (url, leader) = named.unwrap_or_else(|| panic!("{line}"));
        self.server.url = url.to_owned();
        Some(leader.to_owned())
    }
}

/// A leader, and a standby that knows it.
fn pair(store: &str, folder: &Path) -> (Member, Member) {
    let mut leader = Member::start(store, folder);
    assert_eq!(leader.hear(), None, "there is no other");
    let mut standby = Member::start(store, folder);
    assert_eq!(standby.hear().as_ref(), Some(&leader.server.url));
    (leader, standby)
}

#[tokio::test]
async fn of_two_servers_that_start_at_once_one_owns_every_machine_and_the_other_names_it() {
    let database = TestPostgres::start();
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let store = database.url();
    for round in 0..3 {
        let mut both = [Member::start(&store, folder.path()), Member::start(&store, folder.path())];
        let leaders = [both[0].hear(), both[1].hear()];
        let leads = leaders.iter().position(Option::is_none).expect("one of them leads");
        let [first, second] = both;
        let (leader, mut standby) = if leads == 0 { (first, second) } else { (second, first) };
        let named = leaders[1 - leads].clone();
        assert_eq!(named.as_ref(), Some(&leader.server.url), "the other stands by");

        leader.server.open(&format!("org{round}"), "org").await;
        let forwarded = standby.server.call("GET", "/v1/accounts", Value::Null).await;
        assert_eq!(forwarded.headers["bursar-owner"], leader.server.url.as_str());
        forwarded.expect(200);
        let plain = async |path: &str| standby.server.send("GET", path, Value::Null, "", &[]).await;
        assert_eq!(plain("/healthz").await.expect(200)["status"], "ok");
        let ready = plain("/readyz").await.expect(200);
        assert_eq!(
            (&ready["ready"], &ready["owner"], &ready["reason"]),
            (&json!(true), &json!(leader.server.url), &json!("another server leads"))
        );
        leader.server.until_status("/readyz", 200).await;
        let holders = "SELECT count(DISTINCT holder) FROM bursar_lease";
        assert_eq!(database.sql(holders), "1", "all machines have one owner");

        assert_eq!(leader.server.terminate().code(), Some(0));
        assert_eq!(standby.hear(), None, "it leads now");
        let path = format!("/v1/accounts/org{round}");
        assert_eq!(standby.server.get(&path).await["id"], format!("org{round}"));
        assert_eq!(standby.server.terminate().code(), Some(0));
    }
}

#[tokio::test]
async fn a_standby_ends_when_asked_to_and_takes_over_when_the_leader_is_killed() {
    let database = TestPostgres::start();
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let (mut leader, mut standby) = pair(&database.url(), folder.path());
    let mut third = Member::start(&database.url(), folder.path());
    assert!(third.hear().is_some());
    assert_eq!(third.server.terminate().code(), Some(0));
    leader.server.open("acme", "org").await;
    leader.server.grant("g", "acme", "5").await;
    leader.server.crash();
    assert_eq!(standby.hear(), None);
    assert_eq!(standby.server.get("/v1/accounts/acme/balance").await["available"], "5");
    standby.server.until_status("/readyz", 200).await;
}

#[tokio::test]
async fn a_key_that_was_revoked_elsewhere_and_an_old_price_are_gone_after_fail_back() {
    let database = TestPostgres::start();
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let (first, mut second) = pair(&database.url(), folder.path());
    let (first, price) = (first.server, |amount: &str| json!({ "per_gpu_hour": amount }));
    first.open("acme", "org").await;
    let body = json!({ "id": "mine", "role": "admin", "scope": "acme", "name": "n" });
    let made = first.call("POST", "/v1/keys", body).await.expect(201);
    let key = made["key"].as_str().expect("shown once").to_owned();
    let path = "/v1/accounts/acme";
    first.send("GET", path, Value::Null, &key, &[]).await.expect(200);
    first.call("PUT", "/v1/prices/H100", price("2")).await.expect(200);

    let stream = first.client.get(format!("{}/v1/events", first.url)).bearer_auth(ROOT_KEY);
    let mut stream = stream.send().await.expect("the server is there");
    assert_eq!(stream.status(), 200);

    first.signal("-STOP");
    assert_eq!(second.hear(), None, "the lead of the paused server ran out");
    let second = second.server;
    second.send("GET", path, Value::Null, &key, &[]).await.expect(200);
    second.call("DELETE", "/v1/keys/mine", Value::Null).await.expect(204);
    second.call("PUT", "/v1/prices/H100", price("3")).await.expect(200);
    first.signal("-CONT");
    let late = first.send("GET", path, Value::Null, &key, &[]).await;
    // Once it has asked, it knows the leader, which answers.
    assert_eq!(late.headers["bursar-owner"], second.url.as_str());
    late.problem("unauthenticated");
    while first.until_status("/readyz", 200).await["owner"] != second.url.as_str() {}
    // Events are on another server now: a stream must not wait here for ever.
    let ended = async { while let Ok(Some(_)) = stream.chunk().await {} };
    tokio::time::timeout(START_TIMEOUT, ended).await.expect("the stream ends");

    assert_eq!(second.terminate().code(), Some(0));
    first.until_status("/readyz", 200).await;
    first.send("GET", path, Value::Null, &key, &[]).await.problem("unauthenticated");
    let prices = first.get("/v1/prices").await;
    assert_eq!(prices["data"][0]["per_gpu_hour"], "3", "{prices}");
}

/// Backends that serve everything but appends.
const ALL_BUT_APPENDS: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
      AND query NOT LIKE '%INSERT INTO bursar_batch%'";

#[tokio::test]
async fn a_server_recovers_by_itself_when_its_connections_are_ended() {
    let database = TestPostgres::start();
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let mut leader = Member::start(&database.url(), folder.path());
    assert_eq!(leader.hear(), None);
    let server = leader.server;
    server.open("acme", "org").await;
    server.grant("g", "acme", "5").await;
    let now = database.sql("SELECT clock_timestamp()");
    assert_ne!(database.sql(ALL_BUT_APPENDS), "0");
    // Leases last ten seconds: these were renewed after that.
    let renewed = |table: &str| {
        format!("SELECT count(*) FROM {table} WHERE until > '{now}'::timestamptz + interval '11 s'")
    };
    database.wait_for(&renewed("bursar_lease"), "3");
    database.wait_for(&renewed("bursar_store"), "1");
    server.until_status("/readyz", 200).await;
    assert_eq!(server.get("/v1/accounts/acme/balance").await["available"], "5");
    server.grant("h", "acme", "1").await;
    let entries = server.get("/v1/accounts/acme/entries").await;
    assert_eq!(entries["data"][0]["balance_after"], "6", "history follows again: {entries}");
}
