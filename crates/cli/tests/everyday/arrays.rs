//! Arrays: one state line, the total cost, and jobs that are submitted once more.

use serde_json::json;

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
    let field = |name: &str| {
        let line = shown.lines().find(|line| line.starts_with(name));
        line.unwrap_or_else(|| panic!("{name}: {shown}"))[name.len()..].trim().to_owned()
    };
    assert_eq!((field("id"), field("jobs")), ("arr".into(), "3".into()));
    // The end of the first made room for the last.
    assert_eq!(field("state"), "2 running, 1 succeeded");
    assert_eq!(field("charged"), "2");
    assert_eq!(field("returned"), "5");
    for member in ["arr.0", "arr.1", "arr.2"] {
        assert!(shown.contains(member), "{shown}");
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
