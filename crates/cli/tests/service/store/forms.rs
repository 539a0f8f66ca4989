//! Members of different builds on one PostgreSQL: the form of the store is raised when all of them read the next one,
//! and a member that does not read it is refused.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::journal_support::postgres::TestPostgres;
use crate::server::{Answer, Server};
use crate::store::standby::Member;

/// The flags of a member that reads no form but the first.
const OLD: [&str; 4] = ["--member", "old", "--unsafe-store-form", "0"];

/// A member of an earlier build that leads, and one of this build.
fn mixed(store: &str, folder: &Path) -> (Member, Member) {
    let mut old = Member::with(store, folder, &OLD);
    assert_eq!(old.hear(), None, "there is no other");
    let mut new = Member::with(store, folder, &["--member", "new"]);
    assert!(new.hear().is_some(), "the store is of a form that both read");
    (old, new)
}

async fn upgrade(server: &Server) -> Answer {
    server.call("POST", "/v1/cluster/upgrade", json!({})).await
}

/// What the cluster says of forms: that of the store, the next one, and the members in the way.
fn forms(cluster: &Value) -> [&Value; 3] {
    [&cluster["form"], &cluster["next_form"], &cluster["held_back_by"]]
}

#[tokio::test]
async fn the_form_is_raised_when_every_member_reads_it_and_an_older_member_is_then_refused() {
    let database = TestPostgres::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (old, mut new) = mixed(&database.url(), folder.path());
    let cluster = new.server.get("/v1/cluster").await;
    assert_eq!(forms(&cluster), [&json!(0), &json!(1), &json!(["old"])], "{cluster}");
    assert_eq!(cluster["members"][0]["form"], 1, "{cluster}");
    let problem = upgrade(&new.server).await.problem("conflict");
    assert!(
        problem["detail"].as_str().is_some_and(|said| said.contains("old (build")),
        "{problem}"
    );

    assert_eq!(old.server.terminate().code(), Some(0));
    assert_eq!(new.hear(), None, "it leads now");
    let cluster = new.server.get("/v1/cluster").await;
    assert_eq!(forms(&cluster), [&json!(0), &json!(1), &json!([])], "{cluster}");
    let raised = upgrade(&new.server).await.expect(200);
    assert_eq!(forms(&raised), [&json!(1), &Value::Null, &json!([])], "{raised}");
    upgrade(&new.server).await.expect(200);

    let refused = Command::new(env!("CARGO_BIN_EXE_bursar"))
        .args(["serve", "--listen", "127.0.0.1:0", "--unsafe-single-postgres", "--store"])
        .args([&database.url(), "--root-key-file"])
        .arg(folder.path().join("root.key"))
        .args(OLD)
        .output()
        .expect("the binary is there");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("Start a newer build"), "{said}");
    new.server.open("acme", "org").await;
}

#[tokio::test]
async fn a_member_that_was_not_seen_during_an_upgrade_leads_no_more_and_says_so() {
    let database = TestPostgres::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (old, mut new) = mixed(&database.url(), folder.path());
    old.server.open("acme", "org").await;
    // As an upgrade does to a member that is paused.
    database.sql("UPDATE bursar_store SET form = 1");
    assert_eq!(new.hear(), None, "it leads now");
    assert_eq!(new.server.get("/v1/accounts/acme").await["id"], "acme");
    let ready = old.server.until_status("/readyz", 503).await;
    let reason = ready["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("form 1") && reason.contains("Start a newer build"), "{ready}");
}

#[tokio::test]
async fn a_data_folder_has_the_newest_form() {
    let server = Server::start();
    let cluster = upgrade(&server).await.expect(200);
    assert_eq!(forms(&cluster), [&json!(1), &Value::Null, &json!([])], "{cluster}");
}
