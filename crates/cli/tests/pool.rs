//! `bursar pool` as a process: lines in, lines out.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use serde_json::{Value, json};

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    command.arg("pool").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Feeds a whole input and waits for the end.
fn feed(input: &str) -> Output {
    let mut child = command().spawn().expect("the binary starts");
    let mut stdin = child.stdin.take().expect("standard input is piped");
    stdin.write_all(input.as_bytes()).expect("the pool reads");
    drop(stdin);
    child.wait_with_output().expect("the pool ends")
}

/// The body of the only reply to an input, as text and as JSON.
fn only_body(input: &str) -> (String, Value) {
    let output = feed(input);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("replies are UTF-8");
    assert_eq!(text.lines().count(), 1, "{text}");
    let message: Value = serde_json::from_str(&text).expect("replies are JSON");
    (text, message["body"].clone())
}

/// A pool process with an interactive client.
struct Conversation {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    next: i64,
}

impl Conversation {
    fn start() -> Conversation {
        let mut child = command().spawn().expect("the binary starts");
        let stdin = child.stdin.take().expect("standard input is piped");
        let stdout = BufReader::new(child.stdout.take().expect("standard output is piped"));
        Conversation { child, stdin, stdout, next: 1 }
    }

    fn say(&mut self, src: &str, body: Value) -> i64 {
        let mut body = body;
        if body.get("msg_id").is_none() {
            body["msg_id"] = json!(self.next);
            self.next += 1;
        }
        let message = json!({"src": src, "dest": "resources", "body": body});
        writeln!(self.stdin, "{message}").expect("the pool reads");
        body["msg_id"].as_i64().expect("a number")
    }

    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("the pool answers");
        serde_json::from_str(&line).expect("replies are JSON")
    }

    fn ask(&mut self, src: &str, body: Value) -> Value {
        let msg_id = self.say(src, body);
        let reply = self.hear();
        assert_eq!((&reply["src"], &reply["dest"]), (&json!("resources"), &json!(src)));
        assert_eq!(reply["body"]["in_reply_to"], json!(msg_id));
        reply["body"].clone()
    }

    fn allocate(&mut self, src: &str, requirements: &[(&str, u64)]) -> Value {
        self.ask(src, allocate(requirements))
    }

    fn release(&mut self, src: &str, allocated: &Value) -> Value {
        let id = &allocated["allocation_id"];
        self.ask(src, json!({"type": "release", "allocation_id": id, "job_status": "completed"}))
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        // A test that failed must not leave the process behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn allocate(requirements: &[(&str, u64)]) -> Value {
    let requirements: Vec<Value> =
        requirements.iter().map(|(name, amount)| json!({"type": name, "amount": amount})).collect();
    json!({"type": "allocate", "requirements": requirements})
}

const ALLOCATE: &str = r#"{
"src": "scheduler",
"dest": "resources",
"body": {
"type": "allocate",
"msg_id": 1,
"requirements": [
{
"type": "cpu",
"amount": 2
},
{
"type": "memory",
"amount": 4
}
]
}
}"#;

const QUEUE: &str = r#"{
"src": "scheduler",
"dest": "resources",
"body": {
"type": "allocate",
"msg_id": 1,
"requirements": [
{
"type": "gpu",
"amount": 4
}
]
}
}"#;

#[test]
fn sample_allocate_resources_for_job() {
    let expected = r#"{"type": "allocated", "in_reply_to": 1, "allocation_id": ".*", "resources": {"cpu": 2, "memory": 4}}"#;
    let one_line = ALLOCATE.replace('\n', "");
    for input in [ALLOCATE, one_line.as_str()] {
        let (text, mut body) = only_body(input);
        let id = body["allocation_id"].as_str().expect("an id").to_string();
        assert_eq!(id.len(), 36, "{id} is a UUID");
        body["allocation_id"] = json!(".*");
        assert_eq!(body, serde_json::from_str::<Value>(expected).expect("JSON"));
        // In the order of the sample, for readers that compare text.
        let expected = expected.replace(".*", &id).replace(' ', "");
        assert!(text.replace(' ', "").contains(&expected), "{text}");
    }
}

#[test]
fn sample_queue_job_when_resources_unavailable() {
    let expected = r#"{"type": "queued", "in_reply_to": 1, "reason": "Insufficient resources", "available": {"gpu": 2}, "required": 4}"#;
    let one_line = QUEUE.replace('\n', "");
    for input in [QUEUE, one_line.as_str()] {
        let (text, body) = only_body(input);
        assert_eq!(body, serde_json::from_str::<Value>(expected).expect("JSON"));
        assert!(text.replace(' ', "").contains(&expected.replace(' ', "")), "{text}");
    }
}

#[test]
fn sample_submit_three_jobs_with_a_cap_of_two() {
    let input = r#"{"src": "c", "dest": "n", "body": {"type": "submit_job", "msg_id": 4, "category": "heavy", "concurrency_limit": 2, "jobs": 3}}"#;
    let expected =
        r#"{"type": "jobs_submitted", "in_reply_to": 4, "queued": 1, "running": 2, "waiting": 1}"#;
    assert_eq!(only_body(input).1, serde_json::from_str::<Value>(expected).expect("JSON"));
}

#[test]
fn a_release_says_what_it_freed_and_frees_it() {
    let mut pool = Conversation::start();
    let held = pool.allocate("a", &[("cpu", 8), ("memory", 4)]);
    let refused = pool.allocate("b", &[("cpu", 9)]);
    assert_eq!(refused["available"], json!({"cpu": 0}));
    let released = pool.release("a", &held);
    assert_eq!(released["type"], "released");
    assert_eq!(released["allocation_id"], held["allocation_id"]);
    assert_eq!(released["resources_freed"], json!({"cpu": 8, "memory": 4}));
    assert_eq!(pool.allocate("b", &[("cpu", 8)])["type"], "allocated");
}

#[test]
fn a_queued_request_is_granted_to_its_sender_after_a_release() {
    let mut pool = Conversation::start();
    let held = pool.allocate("a", &[("gpu", 2)]);
    let waiting = pool.say("b", allocate(&[("gpu", 1), ("cpu", 1)]));
    assert_eq!(pool.hear()["body"]["type"], "queued");
    assert_eq!(pool.release("a", &held)["type"], "released");
    let later = pool.hear();
    assert_eq!((&later["src"], &later["dest"]), (&json!("resources"), &json!("b")));
    assert_eq!(later["body"]["type"], "allocated");
    assert_eq!(later["body"]["in_reply_to"], json!(waiting));
    assert_eq!(later["body"]["resources"], json!({"gpu": 1, "cpu": 1}));
    assert_eq!(pool.release("b", &later["body"])["resources_freed"], json!({"gpu": 1, "cpu": 1}));
}

#[test]
fn requests_are_served_first_come_first_served_per_resource() {
    let mut pool = Conversation::start();
    let held = pool.allocate("a", &[("gpu", 1)]);
    assert_eq!(pool.allocate("b", &[("gpu", 2)])["type"], "queued");
    // A GPU is free, but it is the first in line who waits for it.
    assert_eq!(pool.allocate("c", &[("gpu", 1)])["type"], "queued");
    assert_eq!(pool.allocate("d", &[("cpu", 8)])["type"], "allocated");
    pool.release("a", &held);
    let first = pool.hear();
    assert_eq!(first["dest"], "b");
    pool.release("b", &first["body"]);
    assert_eq!(pool.hear()["dest"], "c");
}

#[test]
fn a_request_larger_than_the_pool_never_blocks_anyone() {
    let mut pool = Conversation::start();
    let never = pool.allocate("a", &[("gpu", 3), ("cpu", 9), ("memory", 1)]);
    assert_eq!(never["available"], json!({"gpu": 2, "cpu": 8}));
    assert_eq!(never["required"], json!({"gpu": 3, "cpu": 9}));
    assert_eq!(pool.allocate("b", &[("tpu", 1)])["available"], json!({"tpu": 0}));
    let held = pool.allocate("c", &[("gpu", 2), ("cpu", 8)]);
    assert_eq!(held["type"], "allocated");
    pool.release("c", &held);
    // No other client gets a message: the next line is the reply to the next request.
    assert_eq!(pool.allocate("d", &[("gpu", 1)])["type"], "allocated");
}

#[test]
fn a_retry_is_answered_alike_and_has_no_second_effect() {
    let mut pool = Conversation::start();
    let mut request = allocate(&[("gpu", 1)]);
    request["msg_id"] = json!(77);
    let first = pool.ask("a", request.clone());
    assert_eq!(pool.ask("a", request.clone()), first);
    // The same number from someone else is another request.
    assert_ne!(pool.ask("b", request)["allocation_id"], first["allocation_id"]);
    let release = json!({"type": "release", "msg_id": 78, "allocation_id": first["allocation_id"]});
    let released = pool.ask("a", release.clone());
    assert_eq!(pool.ask("a", release), released);
    let mut request = allocate(&[("gpu", 2)]);
    request["msg_id"] = json!(79);
    let queued = pool.ask("a", request.clone());
    assert_eq!(queued["type"], "queued");
    assert_eq!(pool.ask("a", request), queued);
    let submit = json!({"type": "submit_job", "msg_id": 80, "category": "x", "concurrency_limit": 1, "jobs": 2});
    let submitted = pool.ask("a", submit.clone());
    assert_eq!(pool.ask("a", submit), submitted);
}

#[test]
fn a_retry_of_a_request_that_was_granted_since_gets_the_grant() {
    let mut pool = Conversation::start();
    let held = pool.allocate("a", &[("gpu", 2)]);
    let mut request = allocate(&[("gpu", 1)]);
    request["msg_id"] = json!(9);
    assert_eq!(pool.ask("b", request.clone())["type"], "queued");
    pool.release("a", &held);
    let granted = pool.hear()["body"].clone();
    assert_eq!(pool.ask("b", request), granted);
}

#[test]
fn finished_jobs_make_room_for_waiting_ones() {
    let mut pool = Conversation::start();
    pool.ask(
        "a",
        json!({"type": "submit_job", "category": "h", "concurrency_limit": 2, "jobs": 5}),
    );
    let finished = pool.ask("a", json!({"type": "finish_job", "category": "h", "jobs": 1}));
    assert_eq!(finished["type"], "jobs_finished");
    assert_eq!([&finished["finished"], &finished["running"], &finished["waiting"]], [1, 2, 2]);
    let more = json!({"type": "submit_job", "category": "h", "concurrency_limit": 3, "jobs": 1});
    let more = pool.ask("a", more);
    assert_eq!([&more["queued"], &more["running"], &more["waiting"]], [1, 3, 2]);
}

#[test]
fn errors_carry_their_codes() {
    let mut pool = Conversation::start();
    for (body, code) in [
        (json!({"type": "dance"}), 10),
        (json!({}), 12),
        (json!({"type": "allocate"}), 12),
        (json!({"type": "allocate", "requirements": []}), 12),
        (json!({"type": "allocate", "requirements": [{"type": "gpu", "amount": -1}]}), 12),
        (json!({"type": "allocate", "requirements": [{"type": "gpu", "amount": 1.5}]}), 12),
        (json!({"type": "allocate", "requirements": [{"type": "gpu", "amount": 0}]}), 12),
        (json!({"type": "submit_job", "category": "h", "jobs": 3}), 12),
        (json!({"type": "release"}), 12),
        (json!({"type": "release", "allocation_id": "alloc-123"}), 20),
        (json!({"type": "finish_job", "category": "unheard of", "jobs": 1}), 20),
    ] {
        let reply = pool.ask("a", body.clone());
        assert_eq!((&reply["type"], &reply["code"]), (&json!("error"), &json!(code)), "{body}");
        assert!(reply["text"].as_str().is_some_and(|text| !text.is_empty()));
    }
    let message = json!({"src": "a", "dest": "resources", "body": {"type": "init"}});
    writeln!(pool.stdin, "{message}").expect("the pool reads");
    let reply = pool.hear();
    assert_eq!((&reply["dest"], &reply["body"]["code"]), (&json!("a"), &json!(12)));
}

#[test]
fn a_line_that_is_not_json_goes_to_standard_error_and_the_next_is_answered() {
    let input = format!("what is this\n\n{}\n", QUEUE.replace('\n', ""));
    let output = feed(&input);
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stderr).contains("what is this"));
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 1);
}

#[test]
fn resources_are_named_on_the_command_line() {
    let mut child = command().args(["--resource", "tpu=3"]).spawn().expect("the binary starts");
    let mut stdin = child.stdin.take().expect("standard input is piped");
    for (msg_id, resource) in [(1, "tpu"), (2, "gpu")] {
        let mut body = allocate(&[(resource, 3)]);
        body["msg_id"] = json!(msg_id);
        writeln!(stdin, "{}", json!({"src": "a", "dest": "b", "body": body})).expect("it reads");
    }
    drop(stdin);
    let output = child.wait_with_output().expect("the pool ends");
    let replies = String::from_utf8(output.stdout).expect("replies are UTF-8");
    let types: Vec<Value> = replies
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["body"]["type"].clone())
        .collect();
    assert_eq!(types, ["allocated", "queued"]);
    let wrong = command().args(["--resource", "gpu=two"]).output().expect("the binary starts");
    assert_eq!(wrong.status.code(), Some(2));
}
