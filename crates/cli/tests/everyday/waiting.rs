//! `bursar wait`: for the end, for a state, for whole arrays.

use serde_json::json;

use crate::agent::Agent;
use crate::person::Person;
use crate::world::{cancel, priced, small, submit, with};

#[tokio::test]
async fn waiting_for_an_array_ends_with_its_last_job() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    let mut agent = Agent::register(&server, "n1", "H100", 3).await;
    submit(&server, with(small("arr"), "array", json!(3))).await;
    agent.beat(&server).await;
    let waiting = person.start(&["wait", "arr"]);
    agent.run(&server, 60).await;
    agent.finish(&server, "arr.0", 0).await;
    agent.finish(&server, "arr.1", 3).await;
    agent.finish(&server, "arr.2", 4).await;
    // It ends as the first job that did not succeed; without the rest it would have succeeded.
    let said = waiting.end();
    assert_eq!(said.code, Some(3), "{said:?}");
    let line = "arr: 1 succeeded, 2 failed: 3m00s of GPU time, 0.3 charged, 17.7 returned";
    assert!(said.err.starts_with(line), "{}", said.err);
    assert!(said.err.contains("arr.1 failed with exit code 3"), "{}", said.err);
    let each = person.run(&["wait", "arr", "-o", "json"]);
    let states: Vec<serde_json::Value> =
        each.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let states: Vec<&str> = states.iter().map(|job| job["state"].as_str().expect("text")).collect();
    assert_eq!(states, ["succeeded", "failed", "failed"]);
    // One job of the array stands for itself.
    assert_eq!(person.run(&["wait", "arr.0"]).code, Some(0));
}

#[tokio::test]
async fn waiting_for_a_state_ends_when_every_job_was_in_it() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    let mut agent = Agent::register(&server, "n1", "H100", 2).await;
    submit(&server, with(small("arr"), "array", json!(2))).await;
    person.done(&["wait", "--for", "queued", "arr"]);
    let waiting = person.start(&["wait", "--for", "running", "arr"]);
    agent.beat(&server).await;
    assert_eq!(waiting.end().code, Some(0));
    // A job that has left the state was in it.
    agent.finish(&server, "arr.0", 7).await;
    person.done(&["wait", "--for", "running", "arr"]);
    person.done(&["wait", "--for", "failed", "arr.0"]);
    assert_eq!(person.run(&["wait", "--for", "succeeded", "arr.0"]).code, Some(7));
    // One that has ended does not keep the others from being cancelled.
    let failed = person.fails(3, &["cancel", "arr.0", "arr.1", "--yes"]);
    assert!(failed.contains("1 of 2 failed") && failed.contains("arr.0: "), "{failed}");
    assert_eq!(person.json(&["job", "show", "arr.1"])["state"], "stopping");
}

#[tokio::test]
async fn a_wait_that_takes_too_long_ends_and_the_job_continues() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    submit(&server, small("later")).await;
    let said = person.fails(6, &["wait", "--timeout", "1s", "later"]);
    assert!(said.contains("not reached after 1s") && said.contains("bursar why later"), "{said}");
    let why = person.done(&["why", "later"]);
    assert!(why.contains("queued"), "{why}");
    person.fails(2, &["wait", "--timeout", "1", "later"]);
}

#[tokio::test]
async fn waiting_for_a_state_that_cannot_come_fails() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    submit(&server, small("never")).await;
    let waiting = person.start(&["wait", "--for", "running", "never"]);
    cancel(&server, "never").await;
    let said = waiting.end();
    assert_eq!(said.code, Some(130), "{said:?}");
    assert!(said.err.contains("never ended as cancelled"), "{}", said.err);
    let wrong = person.fails(2, &["wait", "--for", "done", "never"]);
    assert!(wrong.contains("succeeded"), "the states are listed: {wrong}");
    person.fails(4, &["wait", "no-such-job"]);
}
