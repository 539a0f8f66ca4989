//! `bursar login` and `bursar logout`: a session of the browser is handed to the command line.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::server::{Answer, Server};
use crate::sessions::{Browser, sign_in};

fn bursar(contexts: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    command.args(arguments).env_clear().env("BURSAR_CONTEXTS", contexts);
    command
}

fn run(contexts: &Path, arguments: &[&str]) -> Output {
    bursar(contexts, arguments).output().expect("the binary is there")
}

/// The value of a hidden field, or the address that the page leads to.
fn field<'page>(page: &'page str, before: &str) -> &'page str {
    let rest = page.split_once(before).unwrap_or_else(|| panic!("no {before} in {page}")).1;
    rest.split('"').next().expect("it ends")
}

/// Sends the form of the page.
async fn approve(server: &Server, browser: &Browser<'_>, page: &str, csrf: &str) -> Answer {
    let fields = ["port", "state", "challenge"];
    let fields = fields.map(|name| {
        let value = field(page, &format!("name=\"{name}\" value=\""));
        format!("{name}={value}")
    });
    let body = format!("{}&csrf_token={csrf}", fields.join("&"));
    let request = server.client.post(format!("{}/auth/cli", server.url));
    let request = request.header("cookie", &browser.cookie);
    let request = request.header("content-type", "application/x-www-form-urlencoded").body(body);
    crate::server::read(request.send().await.expect("the server is there")).await
}

#[tokio::test]
async fn the_command_line_gets_a_session_of_its_own_that_ends_with_the_key() {
    let server = Server::start();
    server.tree().await;
    let folder = TempDir::new().expect("a temporary folder");
    let contexts = folder.path().join("config.toml");
    let body = json!({ "id": "k", "role": "viewer", "scope": "acme", "name": "Ada" });
    let key = server.call("POST", "/v1/keys", body).await.expect(201)["key"].clone();
    let browser = sign_in(&server, key.as_str().expect("shown once")).await;
    let mut command = bursar(&contexts, &["login", "--no-browser", "--server", &server.url]);
    let mut login = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("starts");
    let mut lines = BufReader::new(login.stdout.take().expect("piped")).lines();
    let url = lines.next().expect("an address").expect("text");
    let path = url.strip_prefix(&server.url).expect("of this server").to_owned();
    // A browser that is not signed in is refused.
    let plain = server.send("GET", &path, Value::Null, "", &[]).await;
    assert_eq!(plain.status, 401, "{}", plain.body);
    let page = browser.get(&path).await.expect(200);
    let page = page.as_str().expect("a page");
    assert!(page.contains("Ada"), "{page}");
    approve(&server, &browser, page, "wrong").await.problem("forbidden");
    let approved = approve(&server, &browser, page, &browser.csrf).await.expect(200);
    let back = field(approved.as_str().expect("a page"), "0;url=").replace("&amp;", "&");
    assert!(back.starts_with("http://127.0.0.1:"), "{back}");
    // What does not carry the state is not the answer.
    let stranger = reqwest::get(back.replace("state=", "state=x")).await.expect("it answers");
    assert_eq!(stranger.status(), 404);
    assert_eq!(reqwest::get(&back).await.expect("it answers").status(), 200);
    let said = lines.next().expect("it says so").expect("text");
    assert_eq!(said, format!("signed in to {} as k: viewer of acme", server.url));
    assert!(login.wait().expect("it ends").success());
    // A code is redeemed once.
    let code = back.split("code=").nth(1).and_then(|rest| rest.split('&').next());
    let body = json!({ "code": code, "verifier": "x" });
    server.send("POST", "/auth/token", body, "", &[]).await.problem("unauthenticated");
    let listed = run(&contexts, &["account", "ls", "-o", "json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    assert!(listed.to_string().contains("acme:nlp") && !listed.to_string().contains("umbra"));
    // The token is that of a session: it needs no X-CSRF-Token and ends with the key.
    let saved = std::fs::read_to_string(&contexts).expect("it was saved");
    let token = field(&saved, "key = \"").to_owned();
    assert!(token.starts_with("bus_"), "{token}");
    let session = server.send("GET", "/v1/session", Value::Null, &token, &[]).await.expect(200);
    assert_eq!((&session["role"], &session["actor"]), (&json!("viewer"), &json!("k")));
    let ended = run(&contexts, &["logout"]);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let after = server.send("GET", "/v1/session", Value::Null, &token, &[]).await;
    after.problem("unauthenticated");
    assert!(!std::fs::read_to_string(&contexts).expect("it is there").contains("bus_"));
    browser.get("/v1/session").await.expect(200);
    let again = run(&contexts, &["logout"]);
    assert_eq!(again.status.code(), Some(2), "nothing is saved");
}

#[tokio::test]
async fn a_code_needs_its_text_and_is_valid_for_a_minute() {
    let server = Server::start();
    let browser = sign_in(&server, &server.root).await;
    let challenge = "0".repeat(64);
    let path = format!("/auth/cli?port=9&state=s&challenge={challenge}");
    let page = browser.get(&path).await.expect(200);
    let page = page.as_str().expect("a page");
    let code = async || {
        let approved = approve(&server, &browser, page, &browser.csrf).await.expect(200);
        let back = field(approved.as_str().expect("a page"), "code=").to_owned();
        back.split('&').next().expect("a code").to_owned()
    };
    let redeem = async |code: String, verifier: &str| {
        let body = json!({ "code": code, "verifier": verifier });
        server.send("POST", "/auth/token", body, "", &[]).await
    };
    redeem(code().await, "another").await.problem("unauthenticated");
    let late = code().await;
    server.advance(61).await;
    redeem(late, "another").await.problem("unauthenticated");
    for wrong in ["port=0&state=s", "port=9&state=%3Cb%3E", "port=99999&state=s"] {
        let path = format!("/auth/cli?{wrong}&challenge={challenge}");
        browser.get(&path).await.problem("invalid_field");
    }
    browser.get("/auth/cli?port=9&state=s&challenge=x").await.problem("invalid_field");
}
