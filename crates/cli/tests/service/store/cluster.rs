//! Several servers on one PostgreSQL: any of them answers any request, and they are drained, killed and replaced while
//! clients go on.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::journal_support::postgres::TestPostgres;
use crate::server::Server;
use crate::store::standby::Member;

/// A leader, and a standby that knows it, by these names.
fn pair(store: &str, folder: &Path, names: [&str; 2]) -> (Member, Member) {
    let mut leader = Member::with(store, folder, &["--member", names[0]]);
    assert_eq!(leader.hear(), None, "there is no other");
    let mut standby = Member::with(store, folder, &["--member", names[1]]);
    assert_eq!(standby.hear().as_ref(), Some(&leader.server.url));
    (leader, standby)
}

/// The states of the members, by name.
async fn states(server: &Server) -> Vec<(String, String)> {
    let cluster = server.get("/v1/cluster").await;
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let members = cluster["members"].as_array().expect("a list");
    members.iter().map(|member| (text(&member["id"]), text(&member["state"]))).collect()
}

/// The owners of all machines.
async fn owners(server: &Server) -> BTreeSet<String> {
    let cluster = server.get("/v1/cluster").await;
    let machines = cluster["machines"].as_array().expect("a list");
    assert_eq!(machines.len(), 3, "{cluster}");
    machines.iter().map(|machine| machine["owner"].as_str().unwrap_or("none").to_owned()).collect()
}

async fn act(server: &Server, member: &str, verb: &str) -> crate::server::Answer {
    server.call("POST", &format!("/v1/cluster/members/{member}/{verb}"), json!({})).await
}

#[tokio::test]
async fn any_member_answers_any_request_and_names_the_one_that_did() {
    let database = TestPostgres::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (leader, standby) = pair(&database.url(), folder.path(), ["one", "two"]);
    let (leader, standby) = (leader.server, standby.server);
    // Changes, reads, batches and refusals.
    let opened = standby.call("POST", "/v1/accounts", json!({ "id": "acme", "kind": "org" })).await;
    assert_eq!(opened.headers["bursar-owner"], leader.url.as_str());
    opened.expect(201);
    standby.grant("g", "acme", "100").await;
    assert_eq!(leader.get("/v1/accounts/acme/balance").await["available"], "100");
    let charge =
        |id: usize| json!({ "id": format!("c{id}"), "account": "acme", "amount": "0.001" });
    let operations: Vec<Value> = (0..1000)
        .map(|id| json!({ "method": "POST", "path": "/v1/charges", "body": charge(id) }))
        .collect();
    let batch = standby.call("POST", "/v1/batch", json!({ "operations": operations })).await;
    let results = batch.expect(200)["results"].as_array().expect("a list").len();
    assert_eq!(results, 1000, "a body that is not collected is passed on");
    assert_eq!(standby.get("/v1/accounts/acme/balance").await["available"], "99");
    let large = json!({ "account": "acme", "amount": "1", "reference": "x".repeat(5 << 20) });
    standby.call("POST", "/v1/charges", large).await.problem("body_too_large");
    standby.call("GET", "/v1/holds/none", Value::Null).await.problem("not_found");
    let without = standby.send("GET", "/v1/accounts", Value::Null, "bur_x_y", &[]).await;
    without.problem("unauthenticated");
    // A stream.
    let stream = standby.client.get(format!("{}/v1/events", standby.url));
    let mut stream = stream.bearer_auth(&standby.root).send().await.expect("it answers");
    assert_eq!(stream.status(), 200);
    leader.grant("seen", "acme", "1").await;
    let mut text = String::new();
    while !text.contains("seen") {
        let piece = stream.chunk().await.expect("it goes on").expect("it has not ended");
        text.push_str(&String::from_utf8_lossy(&piece));
    }
    // What only a member may say is ignored where it is answered, and refused where it would be passed on.
    let spoofed = [("bursar-forwarded", "1 203.0.113.7 00")];
    leader.send("GET", "/v1/accounts/acme", Value::Null, &leader.root, &spoofed).await.expect(200);
    let refused =
        standby.send("GET", "/v1/accounts/acme", Value::Null, &leader.root, &spoofed).await;
    refused.problem("unavailable");
    // Both are ready, and both are listed by both.
    for server in [&leader, &standby] {
        server.until_status("/readyz", 200).await;
        let expected = [("one".to_owned(), "active".to_owned()), ("two".into(), "active".into())];
        assert_eq!(states(server).await, expected);
        assert_eq!(owners(server).await, BTreeSet::from(["one".to_owned()]));
    }
    let forwarded = r#"bursar_forwarded_requests_total{outcome="answered"}"#;
    standby.until_metric(forwarded, |count| count >= 8.0).await;
}

/// Sends charges through both servers until it is stopped. Returns the ids of those that were accepted. A charge
/// that was not accepted at once is a failure.
fn charge_through(
    servers: [&Server; 2],
    stop: &Arc<AtomicBool>,
) -> Vec<tokio::task::JoinHandle<Vec<String>>> {
    let lanes = servers.into_iter().cycle().take(4).enumerate();
    let lanes = lanes.map(|(lane, server)| {
        let (url, root) = (format!("{}/v1/charges", server.url), server.root.clone());
        let (client, stop) = (server.client.clone(), Arc::clone(stop));
        tokio::spawn(async move {
            let mut accepted = Vec::new();
            while !stop.load(Ordering::SeqCst) {
                let id = format!("c-{lane}-{}", accepted.len());
                let body = json!({ "id": id, "account": "acme", "amount": "1" });
                let sent = client.post(&url).bearer_auth(&root).header("Idempotency-Key", &id);
                let answer = sent.json(&body).send().await.expect("its server is there");
                let status = answer.status();
                let text = answer.text().await.expect("a whole answer");
                assert_eq!(status, 201, "{id}: {text}");
                accepted.push(id);
            }
            accepted
        })
    });
    lanes.collect()
}

/// Stops the lanes and checks that every accepted charge took effect once.
async fn settle_up(
    lanes: Vec<tokio::task::JoinHandle<Vec<String>>>,
    stop: &AtomicBool,
    server: &Server,
) {
    stop.store(true, Ordering::SeqCst);
    let mut accepted = 0;
    for lane in lanes {
        for id in lane.await.expect("no charge failed") {
            assert_eq!(server.get(&format!("/v1/charges/{id}")).await["charged"], "1", "{id}");
            accepted += 1;
        }
    }
    let left = server.get("/v1/accounts/acme/balance").await["available"].clone();
    assert_eq!(left, (1_000_000 - accepted).to_string(), "{accepted} charges");
    assert!(accepted > 4, "{accepted} charges");
}

#[tokio::test]
async fn a_member_that_is_drained_hands_over_without_a_failed_request() {
    let database = TestPostgres::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (first, mut second) = pair(&database.url(), folder.path(), ["one", "two"]);
    let first = first.server;
    first.open("acme", "org").await;
    first.grant("g", "acme", "1000000").await;
    act(&second.server, "other", "drain").await.problem("not_found");
    act(&second.server, "two", "evict").await.problem("conflict");

    let stop = Arc::new(AtomicBool::new(false));
    let lanes = charge_through([&first, &second.server], &stop);
    act(&first, "one", "drain").await.expect(200);
    assert_eq!(second.hear(), None, "it leads now");
    while owners(&first).await != BTreeSet::from(["two".to_owned()]) {}
    assert_eq!(states(&first).await[0].1, "draining");
    settle_up(lanes, &stop, &first).await;
    let ready = first.until_status("/readyz", 503).await;
    assert_eq!(ready["reason"], "this member is draining", "{ready}");

    // The last one that can own machines stays.
    let problem = act(&first, "two", "drain").await.problem("conflict");
    assert!(problem["detail"].as_str().is_some_and(|said| said.contains("resume")), "{problem}");
    act(&second.server, "one", "resume").await.expect(200);
    act(&second.server, "two", "drain").await.expect(200);
    while owners(&second.server).await != BTreeSet::from(["one".to_owned()]) {}
    first.until_status("/readyz", 200).await;
    assert_eq!(states(&first).await[1], ("two".to_owned(), "draining".to_owned()));
    first.grant("after", "acme", "1").await;
}

#[tokio::test]
async fn requests_through_another_member_outlive_the_one_that_leads() {
    let database = TestPostgres::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (mut leader, mut standby) = pair(&database.url(), folder.path(), ["one", "two"]);
    leader.server.open("acme", "org").await;
    leader.server.grant("g", "acme", "1000000").await;
    let stop = Arc::new(AtomicBool::new(false));
    let lanes = charge_through([&standby.server, &standby.server], &stop);
    let seen = async |at_least: u64| {
        let charged = |balance: &Value| {
            let left: u64 = balance["available"].as_str().and_then(|left| left.parse().ok())?;
            Some(1_000_000 - left >= at_least)
        };
        while charged(&standby.server.get("/v1/accounts/acme/balance").await) != Some(true) {}
    };
    seen(8).await;
    leader.server.crash();
    // This read waits as well.
    assert_eq!(standby.server.get("/v1/accounts/acme").await["id"], "acme");
    seen(16).await;
    settle_up(lanes, &stop, &standby.server).await;
    assert_eq!(standby.hear(), None, "it leads now");

    assert_eq!(owners(&standby.server).await, BTreeSet::from(["two".to_owned()]));
    database.sql("UPDATE bursar_member SET seen = seen - interval '20 s' WHERE member = 'one'");
    assert_eq!(states(&standby.server).await[0], ("one".to_owned(), "gone".to_owned()));
    act(&standby.server, "two", "drain").await.problem("conflict");
    act(&standby.server, "one", "evict").await.expect(200);
    assert_eq!(states(&standby.server).await, [("two".to_owned(), "active".to_owned())]);
    act(&standby.server, "one", "evict").await.problem("not_found");
}

#[tokio::test]
async fn a_member_that_ends_is_not_listed_and_a_weak_secret_is_refused() {
    let database = TestPostgres::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "one secret of all members, long enough").expect("the folder is ours");
    let flags = ["--cluster-secret-file", &secret.display().to_string()];
    let with = |name: &str| {
        let flags = [&["--member", name][..], &flags[..]].concat();
        Member::with(&database.url(), folder.path(), &flags)
    };
    let mut leader = with("one");
    assert_eq!(leader.hear(), None);
    let mut standby = with("two");
    assert!(standby.hear().is_some());
    assert_eq!(standby.server.get("/v1/cluster").await["members"][1]["id"], "two");
    assert_eq!(standby.server.terminate().code(), Some(0));
    while states(&leader.server).await != [("one".to_owned(), "active".to_owned())] {}
    std::fs::write(&secret, "short").expect("the folder is ours");
    let refused = std::process::Command::new(env!("CARGO_BIN_EXE_bursar"))
        .args(["serve", "--listen", "127.0.0.1:0", "--unsafe-single-postgres", "--store"])
        .args([&database.url(), "--root-key-file"])
        .arg(folder.path().join("root.key"))
        .args(flags)
        .output()
        .expect("the binary is there");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("at least 32 characters"), "{said}");
}

#[tokio::test]
async fn a_data_folder_has_one_member_that_owns_every_machine() {
    let server = Server::start();
    server.open("acme", "org").await;
    let cluster = server.get("/v1/cluster").await;
    assert_eq!(cluster["members"][0]["id"], "server");
    assert_eq!(owners(&server).await, BTreeSet::from(["server".to_owned()]));
    let ids: Vec<&str> =
        (0..3).map(|at| cluster["machines"][at]["id"].as_str().expect("text")).collect();
    assert_eq!(ids, ["cell-default", "directory", "ledger-0"]);
    assert!(cluster["machines"][2]["position"].as_u64().is_some_and(|at| at > 0), "{cluster}");
    act(&server, "server", "drain").await.problem("conflict");
    act(&server, "server", "evict").await.problem("conflict");
    act(&server, "server", "resume").await.expect(200);
    act(&server, "other", "drain").await.problem("not_found");
}
