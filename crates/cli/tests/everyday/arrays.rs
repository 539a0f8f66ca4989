//! Arrays: one state line, the total cost, and jobs that are submitted once more.

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::person::Person;
use crate::world::{job, priced, small, state, submit, with};

#[tokio::test]
async fn an_array_has_one_state_line_and_a_total() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    let mut agent = Agent::register(&server, "n1", "H100", 2).await;
    submit(&server, with(small("arr"), "array", json!(3))).await;
    agent.beat(&server).await;
    agent.run(&server, 600).await;
    agent.finish(&server, "arr.0", 0).await;
    let shown = person.done(&["job", "show", "arr"]);
    let field = |name: &str| field(&shown, name);
    assert_eq!((field("id"), field("jobs")), ("arr".into(), "3".into()));
    // The end of the first made room for the last.
    assert_eq!(field("state"), "2 running, 1 succeeded");
    assert_eq!(field("charged"), "2");
    assert_eq!(field("returned"), "5");
    for job_id in ["arr.0", "arr.1", "arr.2"] {
        assert!(shown.contains(job_id), "{shown}");
    }
    // One job of the array is shown as a job.
    assert!(person.done(&["job", "show", "arr.1"]).contains("attempts:"));
}

#[tokio::test]
async fn a_job_that_ended_is_submitted_once_more() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    let mut agent = Agent::register(&server, "n1", "H100", 2).await;
    let body = with(with(small("j"), "labels", json!({"team": "nlp"})), "env", json!({"A": "1"}));
    submit(&server, body).await;
    let early = person.fails(3, &["job", "retry", "j"]);
    assert!(early.contains("only a job that has ended can be retried"), "{early}");
    agent.beat(&server).await;
    agent.finish(&server, "j", 1).await;
    let planned = person.done(&["job", "retry", "j", "--dry-run"]);
    assert!(planned.starts_with("would send POST /v1/jobs"), "{planned}");
    let again = person.json(&["job", "retry", "j"]);
    let id = again["id"].as_str().expect("an id");
    assert_ne!(id, "j");
    let first = job(&server, "j").await["spec"].clone();
    for field in ["gpus", "command", "labels", "env", "max_runtime_seconds", "account"] {
        assert_eq!(again["spec"][field], first[field], "{field}");
    }
    agent.beat(&server).await;
    assert_eq!(state(&server, id).await, "running");
    assert_eq!(state(&server, "j").await, "failed");
}

/// The value of a field of a table.
#[track_caller]
fn field(shown: &str, name: &str) -> String {
    let line = shown.lines().find(|line| line.starts_with(name));
    line.unwrap_or_else(|| panic!("{name}: {shown}"))[name.len()..].trim().to_owned()
}

#[tokio::test]
async fn a_submitted_array_is_shown_as_a_whole() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    let run = ["run", "--array", "3", "-a", "acme:nlp", "-g", "H100", "-t", "1h", "--yes"];
    let said = person.run(&[&run[..], &["--id", "sweep", "--", "true"]].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!((field(&said.out, "id"), field(&said.out, "held")), ("sweep".into(), "18".into()));
    assert_eq!(field(&said.out, "state"), "3 queued");
    assert!(said.err.contains("next: bursar logs -f sweep\n"), "{}", said.err);
    assert!(said.err.contains("bursar wait sweep\n"), "{}", said.err);
    // What follows the dashes belongs to the job.
    let again = person.done(&[&run[..], &["-o", "json", "--id", "other", "--", "true"]].concat());
    let again: Value = serde_json::from_str(&again).expect("JSON");
    assert_eq!((&again["id"], &again["held"]), (&json!("other"), &json!("18")));
    assert_eq!(again["states"], json!({ "queued": 3 }));
    let shown = person.json(&["job", "show", "sweep"]);
    assert_eq!((&shown["id"], &shown["cost_so_far"]), (&json!("sweep"), &json!("0")));
    assert_eq!(shown["jobs"].as_array().map(Vec::len), Some(3));
    let csv = person.done(&["job", "show", "sweep", "-o", "csv"]);
    assert!(csv.lines().nth(1).is_some_and(|line| line.starts_with("sweep,acme:nlp,3,")), "{csv}");
    assert_eq!(person.done(&["job", "show", "sweep", "-o", "name"]), "sweep\n");
}

#[tokio::test]
async fn every_command_about_a_job_takes_a_whole_array_or_says_that_it_does_not() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    let mut agent = Agent::register(&server, "n1", "H100", 2).await;
    submit(&server, with(small("sweep"), "array", json!(3))).await;
    agent.beat(&server).await;
    agent.run(&server, 60).await;
    let shown = person.done(&["job", "show", "sweep"]);
    assert_eq!(field(&shown, "state"), "1 queued, 2 running");
    assert_eq!(
        (field(&shown, "held"), field(&shown, "cost so far")),
        ("17.8".into(), "0.2".into())
    );
    let why = person.done(&["why", "sweep"]);
    assert_eq!((field(&why, "jobs"), field(&why, "waiting")), ("3".into(), "1".into()));
    assert!(why.contains("sweep.2") && why.contains("capacity"), "{why}");
    let every = person.json(&["why", "sweep"]);
    assert_eq!(every["data"].as_array().map(Vec::len), Some(3));
    let one = person.fails(2, &["job", "timeline", "sweep"]);
    assert!(one.contains("sweep is an array of 3 jobs"), "{one}");
    assert!(one.contains("bursar job timeline sweep.0"), "{one}");
    person.done(&["job", "preempt", "sweep"]);
    for job_id in ["sweep.0", "sweep.1"] {
        let stopping = job(&server, job_id).await;
        assert_eq!(stopping["state"], "stopping", "{stopping}");
    }
    assert_eq!(state(&server, "sweep.2").await, "queued");
    agent.beat(&server).await;
    let cancelled = person.done(&["cancel", "sweep", "-o", "csv"]);
    let line = cancelled.lines().nth(1).unwrap_or_default();
    assert!(line.starts_with("sweep,acme:nlp,3,"), "{cancelled}");
    agent.beat(&server).await;
    let end = person.done(&["job", "show", "sweep"]);
    assert_eq!((field(&end, "state"), field(&end, "held")), ("3 cancelled".into(), "0".into()));
}
