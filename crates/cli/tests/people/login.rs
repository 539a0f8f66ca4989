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

/// A browser that is signed in with the key `k` of a viewer of `acme`.
async fn of_a_viewer(server: &Server) -> Browser<'_> {
    server.tree().await;
    let body = json!({ "id": "k", "role": "viewer", "scope": "acme", "name": "Ada" });
    let key = server.call("POST", "/v1/keys", body).await.expect(201)["key"].clone();
    sign_in(server, key.as_str().expect("shown once")).await
}

#[tokio::test]
async fn the_command_line_gets_a_session_of_its_own_that_ends_with_the_key() {
    let server = Server::start();
    let browser = of_a_viewer(&server).await;
    let folder = TempDir::new().expect("a temporary folder");
    let contexts = folder.path().join("config.toml");
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

/// Sends the form that approves or refuses a code.
async fn decide(
    server: &Server,
    browser: &Browser<'_>,
    (decision, code): (&str, &str),
    csrf: &str,
) -> Answer {
    let request = server.client.post(format!("{}/auth/device", server.url));
    let request = request.header("cookie", &browser.cookie);
    let request = request.header("content-type", "application/x-www-form-urlencoded");
    let request = request.body(format!("code={code}&decision={decision}&csrf_token={csrf}"));
    crate::server::read(request.send().await.expect("the server is there")).await
}

async fn approve_device(server: &Server, browser: &Browser<'_>, code: &str) -> Answer {
    decide(server, browser, ("approve", code), &browser.csrf).await
}

/// A new code, as a command line without a name asks for it.
async fn begin(server: &Server) -> Value {
    server.send("POST", "/auth/device/code", Value::Null, "", &[]).await.expect(201)
}

async fn redeem_device(server: &Server, begun: &Value) -> Answer {
    let body = json!({ "device_code": begun["device_code"] });
    server.send("POST", "/auth/device/token", body, "", &[]).await
}

fn code_of(begun: &Value) -> &str {
    begun["user_code"].as_str().expect("a code")
}

#[tokio::test]
async fn a_machine_without_a_browser_is_signed_in_by_a_code_that_a_person_approves_elsewhere() {
    let server = Server::start();
    let browser = of_a_viewer(&server).await;
    let folder = TempDir::new().expect("a temporary folder");
    let contexts = folder.path().join("config.toml");
    let mut command = bursar(&contexts, &["login", "--device", "--server", &server.url]);
    command.env("USER", "gr<b>ace");
    let mut login = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("starts");
    let mut lines = BufReader::new(login.stdout.take().expect("piped")).lines();
    let url = lines.next().expect("an address").expect("text");
    let path = url.strip_prefix(&server.url).expect("of this server").to_owned();
    let code = path.strip_prefix("/auth/device?code=").expect("with its code").to_owned();
    let plain = server.send("GET", &path, Value::Null, "", &[]).await;
    assert_eq!(plain.status, 401, "{}", plain.body);
    let page = browser.get(&path).await.expect(200);
    let page = page.as_str().expect("a page");
    assert!(page.contains("Ada") && page.contains(&code), "{page}");
    // Where it came from, what it calls itself, since when, and what it may do.
    for shown in [
        "127.0.0.1, the same address as this browser",
        "grbace@",
        "(not verified)",
        "2020-01-01T00:00:00.000Z, less than a minute ago",
        "Ada: viewer of acme",
        "2020-01-02T00:00:00.000Z",
    ] {
        assert!(page.contains(shown), "{shown} in {page}");
    }
    decide(&server, &browser, ("approve", &code), "wrong").await.problem("forbidden");
    let unknown = approve_device(&server, &browser, "BBBB-BBBB").await;
    assert_eq!(unknown.status, 404, "{}", unknown.body);
    approve_device(&server, &browser, &code).await.expect(200);
    let said = lines.next().expect("it says so").expect("text");
    assert_eq!(said, format!("signed in to {} as k: viewer of acme", server.url));
    assert!(login.wait().expect("it ends").success());
    let again = approve_device(&server, &browser, &code).await;
    assert_eq!(again.status, 404, "a code is approved once");
    let listed = run(&contexts, &["account", "ls", "-o", "json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    assert!(listed.to_string().contains("acme:nlp") && !listed.to_string().contains("umbra"));
}

#[tokio::test]
async fn a_device_code_ends_with_its_time_and_with_the_session_that_approved_it() {
    let server = Server::start();
    let begun = begin(&server).await;
    assert_eq!(redeem_device(&server, &begun).await.expect(200), json!({ "pending": true }));
    // What the person sees is not what the command line keeps.
    let seen = json!({ "device_code": begun["user_code"] });
    redeem_device(&server, &seen).await.problem("unauthenticated");
    server.advance(601).await;
    redeem_device(&server, &begun).await.problem("unauthenticated");
    let browser = sign_in(&server, &server.root).await;
    let begun = begin(&server).await;
    approve_device(&server, &browser, code_of(&begun)).await.expect(200);
    browser.change("DELETE", "/v1/session", Value::Null).await.expect(204);
    redeem_device(&server, &begun).await.problem("unauthenticated");
    redeem_device(&server, &begun).await.problem("unauthenticated");
    // One address has so many codes under way, and not more.
    let mut refused = 0;
    for _ in 0..25 {
        let answer = server.send("POST", "/auth/device/code", Value::Null, "", &[]).await;
        refused += u32::from(answer.status == 429);
    }
    assert!((5..=6).contains(&refused), "{refused}");
}

#[tokio::test]
async fn revoking_a_key_cancels_the_codes_that_it_approved() {
    let server = Server::start();
    server.tree().await;
    let body = json!({ "id": "k", "role": "viewer", "scope": "acme", "name": "Ada" });
    let key = server.call("POST", "/v1/keys", body).await.expect(201)["key"].clone();
    let browser = sign_in(&server, key.as_str().expect("shown once")).await;
    let begun = begin(&server).await;
    approve_device(&server, &browser, code_of(&begun)).await.expect(200);
    let challenge = bursar_server::auth::hash("v").map(|byte| format!("{byte:02x}")).concat();
    let path = format!("/auth/cli?port=9&state=s&challenge={challenge}");
    let page = browser.get(&path).await.expect(200);
    let page = page.as_str().expect("a page");
    let approved = approve(&server, &browser, page, &browser.csrf).await.expect(200);
    let code = field(approved.as_str().expect("a page"), "code=").to_owned();
    let code = code.split('&').next().expect("a code");
    server.call("DELETE", "/v1/keys/k", Value::Null).await.expect(204);
    redeem_device(&server, &begun).await.problem("unauthenticated");
    let body = json!({ "code": code, "verifier": "v" });
    server.send("POST", "/auth/token", body, "", &[]).await.problem("unauthenticated");
}

#[tokio::test]
async fn a_person_refuses_a_code_that_was_sent_by_another() {
    let server = Server::start();
    let browser = sign_in(&server, &server.root).await;
    let hostile = json!({ "client": "<b>you</b>" });
    let refused = server.send("POST", "/auth/device/code", hostile, "", &[]).await;
    refused.problem("invalid_field");
    let named = json!({ "client": "mallory@elsewhere" });
    let begun = server.send("POST", "/auth/device/code", named, "", &[]).await.expect(201);
    server.advance(130).await;
    let page = browser.get(begun["path"].as_str().expect("a path")).await.expect(200);
    let page = page.as_str().expect("a page");
    assert!(page.contains("mallory@elsewhere") && page.contains("2 minutes ago"), "{page}");
    let code = code_of(&begun);
    decide(&server, &browser, ("refuse", code), "wrong").await.problem("forbidden");
    let unclear = decide(&server, &browser, ("perhaps", code), &browser.csrf).await;
    unclear.problem("invalid_field");
    decide(&server, &browser, ("refuse", code), &browser.csrf).await.expect(200);
    let late = approve_device(&server, &browser, code).await;
    assert_eq!(late.status, 404, "it is decided");
    redeem_device(&server, &begun).await.problem("forbidden");
    redeem_device(&server, &begun).await.problem("unauthenticated");
}

#[tokio::test]
async fn addresses_are_not_compared_where_they_may_be_those_of_a_proxy() {
    let plain = Server::start();
    let proxied = "public_url = \"http://127.0.0.1:9\"\n";
    let proxied = Server::configured(proxied, &["--clock", "manual"]);
    for (server, expected) in [(plain, "the same address as this"), (proxied, "of a proxy")] {
        let browser = sign_in(&server, &server.root).await;
        let begun = begin(&server).await;
        let page = browser.get(begun["path"].as_str().expect("a path")).await.expect(200);
        assert!(page.as_str().is_some_and(|page| page.contains(expected)), "{page}");
    }
}

#[tokio::test]
async fn wrong_codes_are_counted_and_further_ones_wait() {
    let server = Server::start();
    server.tree().await;
    let guesser = sign_in(&server, &server.key("viewer", "acme").await).await;
    let other = sign_in(&server, &server.key("viewer", "umbra").await).await;
    let begun = begin(&server).await;
    let mut statuses = Vec::new();
    for number in 0..12 {
        // Codes are tried by opening the page and by sending the form.
        let answer = match number % 2 {
            0 => guesser.get("/auth/device?code=BBBB-BBBB").await,
            _ => approve_device(&server, &guesser, "CCCC-CCCC").await,
        };
        statuses.push(answer.status);
    }
    assert_eq!(statuses[..10], [404; 10]);
    assert_eq!(statuses[10..], [429; 2]);
    // Also the right code, until the minute is over.
    let late = approve_device(&server, &guesser, code_of(&begun)).await;
    assert_eq!(late.status, 429, "{}", late.body);
    assert!(
        late.headers.contains_key("retry-after") && late.body.to_string().contains("wrong codes")
    );
    // Others are not affected, and without a code nothing is counted.
    guesser.get("/auth/device").await.expect(200);
    approve_device(&server, &other, code_of(&begun)).await.expect(200);
}

#[tokio::test]
async fn a_command_line_that_asks_too_often_waits_longer_and_loses_nothing() {
    let server = Server::start();
    let browser = sign_in(&server, &server.root).await;
    let begun = begin(&server).await;
    redeem_device(&server, &begun).await.expect(200);
    let early = redeem_device(&server, &begun).await;
    assert_eq!(early.headers.get("retry-after").and_then(|value| value.to_str().ok()), Some("7"));
    early.problem("rate_limited");
    approve_device(&server, &browser, code_of(&begun)).await.expect(200);
    redeem_device(&server, &begun).await.problem("rate_limited");
}

#[tokio::test]
async fn signing_out_everywhere_ends_browsers_and_command_lines_of_one_key_alone() {
    let server = Server::start();
    server.tree().await;
    let key = server.key("viewer", "acme").await;
    let (first, second) = (sign_in(&server, &key).await, sign_in(&server, &key).await);
    let other = sign_in(&server, &server.key("viewer", "acme").await).await;
    let handed = begin(&server).await;
    approve_device(&server, &first, code_of(&handed)).await.expect(200);
    let handed = redeem_device(&server, &handed).await.expect(200);
    let token = handed["signed_in"]["token"].as_str().expect("a token").to_owned();
    let waiting = begin(&server).await;
    approve_device(&server, &second, code_of(&waiting)).await.expect(200);
    let path = "/v1/session?everywhere=true";
    let cookie = [("cookie", second.cookie.as_str())];
    server.send("DELETE", path, Value::Null, "", &cookie).await.problem("forbidden");
    second.change("DELETE", path, Value::Null).await.expect(204);
    first.get("/v1/session").await.problem("unauthenticated");
    second.get("/v1/session").await.problem("unauthenticated");
    let by_token = server.send("GET", "/v1/session", Value::Null, &token, &[]).await;
    by_token.problem("unauthenticated");
    redeem_device(&server, &waiting).await.problem("unauthenticated");
    other.get("/v1/session").await.expect(200);
    // The key itself is valid, and ends the sessions that it began too.
    let again = sign_in(&server, &key).await;
    server.send("DELETE", path, Value::Null, &key, &[]).await.expect(204);
    again.get("/v1/session").await.problem("unauthenticated");
}
