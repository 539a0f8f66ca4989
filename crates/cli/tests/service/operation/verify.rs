//! `bursar audit verify` of a server, by its proofs.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::server::Server;

/// Runs a command with the server's root key.
async fn bursar(server: &Server, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    command.args(arguments).args(["--server", &server.url, "--key", &server.root]);
    command.env_clear().env("HOME", "/nowhere");
    let waiting = tokio::task::spawn_blocking(move || command.output());
    waiting.await.expect("no panic").expect("the binary starts")
}

async fn verified(server: &Server, since: &Path) -> Output {
    let since = since.to_str().expect("a plain path");
    bursar(server, &["audit", "verify", "--since", since, "-o", "json"]).await
}

async fn busy_server() -> Server {
    let server = Server::start();
    server.open("acme", "org").await;
    server.grant("grant", "acme", "1000").await;
    server
}

#[tokio::test]
async fn a_server_is_verified_against_an_earlier_checkpoint() {
    let (server, stranger) = (busy_server().await, busy_server().await);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let since = folder.path().join("since.json");
    let checkpoint = bursar(&server, &["audit", "checkpoint", "-o", "json"]).await;
    std::fs::write(&since, &checkpoint.stdout).expect("the folder is ours");
    for number in 0..20 {
        let body = json!({ "id": format!("hold-{number}"), "account": "acme", "amount": "1" });
        server.call("POST", "/v1/holds", body).await.expect(201);
    }
    let output = verified(&server, &since).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let shown: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let earlier: Value = serde_json::from_slice(&checkpoint.stdout).expect("JSON");
    assert_eq!(shown["ok"], true);
    assert_eq!(shown["continues"], earlier["size"]);
    assert_eq!(shown["records_proven"], 16);
    assert!(shown["size"].as_u64() > earlier["size"].as_u64());

    // Another server has another history.
    let foreign = verified(&stranger, &since).await;
    assert_eq!(foreign.status.code(), Some(3), "{}", String::from_utf8_lossy(&foreign.stdout));
    let words = String::from_utf8_lossy(&foreign.stderr).into_owned();
    assert!(words.contains("the signature does not match the trusted key"), "{words}");

    // The fields beside the signature must match the signed form.
    let text = String::from_utf8_lossy(&checkpoint.stdout).replace("\"size\":", "\"size\":1");
    std::fs::write(&since, text).expect("the folder is ours");
    let forged = verified(&server, &since).await;
    assert_eq!(forged.status.code(), Some(3), "{}", String::from_utf8_lossy(&forged.stdout));

    std::fs::write(&since, "{}").expect("the folder is ours");
    let wrong = verified(&server, &since).await;
    assert_eq!(wrong.status.code(), Some(1));
}

#[tokio::test]
async fn without_an_earlier_checkpoint_it_says_what_it_could_not_check() {
    let server = busy_server().await;
    let output = bursar(&server, &["audit", "verify"]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("not checked  balances"), "{text}");
    assert!(text.contains("--public-key"), "{text}");
}
