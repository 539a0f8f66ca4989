//! A job that runs on an agent's node while servers come and go. No failover may end its attempt.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::clients::TestClients;
use crate::members::ServerProcesses;

/// Starts the agent, and the job of a tenant of its own; returns once the job runs.
pub(crate) async fn start(cluster: &mut ServerProcesses, clients: &TestClients) {
    let done = async |method: &str, path: &str, body: Value| {
        let (status, said) = clients.ask(method, path, body).await;
        // An earlier try may have been carried out without an answer.
        assert!(matches!(status, 200 | 201), "{path}: {said}");
        said
    };
    done("POST", "/v1/accounts", json!({ "id": "labs", "kind": "org" })).await;
    let funds = json!({ "id": "funds", "account": "labs", "amount": "1000", "kind": "purchase" });
    done("POST", "/v1/grants", funds).await;
    done("PUT", "/v1/prices/H100", json!({ "per_gpu_hour": "6" })).await;
    let made =
        done("POST", "/v1/keys", json!({ "role": "agent", "scope": "*", "name": "node" })).await;
    cluster.start_agent(made["key"].as_str().expect("shown once"));
    let job = json!({
        "id": "long", "account": "labs", "gpus": { "types": ["H100"], "count": 1 },
        "max_runtime_seconds": 36_000, "command": ["sleep", "36000"]
    });
    // The agent may not have registered its node yet.
    while !matches!(clients.ask("POST", "/v1/jobs", job.clone()).await.0, 200 | 201) {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    while found(clients).await["state"] != "running" {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

async fn found(clients: &TestClients) -> Value {
    clients.ask("GET", "/v1/jobs/long", Value::Null).await.1
}

/// The job still runs, in its first attempt.
pub(crate) async fn check(clients: &TestClients) {
    let job = found(clients).await;
    let attempts = job["attempts"].as_array().expect("a list").len();
    assert_eq!((&job["state"], attempts), (&json!("running"), 1), "an attempt was ended: {job}");
}

/// Ends the supervisors of attempts that an agent's state names.
pub(crate) fn end_attempts(state: &Path) {
    let attempts = std::fs::read_dir(state.join("attempts")).into_iter().flatten().flatten();
    for attempt in attempts {
        let text = std::fs::read_to_string(attempt.path().join("record.json")).unwrap_or_default();
        let record: Value = serde_json::from_str(&text).unwrap_or_default();
        if record["ended"] == false
            && let Some(process) = record["supervisor"]["pid"].as_i64()
        {
            let _ = Command::new("kill").args(["-9", &process.to_string()]).status();
        }
    }
}
