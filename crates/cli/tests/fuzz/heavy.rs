//! Requests whose fields are valid but whose total is too large.

use serde_json::{Value, json};

use crate::findings::Findings;
use crate::world::Client;

/// Requests that must be rejected or carried out, and must never stop a machine.
fn requests() -> Vec<(&'static str, &'static str, Value)> {
    let job = |array: u32, more: Value| {
        let mut body = json!({
            "account": "acme:nlp", "gpus": { "types": ["H100"], "count": 1 }, "array": array,
            "max_runtime_seconds": 1, "command": ["true"]
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        body
    };
    let large = "x".repeat(30_000);
    let labels: Value = (0..64)
        .map(|n| (format!("l{n}"), "v".repeat(60).into()))
        .collect::<serde_json::Map<String, Value>>()
        .into();
    let submit = |body: Value| json!({ "method": "POST", "path": "/v1/jobs", "body": body });
    let atomic = |operations: Vec<Value>| json!({ "atomic": true, "operations": operations });
    let parts = vec!["acme:nlp"; 600];
    vec![
        ("POST", "/v1/jobs", job(1000, json!({ "command": [large] }))),
        ("POST", "/v1/jobs", job(1000, json!({ "env": { "BIG": large } }))),
        ("POST", "/v1/jobs", job(1000, json!({ "labels": labels }))),
        ("POST", "/v1/jobs", job(1000, json!({ "command": vec!["x"; 1024] }))),
        ("POST", "/v1/quotes", job(1000, json!({ "command": [large] }))),
        ("POST", "/v1/batch", atomic(vec![submit(job(1000, json!({}))); 150])),
        ("POST", "/v1/batch", json!({ "operations": vec![submit(job(100, json!({}))); 20] })),
        ("POST", "/v1/batch", atomic(parts.iter().map(|account| {
            json!({ "method": "POST", "path": "/v1/holds", "body": { "account": account, "amount": "0.000001" } })
        }).collect())),
    ]
}

pub(crate) fn send(root: &mut Client, findings: &Findings) {
    for (place, (method, target, body)) in requests().into_iter().enumerate() {
        let what = format!("heavy request {place}, {method} {target}");
        match root.call(method, target, &body) {
            Some(answer) if answer.status < 500 => {}
            Some(answer) => {
                let said = String::from_utf8_lossy(&answer.body).into_owned();
                findings.add(format!("{what}: {}", answer.status), said);
            }
            None => findings.add(format!("{what}: no answer"), String::new()),
        }
    }
}
