//! The archive goes with its store: into backups, and to a standby that takes over.

use serde_json::{Value, json};

use super::{NO_WINDOW, balances, forgetful, live, same_again};
use crate::journal_support::postgres::TestPostgres;
use crate::server::{Server, tool};
use crate::store::standby::Member;

#[tokio::test]
async fn a_restored_store_answers_from_the_archive_of_its_backup() {
    let server = forgetful().await;
    let first = live(&server, "x").await;
    server.until_forgotten().await;
    let before = balances(&server).await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = |name: &str| folder.path().join(name);
    let text = |name: &str| place(name).to_str().expect("a plain path").to_owned();
    tool(&["admin", "backup", &text("copy")], server.data());
    assert!(place("copy").join("archive-0.db").is_file(), "the backup has it");
    // What comes later is not in it.
    live(&server, "later").await;
    server.until_forgotten().await;
    tool(&["admin", "restore", &text("copy")], &place("restored"));
    let archive = place("restored").join("archive-0.db");
    let bytes = std::fs::read(&archive).expect("it was restored");
    // Without the file it is built again.
    std::fs::write(place("bursar.toml"), NO_WINDOW).expect("ours");
    let config = text("bursar.toml");
    for keeps in [true, false] {
        if !keeps {
            std::fs::remove_file(&archive).expect("it is there");
        }
        let flags = ["--clock", "manual", "--config", config.as_str()];
        let mut restored = Server::at(&place("restored"), &flags);
        restored.until_metric("bursar_archive_position", |position| position > 0.0).await;
        same_again(&restored, "x", &first).await;
        restored.call("GET", "/v1/holds/later", Value::Null).await.problem("not_found");
        assert_eq!(balances(&restored).await, before);
        if keeps {
            restored.stop();
            assert!(std::fs::read(&archive).is_ok_and(|now| now.len() >= bytes.len()));
            continue;
        }
        let refund = json!({ "id": "late", "hold": "x", "amount": "1" });
        restored.call("POST", "/v1/refunds", refund).await.expect(201);
    }
}

#[tokio::test]
async fn a_standby_that_takes_over_answers_what_the_leader_has_forgotten() {
    let database = TestPostgres::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = folder.path().join("bursar.toml");
    std::fs::write(&config, NO_WINDOW).expect("ours");
    let config = config.display().to_string();
    let flags = ["--config", config.as_str()];
    let member = || Member::with(&database.url(), folder.path(), &flags);
    let mut leader = member();
    assert_eq!(leader.hear(), None);
    // It stands by from before anything was archived.
    let mut standby = member();
    assert!(standby.hear().is_some());
    leader.server.tree().await;
    leader.server.grant("g", "acme", "1000").await;
    let mut lives = Vec::new();
    for round in 0..2 {
        let name = format!("t{round}");
        let first = live(&leader.server, &name).await;
        lives.push((name, first));
        leader.server.until_forgotten().await;
        let before = balances(&leader.server).await;
        leader.server.crash();
        assert_eq!(standby.hear(), None, "it leads now");
        for (name, first) in &lives {
            same_again(&standby.server, name, first).await;
        }
        assert_eq!(balances(&standby.server).await, before);
        let refund = json!({ "id": format!("late{round}"), "hold": lives[0].0, "amount": "0.5" });
        standby.server.call("POST", "/v1/refunds", refund).await.expect(201);
        leader = standby;
        standby = member();
        assert!(standby.hear().is_some());
    }
}
