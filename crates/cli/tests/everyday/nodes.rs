//! Nodes that are removed, and what people type for GPUs and times.

use serde_json::json;

use crate::agent::Agent;
use crate::person::Person;
use crate::world::{priced, small, state, submit};

#[tokio::test]
async fn a_drained_node_that_is_removed_is_still_drained_when_its_agent_comes_back() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    person.done(&["node", "drain", "n1"]);
    person.done(&["node", "rm", "n1", "--yes"]);
    person.fails(4, &["node", "show", "n1"]);
    agent.register_again(&server, "default", "H100", 1).await;
    assert_eq!(person.json(&["node", "show", "n1"])["state"], "drained");
    submit(&server, small("j")).await;
    agent.beat(&server).await;
    assert_eq!(state(&server, "j").await, "queued");
    person.done(&["node", "resume", "n1"]);
    agent.beat(&server).await;
    assert!(agent.runs_job("j"));
}

#[tokio::test]
async fn gpu_types_match_without_case_and_what_is_unclear_is_asked_back() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    let quote = |gpus: &str, time: &str| {
        person.run(&["quote", "-a", "acme:nlp", "-g", gpus, "-t", time, "-o", "json"])
    };
    let lower = quote("h100:2", "90m");
    assert_eq!(lower.code, Some(0), "{lower:?}");
    let offer: serde_json::Value = serde_json::from_str(&lower.out).expect("JSON");
    assert_eq!(offer["offers"][0]["gpu_type"], json!("H100"));
    let near = quote("H10O", "1h");
    assert_ne!(near.code, Some(0), "{near:?}");
    assert!(near.err.contains("H100"), "a suggestion: {near:?}");
    let bare = person.fails(2, &["quote", "-a", "acme:nlp", "-g", "H100", "-t", "4"]);
    assert!(bare.contains("4 what? write 4m, 4h or 4d"), "{bare}");
    for same in ["5400s", "90m", "1h30m", "01:30:00"] {
        let said = quote("H100", same);
        let said: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
        assert_eq!(said["offers"][0]["hold"], json!("9"), "{same}: {said}");
    }
}
