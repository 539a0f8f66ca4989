//! Sessions: a cookie in place of a key, authorised exactly like the key.

use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::server::{Answer, Server};

/// A signed-in browser.
pub(crate) struct Browser<'server> {
    server: &'server Server,
    /// The cookie as `name=value`.
    pub(crate) cookie: String,
    pub(crate) csrf: String,
    /// The answer to the sign-in.
    pub(crate) said: Value,
}

/// The only cookie that an answer sets.
pub(crate) fn set_cookie(answer: &Answer) -> String {
    let mut all = answer.headers.get_all("set-cookie").iter();
    let one = all.next().expect("a cookie is set").to_str().expect("ascii").to_owned();
    assert!(all.next().is_none(), "more than one cookie");
    one
}

async fn try_sign_in(server: &Server, key: &str) -> Answer {
    server.send("POST", "/v1/session", json!({ "key": key }), "", &[]).await
}

pub(crate) async fn sign_in<'server>(server: &'server Server, key: &str) -> Browser<'server> {
    let answer = try_sign_in(server, key).await;
    let set = set_cookie(&answer);
    let said = answer.expect(201);
    let cookie = set.split(';').next().expect("a first part").to_owned();
    let csrf = said["csrf_token"].as_str().expect("a token").to_owned();
    Browser { server, cookie, csrf, said }
}

impl Browser<'_> {
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.server.send("GET", path, Value::Null, "", &[("cookie", &self.cookie)]).await
    }

    /// A change, with the token.
    pub(crate) async fn change(&self, method: &str, path: &str, body: Value) -> Answer {
        let headers = [("cookie", self.cookie.as_str()), ("x-csrf-token", &self.csrf)];
        self.server.send(method, path, body, "", &headers).await
    }

    /// A stream of events, once it has begun.
    async fn stream(&self) -> reqwest::Response {
        let url = format!("{}/v1/events", self.server.url);
        let request = self.server.client.get(url).header("cookie", &self.cookie);
        let response = request.send().await.expect("the server is there");
        assert_eq!(response.status(), 200);
        response
    }
}

/// All that is left of a stream, once the server ends it.
async fn rest(stream: reqwest::Response) -> String {
    let mut pieces = stream.bytes_stream();
    let mut text = String::new();
    while let Some(Ok(piece)) = pieces.next().await {
        text.push_str(&String::from_utf8_lossy(&piece));
    }
    text
}

#[tokio::test]
async fn a_session_has_a_strict_cookie_and_its_keys_role_and_scope() {
    let server = Server::start();
    server.tree().await;
    let key = server.key("submitter", "acme:nlp").await;
    let answer = try_sign_in(&server, &key).await;
    let set = set_cookie(&answer);
    for part in ["; HttpOnly", "; SameSite=Strict", "; Path=/", "; Max-Age=86400"] {
        assert!(set.contains(part), "{set}");
    }
    // On loopback without TLS the cookie must work without it.
    assert!(!set.contains("Secure") && !set.contains("Domain"), "{set}");
    assert!(!set.contains(&key), "the cookie does not carry the key");
    let body = answer.expect(201);
    assert_eq!((&body["role"], &body["scope"]), (&json!("submitter"), &json!("acme:nlp")));
    assert_eq!(body["expires_at"], "2020-01-02T00:00:00.000Z");
    let browser = sign_in(&server, &key).await;
    let shown = browser.get("/v1/session").await.expect(200);
    assert_eq!(shown, browser.said);
    browser.get("/v1/accounts/acme:nlp").await.expect(200);
    browser.get("/v1/accounts/acme").await.problem("not_found");
    browser.get("/v1/keys").await.problem("forbidden");
    // With a key the same path says what the key may do.
    let plain = server.send("GET", "/v1/session", Value::Null, &key, &[]).await.expect(200);
    assert_eq!((&plain["role"], &plain["csrf_token"]), (&json!("submitter"), &Value::Null));
    let root = sign_in(&server, &server.root).await;
    assert_eq!((&root.said["scope"], &root.said["actor"]), (&json!("*"), &json!("root")));
}

#[tokio::test]
async fn a_change_with_a_session_needs_its_token_and_a_page_of_this_server() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "10").await;
    let key = server.key("submitter", "acme").await;
    let browser = sign_in(&server, &key).await;
    let other = sign_in(&server, &key).await;
    let charge = json!({ "id": "c", "account": "acme", "amount": "1" });
    let tokens = [None, Some(""), Some("wrong"), Some(other.csrf.as_str())];
    for token in tokens {
        let mut headers = vec![("cookie", browser.cookie.as_str())];
        headers.extend(token.map(|token| ("x-csrf-token", token)));
        let refused = server.send("POST", "/v1/charges", charge.clone(), "", &headers).await;
        let refused = refused.problem("forbidden");
        assert!(refused["detail"].as_str().is_some_and(|text| text.contains("X-CSRF-Token")));
        // Also through the router, and for signing out.
        let path = "/v1/accounts/acme/freeze";
        server.send("POST", path, json!({}), "", &headers).await.problem("forbidden");
        server.send("DELETE", "/v1/session", Value::Null, "", &headers).await.problem("forbidden");
    }
    let stolen = [
        ("cookie", browser.cookie.as_str()),
        ("x-csrf-token", browser.csrf.as_str()),
        ("sec-fetch-site", "cross-site"),
    ];
    server.send("POST", "/v1/charges", charge.clone(), "", &stolen).await.problem("forbidden");
    let foreign = [("sec-fetch-site", "same-site")];
    let body = json!({ "key": key });
    server.send("POST", "/v1/session", body, "", &foreign).await.problem("forbidden");
    browser.get("/v1/charges/c").await.problem("not_found");
    browser.change("POST", "/v1/charges", charge).await.expect(201);
    let audit = server.get("/v1/audit?account=acme").await;
    let actor = &browser.said["actor"];
    assert!(audit["data"].as_array().expect("records").iter().any(|one| one["actor"] == *actor));
    // A key in the header counts alone, even a wrong one.
    let headers = [("cookie", browser.cookie.as_str())];
    let wrong = server.send("GET", "/v1/accounts/acme", Value::Null, "bur_x_y", &headers).await;
    wrong.problem("unauthenticated");
}

#[tokio::test]
async fn signing_out_and_in_again_ends_the_earlier_session() {
    let server = Server::start();
    let browser = sign_in(&server, &server.root).await;
    let stream = browser.stream().await;
    let out = browser.change("DELETE", "/v1/session", Value::Null).await;
    assert!(set_cookie(&out).contains("Max-Age=0"));
    out.expect(204);
    browser.get("/v1/accounts").await.problem("unauthenticated");
    assert!(rest(stream).await.contains("event: problem"), "the stream has ended");
    let first = sign_in(&server, &server.root).await;
    let headers = [("cookie", first.cookie.as_str())];
    let again = json!({ "key": server.root });
    server.send("POST", "/v1/session", again, "", &headers).await.expect(201);
    first.get("/v1/accounts").await.problem("unauthenticated");
    // Without a session there is nothing to end.
    server.call("DELETE", "/v1/session", Value::Null).await.expect(204);
    // An unknown cookie is answered like no key.
    let headers = [("cookie", "bursar_session_1=x")];
    server.send("GET", "/v1/accounts", Value::Null, "", &headers).await.problem("unauthenticated");
}

#[tokio::test]
async fn a_session_ends_when_it_is_idle_and_at_its_latest() {
    let server = Server::configured(
        "[sessions]\nidle_seconds = 100\nmax_seconds = 250\n",
        &["--clock", "manual"],
    );
    let browser = sign_in(&server, &server.root).await;
    assert_eq!(browser.said["idle_seconds"], 100);
    for _ in 0..2 {
        server.advance(100).await;
        browser.get("/v1/session").await.expect(200);
    }
    let stream = browser.stream().await;
    server.advance(51).await;
    browser.get("/v1/session").await.problem("unauthenticated");
    assert!(rest(stream).await.contains("unauthenticated"));
    let idle = sign_in(&server, &server.root).await;
    let stream = idle.stream().await;
    server.advance(101).await;
    assert!(rest(stream).await.contains("unauthenticated"), "an idle stream ends too");
    idle.get("/v1/session").await.problem("unauthenticated");
    // No session outlives its key.
    let body = json!({
        "role": "viewer", "scope": "*", "name": "n", "expires_at": "2020-01-01T00:06:00Z"
    });
    let key = server.call("POST", "/v1/keys", body).await.expect(201);
    let short = sign_in(&server, key["key"].as_str().expect("shown once")).await;
    assert_eq!(short.said["expires_at"], "2020-01-01T00:06:00.000Z");
    server.advance(10).await;
    short.get("/v1/session").await.problem("unauthenticated");
}

#[tokio::test]
async fn what_a_page_reads_by_itself_does_not_keep_its_session() {
    let server = Server::configured("[sessions]\nidle_seconds = 100\n", &["--clock", "manual"]);
    let browser = sign_in(&server, &server.root).await;
    let quiet = [("cookie", browser.cookie.as_str()), ("bursar-background", "true")];
    let refresh = async || server.send("GET", "/v1/accounts", Value::Null, "", &quiet).await;
    server.advance(60).await;
    refresh().await.expect(200);
    server.advance(60).await;
    refresh().await.problem("unauthenticated");
    browser.get("/v1/session").await.problem("unauthenticated");
}

#[tokio::test]
async fn revoking_a_key_ends_its_sessions_and_their_streams() {
    let server = Server::start();
    server.tree().await;
    let body = json!({ "id": "k", "role": "viewer", "scope": "acme", "name": "n" });
    let made = server.call("POST", "/v1/keys", body).await.expect(201);
    let key = made["key"].as_str().expect("shown once").to_owned();
    let browser = sign_in(&server, &key).await;
    let stream = browser.stream().await;
    server.call("DELETE", "/v1/keys/k", Value::Null).await.expect(204);
    browser.get("/v1/session").await.problem("unauthenticated");
    assert!(rest(stream).await.contains("unauthenticated"));
    try_sign_in(&server, &key).await.problem("unauthenticated");
}

#[tokio::test]
async fn a_key_shows_when_it_or_a_session_of_it_was_last_used() {
    let server = Server::start();
    server.tree().await;
    let body = json!({ "id": "k", "role": "viewer", "scope": "acme", "name": "n" });
    let made = server.call("POST", "/v1/keys", body).await.expect(201);
    let key = made["key"].as_str().expect("shown once").to_owned();
    let last_used = async || {
        let keys = server.get("/v1/keys").await;
        keys["data"][0]["last_used_at"].clone()
    };
    let now = async || server.get("/v1/clock").await["now"].clone();
    assert_eq!(last_used().await, Value::Null, "not used yet");
    server.send("GET", "/v1/accounts", Value::Null, &key, &[]).await.expect(200);
    let first = now().await;
    assert_eq!(last_used().await, first);
    server.advance(100).await;
    assert_eq!(last_used().await, first);
    let browser = sign_in(&server, &key).await;
    browser.get("/v1/accounts").await.expect(200);
    assert_eq!(last_used().await, now().await);
    assert_ne!(last_used().await, first);
}

#[tokio::test]
async fn sessions_end_with_the_process() {
    let mut server = Server::start();
    let (cookie, url) = {
        let browser = sign_in(&server, &server.root).await;
        (browser.cookie.clone(), server.url.clone())
    };
    server.stop();
    server.restart(&["--clock", "manual"]);
    assert_eq!(server.url, url);
    let headers = [("cookie", cookie.as_str())];
    let answer = server.send("GET", "/v1/session", Value::Null, "", &headers).await;
    let detail = answer.problem("unauthenticated")["detail"].clone();
    assert!(detail.as_str().is_some_and(|text| text.contains("sign in again")), "{detail}");
}

#[tokio::test]
async fn failed_sign_ins_are_limited_and_a_key_has_so_many_sessions() {
    let server = Server::start();
    server.tree().await;
    let key = server.key("viewer", "acme").await;
    let id = |key: &str| key.rsplit_once('_').expect("an id").0.to_owned();
    // All of them have a wrong checksum, so they count as one id.
    let wrong = |number: usize| format!("{}_{number:032}", id(&key));
    let mut limited = None;
    for number in 0..12 {
        let answer = try_sign_in(&server, &wrong(number)).await;
        if answer.status == 429 {
            limited = Some(number);
            answer.problem("rate_limited");
            break;
        }
        answer.problem("unauthenticated");
    }
    assert_eq!(limited, Some(10));
    // Keys of other ids are not affected, and neither are requests with a key.
    let root = sign_in(&server, &server.root).await;
    root.get("/v1/session").await.expect(200);
    server.send("GET", "/v1/session", Value::Null, &key, &[]).await.expect(200);
    let mut sessions = Vec::new();
    for _ in 0..17 {
        sessions.push(sign_in(&server, &key).await);
    }
    sessions[0].get("/v1/session").await.problem("unauthenticated");
    sessions[1].get("/v1/session").await.expect(200);
    sessions[16].get("/v1/session").await.expect(200);
}
