//! Text of other users is escaped on a terminal.

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

use bursar_api::terminal::is_obeyed;
use nix::pty::openpty;
use serde_json::json;

use crate::server::Server;

/// Sets the title, clears the screen, rings the bell, reverses text, and forges a line.
const HOSTILE: &str =
    "x\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{7f}\u{8}\u{202e}\r\nforged  1000000";

/// The same as output travels.
const HOSTILE_BASE64: &str = "eBtdMDtvd25lZAcbWzJKwpszMW1/COKArg0KZm9yZ2VkICAxMDAwMDAw";

/// What a command shows on a terminal: standard output and standard error.
fn on_a_terminal(server: &Server, arguments: &[&str]) -> String {
    run_on_a_terminal(server, arguments, true)
}

/// The same, on request without standard error: progress bars command the terminal themselves.
fn run_on_a_terminal(server: &Server, arguments: &[&str], with_errors: bool) -> String {
    let pty = openpty(None, None).expect("a terminal");
    let key = server.data().join("root-key-of-the-test");
    std::fs::write(&key, &server.root).expect("the folder is there");
    let slave = || Stdio::from(pty.slave.try_clone().expect("a descriptor"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_bursar"))
        .args(["--server", &server.url, "--key-file"])
        .arg(&key)
        .args(arguments)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stdout(slave())
        .stderr(if with_errors { slave() } else { Stdio::null() })
        .spawn()
        .expect("the binary is there");
    drop(pty.slave);
    let mut bytes = Vec::new();
    // A terminal whose other end is closed answers with an error.
    let _ = File::from(pty.master).read_to_end(&mut bytes);
    child.wait().expect("it ends");
    String::from_utf8(bytes).expect("text")
}

/// The same; fails if any control character is left.
fn shown(server: &Server, arguments: &[&str]) -> String {
    checked(arguments, on_a_terminal(server, arguments))
}

fn checked(arguments: &[&str], shown: String) -> String {
    let obeyed = shown.replace("\r\n", "\n");
    let obeyed = obeyed.chars().find(|c| is_obeyed(*c) && !matches!(c, '\n' | '\t'));
    assert_eq!(obeyed, None, "{arguments:?}: {shown:?}");
    shown
}

#[tokio::test]
async fn names_and_references_are_escaped_on_a_terminal() {
    let server = Server::start();
    let account = json!({ "id": "acme", "kind": "org", "name": HOSTILE });
    server.call("POST", "/v1/accounts", account).await.expect(201);
    let grant = json!({
        "id": "g", "account": "acme", "amount": "5", "kind": "purchase", "reference": HOSTILE
    });
    server.call("POST", "/v1/grants", grant).await.expect(201);
    let key = json!({ "role": "viewer", "scope": "acme", "name": HOSTILE });
    server.call("POST", "/v1/keys", key).await.expect(201);
    let mut seen = 0;
    for arguments in [
        &["account", "show", "acme"][..],
        &["account", "ls"],
        &["grant", "show", "g"],
        &["grant", "ls"],
        &["key", "ls"],
        &["account", "show", HOSTILE],
        &["api", "GET", "/v1/keys"],
        &["events", "--after", "0", "--count", "2"],
    ] {
        for format in ["table", "csv", "json", "yaml"] {
            let shown = shown(&server, &[arguments, &["-o", format]].concat());
            let forged = shown.lines().any(|line| line.starts_with("forged"));
            assert!(!forged, "{arguments:?} {format}: {shown:?}");
            seen += usize::from(shown.contains("owned"));
        }
    }
    assert!(seen >= 16, "the names were shown {seen} times");
}

#[tokio::test]
async fn exports_are_escaped_on_a_terminal() {
    let server = Server::start();
    let account = json!({ "id": "acme", "kind": "org", "name": HOSTILE });
    server.call("POST", "/v1/accounts", account).await.expect(201);
    let data = server.data().to_str().expect("a plain path").to_owned();
    let arguments = ["admin", "export", "--data", &data];
    let exported = checked(&arguments, run_on_a_terminal(&server, &arguments, false));
    assert!(exported.contains("owned"), "{exported:?}");
}

#[tokio::test]
async fn output_of_jobs_is_escaped_on_a_terminal() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "1000").await;
    server.call("PUT", "/v1/prices/H100", json!({ "per_gpu_hour": "6" })).await.expect(200);
    let node = json!({
        "id": "n1", "region": "default", "cpus": 64, "memory_gib": 512,
        "gpus": [{ "uuid": "GPU-1", "type": "H100", "memory_gib": 80 }]
    });
    let registered = server.call("POST", "/v1/nodes", node).await.expect(201);
    let job = json!({
        "id": "j", "account": "acme", "gpus": { "types": ["H100"], "count": 1 },
        "max_runtime_seconds": 3600, "command": ["true"]
    });
    server.call("POST", "/v1/jobs", job).await.expect(201);
    let incarnation = registered["incarnation"].clone();
    let mut seq = 0;
    let attempt = loop {
        seq += 1;
        let beat = json!({ "incarnation": incarnation, "seq": seq, "attempts": [] });
        let answered = server.call("POST", "/v1/nodes/n1/heartbeat", beat).await.expect(200);
        if let Some(attempt) = answered["orders"][0]["attempt"].as_str() {
            break attempt.to_owned();
        }
    };
    let piece = json!({
        "incarnation": incarnation, "attempt": attempt, "offset": 0, "data": HOSTILE_BASE64
    });
    server.call("POST", "/v1/nodes/n1/logs", piece).await.expect(200);
    assert!(shown(&server, &["logs", "j"]).contains("owned"));
    let obeyed = on_a_terminal(&server, &["logs", "--raw", "j"]);
    assert!(obeyed.contains('\u{1b}'), "with --raw it is unchanged: {obeyed:?}");
}
