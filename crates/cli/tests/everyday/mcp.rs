//! `bursar mcp`: a language model reads through the connection of a person.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::person::Person;
use crate::world::{priced, small, submit};

/// The answers to these lines, until the end of the input.
fn answers_to(person: &Person, lines: &[Value]) -> Vec<Value> {
    let mut command = person.command(&["mcp"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the binary is there");
    let mut input = child.stdin.take().expect("it is piped");
    for line in lines {
        writeln!(input, "{line}").expect("it reads");
    }
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn asks(id: u32, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn calls(id: u32, name: &str, arguments: Value) -> Value {
    asks(id, "tools/call", json!({ "name": name, "arguments": arguments }))
}

#[tokio::test]
async fn a_model_reads_what_its_key_sees_and_changes_nothing() {
    let server = priced(&[]).await;
    submit(&server, small("train")).await;
    let key = server.key("viewer", "acme:nlp").await;
    let person = Person::with_key(&server, &key);
    let hello = json!({ "protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {} });
    let answers = answers_to(
        &person,
        &[
            asks(1, "initialize", hello),
            json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
            asks(2, "tools/list", json!({})),
            calls(3, "why_job_waits", json!({ "job": "train" })),
            calls(4, "balance", json!({ "account": "acme:vision" })),
            calls(5, "balance", json!({})),
            calls(6, "balance", json!({ "account": "acme:nlp", "at": "x" })),
            calls(7, "list_jobs", json!({ "state": "queued", "limit": 5 })),
            calls(8, "grant", json!({})),
            asks(9, "resources/list", json!({})),
            json!("hello"),
        ],
    );
    let ids: Vec<&Value> = answers.iter().map(|answer| &answer["id"]).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5, 6, 7, 8, 9].map(|id| json!(id)).iter().collect::<Vec<_>>());
    assert_eq!(answers[0]["result"]["protocolVersion"], "2025-03-26");
    let tools = answers[1]["result"]["tools"].as_array().expect("tools");
    assert!(
        tools.len() > 10 && tools.iter().all(|tool| tool["annotations"]["readOnlyHint"] == true)
    );
    let text = |answer: &Value| answer["result"]["content"][0]["text"].as_str().map(str::to_owned);
    let why = text(&answers[2]).expect("an answer");
    assert!(why.contains("blockers") && answers[2]["result"]["isError"] == false, "{why}");
    assert!(answers[3]["result"]["isError"] == true, "outside of its scope: {}", answers[3]);
    assert_eq!(answers[4]["error"]["message"], "`account` is missing");
    assert_eq!(answers[5]["error"]["message"], "balance has no parameter `at`");
    assert!(text(&answers[6]).expect("an answer").contains("train"));
    assert_eq!(
        (&answers[7]["error"]["code"], &answers[8]["error"]["code"]),
        (&json!(-32602), &json!(-32601))
    );
}
