//! Standbys that follow the machines of the leader, and how long a takeover takes with and without that.

use std::path::Path;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::journal_support::postgres::TestPostgres;
use crate::server::Server;
use crate::store::standby::Member;

/// The accounts of the state whose takeover is timed.
fn accounts() -> usize {
    let set = std::env::var("BURSAR_TAKEOVER_ACCOUNTS").ok();
    set.map_or(500, |set| set.parse().expect("a number of accounts"))
}

/// A configuration in which standbys follow, or do not.
fn config(folder: &Path, follow: bool) -> String {
    let file = folder.join(format!("follow-{follow}.toml"));
    std::fs::write(&file, format!("[cluster]\nfollow = {follow}\n")).expect("the folder is ours");
    file.display().to_string()
}

/// The takeovers of a machine that continued from a state that followed.
const CONTINUED: &str = r#"bursar_machine_continued_takeovers_total{machine="Ledger"}"#;
const LAG: &str = r#"bursar_follower_lag_batches{machine="Ledger"}"#;

/// Waits until a standby has a state with the whole journal in it. A leader has none.
async fn until_followed(server: &Server) {
    server.until_metric(LAG, |lag| lag == 0.0).await;
}

#[tokio::test]
async fn a_takeover_continues_from_the_states_that_followed_and_so_does_the_way_back() {
    let database = TestPostgres::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut servers = Vec::new();
    for name in ["one", "two", "three"] {
        let mut member = Member::with(&database.url(), folder.path(), &["--member", name]);
        member.hear();
        servers.push(member);
    }
    servers[0].server.open("acme", "org").await;
    servers[0].server.grant("g", "acme", "100").await;
    let act = async |server: &Server, name: &str, verb: &str| {
        let path = format!("/v1/cluster/members/{name}/{verb}");
        server.call("POST", &path, json!({})).await.expect(200);
    };
    let charge = async |server: &Server, id: usize| {
        let (id, path) = (format!("c{id}"), "/v1/charges");
        let body = json!({ "id": id, "account": "acme", "amount": "1" });
        let key = [("idempotency-key", id.as_str())];
        // Its outcome may be unknown while connections are replaced.
        while server.send("POST", path, body.clone(), &server.root, &key).await.status != 201 {}
    };
    let leads = async |leader: usize| {
        let cluster = servers[0].server.get("/v1/cluster").await;
        cluster["machines"].as_array().expect("a list").iter().all(|machine| {
            machine["owner"] == *["one", "two", "three"].get(leader).expect("three servers")
        })
    };
    until_followed(&servers[1].server).await;
    // Two takeovers through followed states, of which the second is by the one that led first.
    act(&servers[0].server, "three", "drain").await;
    charge(&servers[0].server, 0).await;
    act(&servers[0].server, "one", "drain").await;
    while !leads(1).await {}
    charge(&servers[2].server, 1).await;
    servers[1].server.until_metric(CONTINUED, |count| count == 1.0).await;
    act(&servers[2].server, "one", "resume").await;
    until_followed(&servers[0].server).await;
    charge(&servers[2].server, 2).await;
    act(&servers[2].server, "two", "drain").await;
    while !leads(0).await {}
    servers[0].server.until_metric(CONTINUED, |count| count == 1.0).await;
    assert_eq!(servers[2].server.get("/v1/accounts/acme/balance").await["available"], "97");
    // Connections that end are replaced, and following goes on.
    database.sql(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
         AND backend_type = 'client backend'",
    );
    charge(&servers[2].server, 3).await;
    until_followed(&servers[1].server).await;
    act(&servers[2].server, "two", "resume").await;
    act(&servers[2].server, "one", "drain").await;
    while !leads(1).await {}
    servers[1].server.until_metric(CONTINUED, |count| count == 2.0).await;
    assert_eq!(servers[2].server.get("/v1/accounts/acme/balance").await["available"], "96");
}

/// The time from the kill of the leader to the first answer of the other server.
async fn time_a_takeover(follow: bool) {
    let database = TestPostgres::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = config(folder.path(), follow);
    let start = |name: &str| {
        Member::with(&database.url(), folder.path(), &["--member", name, "--config", &config])
    };
    let mut leader = start("one");
    assert_eq!(leader.hear(), None);
    let mut standby = start("two");
    assert!(standby.hear().is_some());
    leader.server.open("acme", "org").await;
    leader.server.grant("g", "acme", "1000").await;
    let opened = |id: usize| {
        let body = json!({ "id": format!("acme:a{id}"), "kind": "user" });
        json!({ "method": "POST", "path": "/v1/accounts", "body": body })
    };
    let ids: Vec<usize> = (0..accounts()).collect();
    for part in ids.chunks(1_000) {
        let operations: Vec<Value> = part.iter().copied().map(opened).collect();
        let body = json!({ "operations": operations });
        let done = leader.server.call("POST", "/v1/batch", body).await.expect(200);
        assert_eq!(done["results"][0]["status"], 201, "{done}");
    }
    if follow {
        until_followed(&standby.server).await;
    }
    leader.server.crash();
    let killed = Instant::now();
    assert_eq!(standby.server.get("/v1/accounts/acme/balance").await["available"], "1000");
    let took = killed.elapsed().as_millis();
    println!("{} accounts, following {follow}: first answer {took} ms after the kill", ids.len());
    let continued = if follow { 1.0 } else { 0.0 };
    assert_eq!(standby.hear(), None, "it leads now");
    standby.server.until_metric(CONTINUED, |count| count == continued).await;
}

#[tokio::test]
async fn a_state_in_memory_spares_a_takeover_the_journals() {
    for follow in [true, false] {
        time_a_takeover(follow).await;
    }
}
