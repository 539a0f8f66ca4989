//! A server process of its own for each test, and a client for it.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A running `bursar serve`, killed when the test ends.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    pub(crate) root: String,
    pub(crate) client: Client,
    data: PathBuf,
    _folder: Option<TempDir>,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    /// The body, if the status is the expected one.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        self.body
    }

    /// The body of a problem with this code.
    #[track_caller]
    pub(crate) fn problem(self, code: &str) -> Value {
        assert_eq!(self.body["code"], code, "{} {}", self.status, self.body);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        assert_eq!(self.body["status"], self.status);
        let request_id = self.headers["bursar-request-id"].to_str().expect("ascii");
        assert_eq!(self.body["request_id"], request_id);
        assert_eq!(self.headers.contains_key("retry-after"), matches!(self.status, 429 | 503));
        self.body
    }

    pub(crate) fn is_replayed(&self) -> bool {
        self.headers.get("idempotent-replayed").is_some_and(|value| value == "true")
    }
}

fn client() -> Client {
    // Each test may be the first of its process.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    Client::builder().pool_max_idle_per_host(128).build().expect("a plain client")
}

impl Server {
    /// A server with a manual clock.
    pub(crate) fn start() -> Server {
        Server::with(&["--clock", "manual"])
    }

    /// A server with these flags, in a folder of its own.
    pub(crate) fn with(flags: &[&str]) -> Server {
        let folder = TempDir::new().expect("a temporary folder");
        let data = folder.path().join("data");
        let (child, url, root) = launch("127.0.0.1:0", &data, flags);
        Server { child, url, root, client: client(), data, _folder: Some(folder) }
    }

    /// A server with a manual clock on a PostgreSQL store.
    pub(crate) fn on_store(store: &str) -> Server {
        let folder = TempDir::new().expect("a temporary folder");
        let data = folder.path().join("data");
        let mut command = serve("127.0.0.1:0");
        command.args(["--clock", "manual", "--unsafe-single-postgres", "--store", store]);
        let file = folder.path().join("root.key");
        command.arg("--root-key-file").arg(&file);
        let (child, url, _) = ready(command);
        let root = std::fs::read_to_string(file).expect("it was written").trim().to_owned();
        Server { child, url, root, client: client(), data, _folder: Some(folder) }
    }

    /// Kills the process as a power cut would, and starts it again at the same address.
    pub(crate) fn crash_and_restart(&mut self, flags: &[&str]) {
        self.crash();
        let address = self.url.trim_start_matches("http://").to_owned();
        let (child, url, root) = launch(&address, &self.data, flags);
        assert_eq!((&url, &root), (&self.url, &self.root));
        self.child = child;
        // Connections to the old process are gone.
        self.client = client();
    }

    /// Kills the process as a power cut would.
    pub(crate) fn crash(&mut self) {
        self.child.kill().expect("it was running");
        self.child.wait().expect("it was killed");
    }

    /// Asks it to end, and says how it ended.
    pub(crate) fn terminate(mut self) -> std::process::ExitStatus {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status().expect("kill is there");
        assert!(sent.success());
        self.child.wait().expect("it ends")
    }

    pub(crate) fn data(&self) -> &std::path::Path {
        &self.data
    }

    /// One request with the root key.
    pub(crate) async fn call(&self, method: &str, path: &str, body: Value) -> Answer {
        self.send(method, path, body, &self.root.clone(), &[]).await
    }

    /// One request with a key and headers; no body if it is null.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        body: Value,
        key: &str,
        headers: &[(&str, &str)],
    ) -> Answer {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        if !key.is_empty() {
            request = request.bearer_auth(key);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if !body.is_null() {
            request = request.json(&body);
        }
        read(request.send().await.expect("the server is there")).await
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.call("GET", path, Value::Null).await.expect(200)
    }

    pub(crate) async fn open(&self, id: &str, kind: &str) {
        self.call("POST", "/v1/accounts", json!({ "id": id, "kind": kind })).await.expect(201);
    }

    pub(crate) async fn grant(&self, id: &str, account: &str, amount: &str) -> Value {
        let body = json!({ "id": id, "account": account, "amount": amount, "kind": "purchase" });
        self.call("POST", "/v1/grants", body).await.expect(201)
    }

    pub(crate) async fn key(&self, role: &str, scope: &str) -> String {
        let body = json!({ "role": role, "scope": scope, "name": "test" });
        let made = self.call("POST", "/v1/keys", body).await.expect(201);
        made["key"].as_str().expect("shown once").to_owned()
    }

    pub(crate) async fn advance(&self, seconds: u64) {
        self.call("POST", "/v1/clock", json!({ "advance_seconds": seconds })).await.expect(200);
    }

    /// A tenant `acme` with a team, a project, a sibling team, and another tenant.
    pub(crate) async fn tree(&self) {
        for (id, kind) in [
            ("acme", "org"),
            ("acme:nlp", "team"),
            ("acme:nlp:x", "project"),
            ("acme:vision", "team"),
            ("umbra", "org"),
        ] {
            self.open(id, kind).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Turns a response into what tests look at.
pub(crate) async fn read(response: reqwest::Response) -> Answer {
    let status: StatusCode = response.status();
    let headers = response.headers().clone();
    let bytes = response.bytes().await.expect("the whole body");
    let body = serde_json::from_slice(&bytes)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
    Answer { status: status.as_u16(), headers, body }
}

fn launch(listen: &str, data: &std::path::Path, flags: &[&str]) -> (Child, String, String) {
    let mut command = serve(listen);
    command.arg("--data").arg(data).args(flags);
    ready(command)
}

fn serve(listen: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    command.args(["serve", "--dev", "--listen", listen]);
    command.env("BURSAR_LOG", "error").stdout(Stdio::piped());
    command
}

/// Starts a server and waits until it says where it listens.
fn ready(mut command: Command) -> (Child, String, String) {
    let mut child = command.spawn().expect("the binary is there");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut read = || lines.next().expect("a line").expect("text");
    let first = read();
    let (root, last) = match first.strip_prefix("root key: ") {
        Some(root) => (root.to_owned(), read()),
        None => (String::new(), first),
    };
    let url = last.strip_prefix("listening on ").unwrap_or_else(|| panic!("{last}"));
    (child, url.to_owned(), root)
}
