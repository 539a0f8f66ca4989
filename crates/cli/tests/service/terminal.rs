//! What others chose never commands the terminal on which it is shown.

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

use bursar_api::terminal::is_obeyed;
use nix::pty::openpty;
use serde_json::json;

use crate::server::Server;

/// Sets the title, clears the screen, rings, turns the text around, and forges a line.
const HOSTILE: &str =
    "x\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{7f}\u{8}\u{202e}\r\nforged  1000000";

/// What a command shows on a terminal: standard output and standard error.
fn on_a_terminal(server: &Server, arguments: &[&str]) -> String {
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
        .stderr(slave())
        .spawn()
        .expect("the binary is there");
    drop(pty.slave);
    let mut bytes = Vec::new();
    // A terminal whose other end is closed answers with an error.
    let _ = File::from(pty.master).read_to_end(&mut bytes);
    child.wait().expect("it ends");
    String::from_utf8(bytes).expect("text")
}

#[tokio::test]
async fn names_and_references_of_others_are_shown_and_not_obeyed() {
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
    ] {
        for format in ["table", "csv", "json", "yaml"] {
            let shown = on_a_terminal(&server, &[arguments, &["-o", format]].concat());
            let obeyed = shown.replace("\r\n", "\n");
            let obeyed = obeyed.chars().find(|c| is_obeyed(*c) && !matches!(c, '\n' | '\t'));
            assert_eq!(obeyed, None, "{arguments:?} {format}: {shown:?}");
            let forged = shown.lines().any(|line| line.starts_with("forged"));
            assert!(!forged, "{arguments:?} {format}: {shown:?}");
            seen += usize::from(shown.contains("owned"));
        }
    }
    assert!(seen >= 16, "the names were shown {seen} times");
}
