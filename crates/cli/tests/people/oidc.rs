//! Signing in through an identity provider: a real one, and one that lies.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::server::{Answer, Server, read};

/// The folder with the provider's packages, installed once.
static PACKAGES: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("oidc-provider");
    std::fs::create_dir_all(&folder).expect("the folder is ours");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/people/provider");
    for file in ["package.json", "package-lock.json", "real.mjs", "hostile.mjs"] {
        std::fs::copy(format!("{source}/{file}"), folder.join(file)).expect("it is there");
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--no-audit", "--no-fund", "--silent"]).current_dir(&folder);
    let done = npm.status().expect("this test needs Node with npm");
    assert!(done.success(), "npm could not install the identity provider");
    folder
});

/// An identity provider.
struct Idp {
    child: Child,
    url: String,
}

impl Idp {
    fn start(script: &str) -> Idp {
        let mut child = Command::new("node")
            .arg(PACKAGES.join(script))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("this test needs Node");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let url = lines.next().expect("it starts").expect("text");
        Idp { child, url }
    }
}

impl Drop for Idp {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A browser: follows redirects and keeps cookies.
#[derive(Default)]
struct Browser {
    /// By origin and name.
    cookies: BTreeMap<(String, String), String>,
    /// Those that are not sent where another site leads back.
    strict: BTreeSet<(String, String)>,
    /// All cookies as they were set.
    set: Vec<String>,
    /// The addresses that were visited.
    visited: Vec<String>,
}

fn origin(url: &str) -> String {
    url.splitn(4, '/').take(3).collect::<Vec<_>>().join("/")
}

impl Browser {
    fn header(&self, url: &str) -> String {
        self.sent(url, false)
    }

    /// The cookies for an address; without strict ones where another site leads there.
    fn sent(&self, url: &str, from_elsewhere: bool) -> String {
        let own = self.cookies.iter().filter(|((of, _), _)| *of == origin(url));
        let own = own.filter(|(key, _)| !(from_elsewhere && self.strict.contains(*key)));
        own.map(|((_, name), value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ")
    }

    /// Visits an address and follows redirects.
    async fn visit(&mut self, url: &str) -> Answer {
        // Redirects are followed here, each on a connection of its own.
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
        let http = http.pool_max_idle_per_host(0);
        let (http, mut url) = (http.build().expect("a plain client"), url.to_owned());
        let (start, mut has_left) = (origin(&url), false);
        loop {
            self.visited.push(url.clone());
            has_left |= origin(&url) != start;
            let request = http.get(&url).header(COOKIE, self.sent(&url, has_left));
            let response = request.send().await.expect("it answers");
            for value in response.headers().get_all(SET_COOKIE) {
                let value = value.to_str().expect("ascii").to_owned();
                let (name, rest) = value.split_once('=').expect("a cookie");
                let content = rest.split(';').next().unwrap_or("").to_owned();
                let key = (origin(&url), name.to_owned());
                if content.is_empty() {
                    self.cookies.remove(&key);
                } else {
                    if value.contains("SameSite=Strict") {
                        self.strict.insert(key.clone());
                    }
                    self.cookies.insert(key, content);
                }
                self.set.push(value);
            }
            let Some(next) = response.headers().get(LOCATION) else { return read(response).await };
            let next = next.to_str().expect("ascii").to_owned();
            url = if next.starts_with('/') { origin(&url) + &next } else { next };
        }
    }

    /// The session, as the server shows it.
    async fn session(&self, server: &Server) -> Value {
        let cookies = self.header(&server.url);
        let headers = [("cookie", cookies.as_str())];
        server.send("GET", "/v1/session", Value::Null, "", &headers).await.expect(200)
    }

    fn callback(&self) -> String {
        let found = self.visited.iter().rev().find(|url| url.contains("/auth/callback"));
        found.expect("it was led back").clone()
    }
}

const GROUPS: &str = "\
    [[oidc.groups]]\ngroup = \"gpu-admins\"\nrole = \"admin\"\nscope = \"*\"\n\
    [[oidc.groups]]\ngroup = \"nlp\"\nrole = \"submitter\"\nscope = \"acme:nlp\"\n";

/// A server whose people sign in at a provider.
fn serving(idp: &Idp, more: &str) -> Server {
    let lines = format!("[oidc]\nissuer = \"{}\"\nclient_id = \"bursar\"\n{more}{GROUPS}", idp.url);
    Server::configured(&lines, &["--clock", "manual"])
}

async fn tell(idp: &Idp, path: &str) {
    let answer = reqwest::get(format!("{}{path}", idp.url)).await.expect("it answers");
    assert!(answer.status().is_success());
}

#[tokio::test]
async fn people_sign_in_at_a_real_provider_with_the_role_of_their_groups() {
    let idp = Idp::start("real.mjs");
    let folder = TempDir::new().expect("a temporary folder");
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "a secret: +/%\n").expect("written");
    let more = format!(
        "client_secret_file = \"{}\"\nscopes = [\"openid\", \"profile\", \"groups\"]\n",
        secret.display()
    );
    let server = serving(&idp, &more);
    server.tree().await;
    let set_up = format!("/setup?redirect={}/auth/callback", server.url);
    tell(&idp, &set_up).await;
    let methods = server.send("GET", "/auth/methods", Value::Null, "", &[]).await.expect(200);
    assert_eq!(methods["oidc"]["url"], "/auth/login");
    let mut alice = Browser::default();
    let page = alice.visit(&format!("{}/auth/login?next=/jobs", server.url)).await.expect(200);
    assert!(page.as_str().is_some_and(|page| page.contains("0;url=/jobs")), "{page}");
    let of = |name: &str| alice.set.iter().find(|set| set.starts_with(name)).expect("it was set");
    assert!(of("bursar_login").contains("HttpOnly; SameSite=Lax; Max-Age=600"));
    assert!(of("bursar_session").contains("HttpOnly; SameSite=Strict"));
    assert!(!alice.cookies.keys().any(|(_, name)| name.starts_with("bursar_login")), "used up");
    let session = alice.session(&server).await;
    let actor = format!("alice@{}", idp.url);
    assert_eq!((&session["role"], &session["scope"]), (&json!("admin"), &json!("*")));
    assert_eq!((&session["actor"], &session["name"]), (&json!(actor), &json!("Alice <Admin>")));
    let logout = session["logout_url"].as_str().expect("the provider has one");
    assert!(logout.starts_with(&format!("{}/session/end?client_id=bursar", idp.url)), "{logout}");
    // A change names the person in the audit trail.
    let cookies = alice.header(&server.url);
    let csrf = session["csrf_token"].as_str().expect("a token");
    let headers = [("cookie", cookies.as_str()), ("x-csrf-token", csrf)];
    let body = json!({ "id": "acme:new", "kind": "team" });
    server.send("POST", "/v1/accounts", body, "", &headers).await.expect(201);
    let audit = server.get("/v1/audit?account=acme:new").await;
    assert_eq!(audit["data"][0]["actor"], actor, "{audit}");
    // The same code is accepted once.
    let again = alice.callback();
    let mut thief = Browser::default();
    thief.visit(&again).await.expect(400);
    server.send("DELETE", "/v1/session", Value::Null, "", &headers).await.expect(204);
    let after = server.send("GET", "/v1/session", Value::Null, "", &headers).await;
    after.problem("unauthenticated");
    // Another person, with another scope.
    tell(&idp, "/as?person=bob").await;
    let mut bob = Browser::default();
    bob.visit(&format!("{}/auth/login", server.url)).await.expect(200);
    let session = bob.session(&server).await;
    assert_eq!((&session["role"], &session["scope"]), (&json!("submitter"), &json!("acme:nlp")));
    let cookies = bob.header(&server.url);
    let get = async |path: &str| {
        server.send("GET", path, Value::Null, "", &[("cookie", cookies.as_str())]).await
    };
    get("/v1/accounts/acme:nlp").await.expect(200);
    get("/v1/accounts/acme").await.problem("not_found");
    get("/v1/keys").await.problem("forbidden");
    // A person without a mapped group.
    tell(&idp, "/as?person=mallory").await;
    let mut mallory = Browser::default();
    let page = mallory.visit(&format!("{}/auth/login", server.url)).await.expect(403);
    let page = page.as_str().expect("a page");
    assert!(page.contains("Mallory") && page.contains("[[oidc.groups]]"), "{page}");
    assert!(!page.contains("gpu-admins"), "the mapping is not shown");
    assert!(!mallory.cookies.keys().any(|(_, name)| name.starts_with("bursar_session")));
    // The provider has new keys: the next token is signed with an unknown one.
    tell(&idp, &set_up).await;
    tell(&idp, "/as?person=bob").await;
    let mut bob = Browser::default();
    bob.visit(&format!("{}/auth/login", server.url)).await.expect(200);
    assert_eq!(bob.session(&server).await["role"], "submitter");
}

#[tokio::test]
async fn no_lie_of_a_provider_signs_a_person_in() {
    let idp = Idp::start("hostile.mjs");
    let server = serving(&idp, "");
    server.tree().await;
    let login = format!("{}/auth/login", server.url);
    let mut attempts = Vec::new();
    for (mode, status) in [
        ("down", 502),
        ("foreign", 502),
        ("plain", 502),
        ("honest", 200),
        ("none", 401),
        ("shared_secret", 401),
        ("wrong_issuer", 401),
        ("wrong_audience", 401),
        ("other_party", 401),
        ("expired", 401),
        ("not_yet", 401),
        ("no_expiry", 401),
        ("wrong_nonce", 401),
        ("no_nonce", 401),
        ("unknown_key", 401),
        ("wrong_key", 401),
        ("altered", 401),
        ("control_subject", 502),
        ("no_group", 403),
        ("hostile_names", 403),
        ("refuses", 400),
        ("large", 502),
        // A key that was not known before: the keys are read again.
        ("rotated", 200),
        ("honest", 200),
    ] {
        tell(&idp, &format!("/mode?is={mode}")).await;
        let mut browser = Browser::default();
        let answer = browser.visit(&login).await;
        assert_eq!(answer.status, status, "{mode}: {}", answer.body);
        let page = answer.body.as_str().expect("a page").to_owned();
        assert!(!page.contains("<script"), "{mode}: {page}");
        let policy = answer.headers["content-security-policy"].to_str().expect("ascii");
        assert!(policy.contains("default-src 'none'"), "{mode}");
        let signed_in = browser.cookies.keys().any(|(_, name)| name.starts_with("bursar_session"));
        assert_eq!(signed_in, status == 200, "{mode}");
        attempts.push((mode, browser));
    }
    let (_, honest) = &attempts[3];
    let session = honest.session(&server).await;
    assert_eq!(session["actor"], format!("eve@{}", idp.url));
    assert_eq!((&session["role"], &session["scope"]), (&json!("submitter"), &json!("acme:nlp")));
    assert_eq!(session["may_issue"], false);
}

#[tokio::test]
async fn a_sign_in_ends_only_in_the_browser_that_began_it() {
    let idp = Idp::start("hostile.mjs");
    let server = serving(&idp, "");
    let login = format!("{}/auth/login?next=//evil.example", server.url);
    let callback = format!("{}/auth/callback", server.url);
    // The login cookie as it was before it was used up.
    let mut browser = Browser::default();
    let page = browser.visit(&login).await.expect(200);
    assert!(page.as_str().is_some_and(|page| page.contains("0;url=/\"")), "{page}");
    let set = browser.set.iter().find(|set| set.starts_with("bursar_login")).expect("it was set");
    let cookie = set.split(';').next().expect("a first part").to_owned();
    let used = browser.callback();
    let state = used.split("state=").nth(1).and_then(|rest| rest.split('&').next());
    let state = state.expect("a state").to_owned();
    let ask = async |url: &str, cookie: &str| {
        let path = url.strip_prefix(&server.url).expect("of this server");
        server.send("GET", path, Value::Null, "", &[("cookie", cookie)]).await
    };
    // Another browser, no cookie, a wrong state, a forged cookie, a code that was used.
    for (url, cookie) in [
        (used.clone(), String::new()),
        (callback.clone(), cookie.clone()),
        (format!("{callback}?code=x&state=wrong"), cookie.clone()),
        (format!("{callback}?code=x"), cookie.clone()),
        (format!("{callback}?state={state}"), cookie.clone()),
        (format!("{callback}?code=x&state={state}"), format!("{cookie}0")),
        (format!("{callback}?code=x&state={state}"), cookie.replace('.', "x.")),
        (used.clone(), cookie.clone()),
    ] {
        let answer = ask(&url, &cookie).await;
        assert_eq!(answer.status, 400, "{url}: {}", answer.body);
        let set = answer.headers.get_all("set-cookie").iter();
        let set: Vec<&str> = set.map(|value| value.to_str().expect("ascii")).collect();
        assert!(set.iter().all(|set| set.contains("Max-Age=0")), "no session: {set:?}");
    }
    // Ten minutes later the sign-in has lapsed.
    server.advance(601).await;
    assert_eq!(ask(&format!("{callback}?code=x&state={state}"), &cookie).await.status, 400);
    // Without a provider the paths do not exist.
    let plain = Server::start();
    for path in ["/auth/login", "/auth/callback?code=x"] {
        plain.send("GET", path, Value::Null, "", &[]).await.problem("not_found");
    }
    let methods = plain.send("GET", "/auth/methods", Value::Null, "", &[]).await.expect(200);
    assert_eq!(methods, json!({ "key": true, "oidc": null }));
}

#[tokio::test]
async fn a_new_sign_in_ends_the_session_before_although_its_strict_cookie_is_not_sent_back() {
    let idp = Idp::start("hostile.mjs");
    let server = serving(&idp, "");
    server.tree().await;
    let login = format!("{}/auth/login", server.url);
    let mut browser = Browser::default();
    browser.visit(&login).await.expect(200);
    let before = browser.header(&server.url);
    let asked = async |cookies: &str| {
        server.send("GET", "/v1/session", Value::Null, "", &[("cookie", cookies)]).await
    };
    asked(&before).await.expect(200);
    browser.visit(&login).await.expect(200);
    let after = browser.header(&server.url);
    assert_ne!(before, after);
    asked(&after).await.expect(200);
    asked(&before).await.problem("unauthenticated");
}

#[tokio::test]
async fn an_administrator_ends_the_sessions_of_a_person_and_one_address_cannot_fail_for_ever() {
    let idp = Idp::start("hostile.mjs");
    let server = serving(&idp, "");
    server.tree().await;
    let login = format!("{}/auth/login", server.url);
    let mut eve = Browser::default();
    eve.visit(&login).await.expect(200);
    let cookies = eve.header(&server.url);
    let actor = eve.session(&server).await["actor"].as_str().expect("a name").to_owned();
    let path = format!("/v1/session?actor={actor}");
    let end = async |key: &str| server.send("DELETE", &path, Value::Null, key, &[]).await;
    end(&server.key("billing", "acme").await).await.problem("forbidden");
    end(&server.key("admin", "umbra").await).await.problem("not_found");
    eve.session(&server).await;
    end(&server.key("admin", "acme").await).await.expect(204);
    let headers = [("cookie", cookies.as_str())];
    let after = server.send("GET", "/v1/session", Value::Null, "", &headers).await;
    after.problem("unauthenticated");
    end(&server.root).await.problem("not_found");
    // Answers that belong to no sign-in are counted for their address.
    let callback =
        async || server.send("GET", "/auth/callback?code=x&state=y", Value::Null, "", &[]).await;
    for _ in 0..30 {
        assert_eq!(callback().await.status, 400);
    }
    let page = callback().await.expect(429);
    assert!(page.as_str().is_some_and(|page| page.contains("too many failed sign-ins")), "{page}");
    server.send("GET", "/auth/login", Value::Null, "", &[]).await.expect(429);
    // People with a key are not affected.
    let body = json!({ "key": server.root });
    server.send("POST", "/v1/session", body, "", &[]).await.expect(201);
}

#[tokio::test]
async fn a_provider_that_hangs_keeps_few_requests_waiting() {
    // Accepts connections and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let issuer = format!("http://{}", silent.local_addr().expect("it listens"));
    let config = format!(
        "[oidc]\nissuer = \"{issuer}\"\nclient_id = \"bursar\"\n\
         groups = [{{ group = \"ops\", role = \"operator\", scope = \"*\" }}]\n"
    );
    let server = Server::configured(&config, &["--clock", "manual"]);
    let mut asked: FuturesUnordered<_> =
        (0..24).map(|_| server.send("GET", "/auth/login", Value::Null, "", &[])).collect();
    // Eight of one address wait for the provider; the others are answered first.
    for _ in 0..16 {
        let answer = asked.next().await.expect("an answer");
        assert_eq!(answer.status, 502);
        assert!(answer.body.to_string().contains("too many people"), "{}", answer.body);
    }
    server.send("GET", "/v1/accounts", Value::Null, &server.root, &[]).await.expect(200);
}
