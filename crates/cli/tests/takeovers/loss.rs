//! A standby that lacks acknowledged changes is promoted.

use std::time::Duration;

use serde_json::{Value, json};

use crate::clients::TestClients;
use crate::journal_support::postgres::TestPostgres;
use crate::members::{MEMBERS, ROOT_KEY, ServerProcesses};

/// An answer within a moment, if there is one.
async fn look(url: &str, path: &str) -> Option<(u16, Value)> {
    let client = reqwest::Client::builder().timeout(Duration::from_secs(1)).build();
    let request = client.expect("a plain client").get(format!("{url}{path}"));
    let answer = request.bearer_auth(ROOT_KEY).send().await.ok()?;
    let status = answer.status().as_u16();
    Some((status, answer.json().await.ok()?))
}

/// Waits until a member says that it does not serve because of the loss. No other balance than that of before is shown
/// until then.
async fn until_refused(url: &str, before: &str) {
    loop {
        if let Some((200, balance)) = look(url, "/v1/accounts/acme/balance").await {
            assert_eq!(balance["available"], before, "a store that lost a grant is served");
        }
        if let Some((503, ready)) = look(url, "/readyz").await
            && ready["reason"].as_str().is_some_and(|said| said.contains("cluster accept-loss"))
            && let Some((503, problem)) = look(url, "/v1/cluster").await
            && let Some(detail) = problem["detail"].as_str()
            && detail.contains("cluster accept-loss")
        {
            assert!(!detail.contains("try again"), "repeating does not help: {detail}");
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_lost_acknowledged_changes_is_not_served_before_an_operator_accepts_it() {
    let mut primary = TestPostgres::start();
    let mut standby = primary.standby("second");
    let store = primary.url_with(&standby);
    let mut cluster = ServerProcesses::start(&store);
    let clients = TestClients::new(&cluster.urls, ROOT_KEY);
    let grant = async |id: &str, amount: &str| {
        let body = json!({ "id": id, "account": "acme", "amount": amount, "kind": "purchase" });
        let (status, said) = clients.ask("POST", "/v1/grants", body).await;
        assert!(matches!(status, 200 | 201), "{said}");
    };
    clients.ask("POST", "/v1/accounts", json!({ "id": "acme", "kind": "org" })).await;
    grant("kept", "10").await;
    let head = "SELECT sequence FROM bursar_head WHERE machine = 'ledger-0'";
    let kept = primary.sql(head);
    let has = format!("SELECT sequence >= {kept} FROM bursar_head WHERE machine = 'ledger-0'");
    standby.wait_for(&has, "t");
    standby.sql("ALTER SYSTEM SET primary_conninfo = ''");
    standby.sql("SELECT pg_reload_conf()");
    primary.wait_for("SELECT count(*) FROM pg_stat_replication", "0");
    grant("lost", "5").await;
    let leader = cluster.leader(&primary);
    primary.crash();
    assert_eq!(standby.sql("SELECT pg_promote()"), "t");
    for url in &cluster.urls {
        until_refused(url, "15").await;
    }
    // One that saw nothing of what is lost keeps to it as well.
    let fresh = (leader + 1) % MEMBERS;
    cluster.kill(fresh);
    cluster.launch(fresh);
    until_refused(&cluster.urls[fresh], "15").await;
    let refused = cluster.fails(&["cluster", "accept-loss", "--store", &store]);
    assert!(refused.contains("ledger-0") && refused.contains("--yes"), "{refused}");
    until_refused(&cluster.urls[fresh], "15").await;

    let accepted = cluster.tool(&["cluster", "accept-loss", "--store", &store, "--yes"]);
    assert!(accepted.contains("ledger-0"), "{accepted}");
    // The state of the member that led contains what is lost.
    assert!(!cluster.ended(leader).success(), "it must be started again");
    cluster.launch(leader);
    let (status, balance) = clients.ask("GET", "/v1/accounts/acme/balance", Value::Null).await;
    assert_eq!((status, &balance["available"]), (200, &json!("10")), "{balance}");
    let again = cluster.tool(&["cluster", "accept-loss", "--store", &store]);
    assert!(again.contains("no loss is noted"), "{again}");
    grant("after", "1").await;

    // The copy from before the acceptance comes back. Its journals may go further: what came after is not in it.
    let leader = cluster.leader(&standby);
    standby.crash();
    primary.start_again();
    for url in &cluster.urls {
        until_refused(url, "11").await;
    }
    cluster.tool(&["cluster", "accept-loss", "--store", &store, "--yes"]);
    assert!(!cluster.ended(leader).success(), "it must be started again");
    cluster.launch(leader);
    let (status, balance) = clients.ask("GET", "/v1/accounts/acme/balance", Value::Null).await;
    assert_eq!((status, &balance["available"]), (200, &json!("15")), "{balance}");
    for member in 0..MEMBERS {
        cluster.stop(member);
    }
    cluster.rehearse();
}
