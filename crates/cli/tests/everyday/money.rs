//! Money as people ask for it: what runs now costs, what expires above an account, what was moved.

use serde_json::json;

use crate::agent::Agent;
use crate::person::Person;
use crate::world::{priced, small, submit, with};

#[tokio::test]
async fn a_forecast_counts_what_runs_now() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    let mut agent = Agent::register(&server, "n1", "H100", 4).await;
    let before = person.json(&["forecast", "acme:nlp"]);
    assert_eq!(before["running_per_hour"], "0");
    assert_eq!(before["running_runway_seconds"], json!(null));
    submit(&server, with(small("j"), "gpus", json!({ "types": ["H100"], "count": 4 }))).await;
    agent.beat(&server).await;
    // Nothing was charged yet, so spending in the past says nothing.
    for account in ["acme", "acme:nlp"] {
        let now = person.json(&["forecast", account]);
        assert_eq!(now["running_per_hour"], "24", "{account}");
        // 976 credits are left beside the hold.
        assert_eq!(now["running_runway_seconds"], 976 * 3600 / 24, "{account}");
    }
    let table = person.done(&["forecast", "acme"]);
    assert!(table.contains("running per hour  24"), "{table}");
    assert_eq!(person.json(&["forecast", "umbra"])["running_per_hour"], "0");
}

#[tokio::test]
async fn a_balance_shows_what_expires_above_it() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    let soon = ["grant", "add", "acme", "40", "--kind", "promotion", "--id", "soon"];
    person.done(&[&soon[..], &["--expires", "2020-01-09"]].concat());
    let own = ["grant", "add", "acme:nlp", "5", "--kind", "promotion", "--id", "own"];
    person.done(&[&own[..], &["--expires", "2020-02-09"]].concat());
    let shown = person.done(&["balance", "acme:nlp"]);
    let lines: Vec<&str> = shown.lines().filter(|line| line.starts_with("2020-0")).collect();
    assert_eq!(lines.len(), 2, "{shown}");
    assert!(lines[0].ends_with("promotion  acme"), "{shown}");
    assert!(lines[1].ends_with("promotion  acme:nlp"), "{shown}");
    assert!(shown.contains("expiring in 14 days  40"), "{shown}");
    assert!(shown.contains("held by subtree"), "{shown}");
}

#[tokio::test]
async fn a_refund_and_a_transfer_show_when_and_whose_they_are() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    person.done(&["charge", "acme:nlp", "5", "--id", "c"]);
    let refund =
        ["refund", "--charge", "c", "--amount", "2", "--id", "r", "--reason", "node failed"];
    let made = person.json(&refund);
    assert_eq!((&made["account"], &made["reason"]), (&json!("acme:nlp"), &json!("node failed")));
    assert_eq!(made["created_at"], "2020-01-01T00:00:00.000Z");
    let why = ["--reason", "Second quarter", "--reference", "T-9"];
    let moved = ["transfer", "acme", "acme:nlp", "7", "--id", "t"];
    let moved = person.json(&[&moved[..], &why].concat());
    assert_eq!((&moved["reason"], &moved["reference"]), (&json!("Second quarter"), &json!("T-9")));
    assert!(person.done(&["transfer", "ls"]).contains("Second quarter"));
    assert_eq!((&moved["amount"], &moved["created_at"]), (&json!("7"), &made["created_at"]));
    let statement = person.done(&["statement", "acme", "--month", "2020-01"]);
    assert!(statement.contains("\naccount  acme\n"), "{statement}");
    let groups = ["statement", "acme", "--month", "2020-01", "--by", "account", "-o", "csv"];
    let groups = person.done(&groups);
    assert!(groups.starts_with("group,spent\n") && groups.contains("\ntotal,"), "{groups}");
    assert!(statement.contains("from     2020-01-01T00:00:00Z"), "{statement}");
}

#[tokio::test]
async fn a_refund_names_its_job_as_other_commands_do() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, small("train-7")).await;
    agent.beat(&server).await;
    agent.run(&server, 60).await;
    agent.finish(&server, "train-7", 0).await;
    let refund = |job: &str| person.json(&["refund", "--job", job, "--amount", "0.01"]);
    for job in ["last", "train", "train-7"] {
        assert_eq!(refund(job)["job"], "train-7", "{job}");
    }
    assert_eq!(person.done(&["refund", "ls", "--job", "last", "-o", "name"]).lines().count(), 3);
    person.fails(4, &["refund", "--job", "none"]);
}

#[tokio::test]
async fn a_refund_that_cannot_be_made_says_what_to_do() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, small("train")).await;
    agent.beat(&server).await;
    agent.run(&server, 60).await;
    let running = person.fails(3, &["refund", "--job", "train"]);
    assert!(running.contains("cancel the job, or wait for its end"), "{running}");
    agent.finish(&server, "train", 0).await;
    person.done(&["refund", "--job", "train", "--id", "r-1"]);
    let again = person.fails(3, &["refund", "--job", "train"]);
    assert!(again.contains("all of it was refunded before"), "{again}");
    assert!(again.contains("the last refund is r-1 of 0.1"), "{again}");
    assert!(again.contains("next: bursar refund show r-1"), "{again}");
}
