//! Jobs by the beginning of their id, as `last`, and attempts by their number; combined logs.

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::person::Person;
use crate::server::Server;
use crate::world::{priced, small, submit, with};

/// Sends output of a job that runs on a node.
async fn print(server: &Server, agent: &Agent, job: &str, base64: &str) {
    let attempt = agent.attempt_of(job);
    let piece = json!({
        "incarnation": agent.incarnation, "attempt": attempt, "offset": 0, "data": base64
    });
    let path = format!("/v1/nodes/{}/logs", agent.node);
    server.call("POST", &path, piece).await.expect(200);
}

#[tokio::test]
async fn a_job_is_named_by_the_beginning_of_its_id_or_as_the_last() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    person.fails(4, &["job", "show", "last"]);
    submit(&server, small("alpha-1")).await;
    server.advance(1).await;
    submit(&server, small("alpha-2")).await;
    server.advance(1).await;
    submit(&server, small("beta")).await;
    let id = |arguments: &[&str]| person.json(arguments)["id"].as_str().map(str::to_owned);
    assert_eq!(id(&["job", "show", "be"]).as_deref(), Some("beta"));
    assert_eq!(id(&["job", "show", "last"]).as_deref(), Some("beta"));
    assert_eq!(id(&["job", "show", "alpha-2"]).as_deref(), Some("alpha-2"));
    let several = person.fails(3, &["why", "alpha"]);
    assert!(several.contains("alpha-1") && several.contains("alpha-2"), "{several}");
    assert!(person.fails(4, &["why", "gamma"]).contains("next:"));
    assert_eq!(person.json(&["why", "bet"])["job"], "beta");
    // Nothing is cancelled by mistake: a job that is not named whole is asked for.
    let (code, shown) = person.types("n\n", &["cancel", "be"]);
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("cancel beta?"), "{shown}");
    assert_eq!(person.json(&["job", "show", "beta"])["state"], "queued");
    person.done(&["cancel", "be"]);
    assert_eq!(person.json(&["job", "show", "beta"])["state"], "cancelled");
    // A tenant finds its own jobs only.
    let other = Person::with_key(&server, &server.key("submitter", "umbra").await);
    other.fails(4, &["why", "alp"]);
    other.fails(4, &["why", "last"]);
    let team = Person::with_key(&server, &server.key("submitter", "acme:nlp").await);
    assert_eq!(team.json(&["why", "alpha-1"])["job"], "alpha-1");
}

#[tokio::test]
async fn the_last_job_of_a_key_that_sees_several_tenants_is_asked_for() {
    let server = priced(&[]).await;
    server.grant("theirs", "umbra", "100").await;
    submit(&server, small("ours")).await;
    server.advance(1).await;
    let root = Person::of(&server);
    assert_eq!(root.json(&["why", "last"])["job"], "ours");
    submit(&server, with(small("theirs"), "account", json!("umbra"))).await;
    for arguments in
        [&["why", "last"][..], &["refund", "--job", "last"], &["cancel", "last", "--yes"]]
    {
        let said = root.fails(3, arguments);
        assert!(said.contains("the newest is theirs of umbra"), "{said}");
        assert!(said.contains("--tenant umbra"), "{said}");
    }
    assert_eq!(root.json(&["why", "last", "--tenant", "acme"])["job"], "ours");
    let team = Person::with_key(&server, &server.key("submitter", "acme").await);
    assert_eq!(team.json(&["why", "last"])["job"], "ours");
}

#[tokio::test]
async fn the_logs_of_an_array_are_combined_with_indexes() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    let mut agent = Agent::register(&server, "n1", "H100", 2).await;
    submit(&server, with(small("sweep"), "array", json!(3))).await;
    agent.beat(&server).await;
    // "one\ntwo" without an end of the line, and "three\n".
    print(&server, &agent, "sweep.0", "b25lCnR3bw==").await;
    print(&server, &agent, "sweep.1", "dGhyZWUK").await;
    let both = "[0] one\n[0] two\n[1] three\n";
    assert_eq!(person.done(&["logs", "sweep"]), both);
    assert_eq!(person.done(&["logs", "last"]), both);
    assert_eq!(person.done(&["logs", "swee"]), both);
    assert_eq!(person.done(&["logs", "sweep.1"]), "three\n");
    let following = person.start(&["logs", "-f", "sweep"]);
    agent.finish(&server, "sweep.0", 0).await;
    agent.finish(&server, "sweep.1", 0).await;
    print(&server, &agent, "sweep.2", "Zm91cgo=").await;
    agent.finish(&server, "sweep.2", 0).await;
    let said = following.end();
    assert_eq!(said.code, Some(0), "{said:?}");
    let mut lines: Vec<&str> = said.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[0] one", "[0] two", "[1] three", "[2] four"]);
    assert!(person.fails(2, &["logs", "sweep", "--all-ranks"]).contains("sweep.0"));
}

#[tokio::test]
async fn attempts_have_numbers() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    submit(&server, small("j")).await;
    assert!(person.fails(4, &["logs", "j", "--attempt", "1"]).contains("no attempt yet"));
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    agent.beat(&server).await;
    print(&server, &agent, "j", "Zmlyc3QK").await;
    server.call("POST", "/v1/jobs/j/preempt", json!({})).await.expect(200);
    agent.beat(&server).await;
    agent.run(&server, 60).await;
    print(&server, &agent, "j", "c2Vjb25kCg==").await;
    assert_eq!(person.done(&["logs", "j"]), "second\n");
    assert_eq!(person.done(&["logs", "j", "--attempt", "1"]), "first\n");
    assert_eq!(person.done(&["logs", "j", "--attempt", "2"]), "second\n");
    let missing = person.fails(4, &["logs", "j", "--attempt", "3"]);
    assert!(missing.contains("j has 2 attempts"), "{missing}");
    let shown: Value = person.json(&["job", "show", "j"]);
    let first = shown["attempts"][0]["id"].as_str().expect("an id");
    assert_eq!(person.done(&["logs", "j", "--attempt", first]), "first\n");
}

#[tokio::test]
async fn the_unsuccessful_jobs_of_an_array_are_submitted_once_more() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    let mut agent = Agent::register(&server, "n1", "H100", 3).await;
    submit(&server, with(small("sweep"), "array", json!(3))).await;
    agent.beat(&server).await;
    agent.finish(&server, "sweep.0", 0).await;
    agent.finish(&server, "sweep.2", 1).await;
    let early = person.fails(3, &["job", "retry", "sweep"]);
    assert!(early.contains("sweep.1 is running"), "{early}");
    agent.finish(&server, "sweep.1", 0).await;
    let again = person.json(&["job", "retry", "sweep"]);
    assert_eq!(again["spec"]["env"]["BURSAR_ARRAY_INDEX"], "2");
    assert_eq!(again["spec"]["array"], Value::Null);
    submit(&server, with(small("fine"), "array", json!(1))).await;
    agent.beat(&server).await;
    agent.finish(&server, "fine.0", 0).await;
    assert!(person.fails(3, &["job", "retry", "fine"]).contains("has succeeded"));
}
