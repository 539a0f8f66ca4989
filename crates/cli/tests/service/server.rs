//! A server process of its own for each test, and a client for it.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use bursar_testkit::binary::announced;
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

#[allow(unused_imports, reason = "only one of the test binaries has it from here")]
pub(crate) use crate::rehearsal::tool;
use crate::rehearsal::{rehearse, rehearse_inside, rehearse_postgres};

/// A running `bursar serve`, killed when the test ends.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    pub(crate) root: String,
    pub(crate) client: Client,
    data: PathBuf,
    /// The PostgreSQL store, if its journals are there.
    store: Option<String>,
    /// Why the store at the end is broken: the test itself broke it.
    spoilt: Option<&'static str>,
    _folder: Option<TempDir>,
}

/// The root key of servers that do not create one.
const ROOT_KEY: &str = "root-key-of-a-test-that-is-long-enough-to-be-taken";

/// An answer.
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
        // What was kept names the request that was answered first.
        assert_eq!(self.body["request_id"] != request_id, self.is_replayed());
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
        Server::of(launch("127.0.0.1:0", &data, flags), data, Some(folder))
    }

    /// A process that listens, with its URL and root key.
    fn of(
        (child, url, root): (Child, String, String),
        data: std::path::PathBuf,
        folder: Option<TempDir>,
    ) -> Server {
        let client = client();
        Server { child, url, root, client, data, store: None, spoilt: None, _folder: folder }
    }

    /// A server that `wrapper` starts: a program and its arguments, which runs what follows them as
    /// the same process. `{}` stands for the data folder.
    pub(crate) fn under(wrapper: &[&str]) -> Server {
        let folder = TempDir::new().expect("a temporary folder");
        let data = folder.path().join("data");
        std::fs::create_dir(&data).expect("the folder is ours");
        let place = data.display().to_string();
        let mut command = Command::new(wrapper[0]);
        command.args(wrapper[1..].iter().map(|argument| argument.replace("{}", &place)));
        command.arg(env!("CARGO_BIN_EXE_bursar"));
        Server::of(launch_by(command, "127.0.0.1:0", &data, &[]), data, Some(folder))
    }

    /// A server whose journals are in PostgreSQL.
    pub(crate) fn on_postgres(store: &str) -> Server {
        let folder = TempDir::new().expect("a temporary folder");
        let root_key = folder.path().join("root.key");
        std::fs::write(&root_key, ROOT_KEY).expect("the folder is ours");
        let mut child = Command::new(env!("CARGO_BIN_EXE_bursar"))
            .args(["serve", "--listen", "127.0.0.1:0", "--unsafe-single-postgres"])
            .args(["--store", store, "--root-key-file"])
            .arg(&root_key)
            .env("BURSAR_LOG", "error")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary is there");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let url = until_listening(&mut lines);
        let data = folder.path().to_owned();
        let mut server = Server::of((child, url, ROOT_KEY.into()), data, Some(folder));
        server.store = Some(store.to_owned());
        server
    }

    /// Waits until nothing that is closed is in memory.
    pub(crate) async fn until_forgotten(&self) {
        self.until_metric("bursar_ledger_closed_in_memory", |closed| closed == 0.0).await;
    }

    /// A server on a folder that is there already.
    pub(crate) fn at(data: &std::path::Path, flags: &[&str]) -> Server {
        Server::of(launch("127.0.0.1:0", data, flags), data.to_owned(), None)
    }

    /// A server on a folder that is there already, or why it does not start.
    pub(crate) fn try_at(data: &std::path::Path, flags: &[&str]) -> Result<Server, String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
        command.args(["serve", "--dev", "--listen", "127.0.0.1:0", "--data"]).arg(data).args(flags);
        let mut child = command
            .env("BURSAR_LOG", "error")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary is there");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut root = String::new();
        for line in lines.map_while(Result::ok) {
            if let Some(key) = line.strip_prefix("root key: ") {
                key.clone_into(&mut root);
            }
            if let Some(url) = line.strip_prefix("listening on ") {
                return Ok(Server::of((child, url.to_owned(), root), data.to_owned(), None));
            }
        }
        let ended = child.wait_with_output().expect("it ends");
        let words = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success(), "it ended without a word: {words}");
        Err(words)
    }

    /// Records why the store at the end is broken.
    pub(crate) fn spoil(&mut self, reason: &'static str) {
        self.spoilt = Some(reason);
    }

    /// The number of its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops it and waits for its end.
    pub(crate) fn stop(&mut self) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status().expect("kill is there");
        assert!(sent.success());
        assert!(self.child.wait().expect("it ends").success());
    }

    /// The data folder as the process itself sees it.
    pub(crate) fn data_inside(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.child.id()));
        root.join(self.data.strip_prefix("/").expect("an absolute path"))
    }

    /// Rehearses the loss of a store that only this server sees, while it runs.
    #[track_caller]
    pub(crate) fn rehearse_inside(&mut self) {
        rehearse_inside(self.child.id(), &self.data);
        self.spoil("its disk is gone with the process, and its loss was rehearsed before");
    }

    /// A server whose configuration has these lines, in its own folder.
    pub(crate) fn configured(lines: &str, flags: &[&str]) -> Server {
        let folder = TempDir::new().expect("a temporary folder");
        let file = folder.path().join("bursar.toml");
        std::fs::write(&file, lines).expect("written");
        let data = folder.path().join("data");
        let config = ["--config", file.to_str().expect("a plain path")];
        let (child, url, root) = launch("127.0.0.1:0", &data, &[&config, flags].concat());
        Server {
            child,
            url,
            root,
            client: client(),
            data,
            store: None,
            spoilt: None,
            _folder: Some(folder),
        }
    }

    /// Starts it again with the file of [`Server::configured`].
    pub(crate) fn restart_configured(&mut self, flags: &[&str]) {
        let file = self.data.with_file_name("bursar.toml").display().to_string();
        self.restart(&[&["--config", &file], flags].concat());
    }

    /// A server on the store or folder that the flags name, with its root key file.
    pub(crate) fn on_store(flags: &[&str]) -> Server {
        let arguments = [&["serve", "--listen", "127.0.0.1:0"], flags].concat();
        let mut child = spawn(&arguments);
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let url = until_listening(&mut lines);
        let value = |name: &str| flags.iter().skip_while(|flag| **flag != name).nth(1).copied();
        let file = value("--root-key-file").expect("it is named");
        let root = std::fs::read_to_string(file).expect("it was written").trim().to_owned();
        let data = value("--data").map_or_else(PathBuf::new, PathBuf::from);
        let (store, spoilt) = (value("--store").map(str::to_owned), None);
        Server { child, url, root, client: client(), data, store, spoilt, _folder: None }
    }

    /// Reads the metrics until they have a line that passes.
    pub(crate) async fn until_metric(&self, name: &str, passes: impl Fn(f64) -> bool) {
        loop {
            let text = self.send("GET", "/metrics", Value::Null, "", &[]).await.expect(200);
            let text = text.as_str().expect("text").to_owned();
            let lines = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            if lines.filter_map(|value| value.parse().ok()).any(&passes) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// A server with a manual clock on a PostgreSQL store, with its root key in a folder of its own.
    pub(crate) fn on_manual_store(store: &str) -> Server {
        let folder = TempDir::new().expect("a temporary folder");
        let file = folder.path().join("root.key");
        let file = file.to_str().expect("a plain path");
        let clock = ["--clock", "manual", "--unsafe-single-postgres"];
        let place = ["--store", store, "--root-key-file", file];
        let mut server = Server::on_store(&[&clock[..], &place[..]].concat());
        server._folder = Some(folder);
        server
    }

    /// Kills the process as a power cut would, and starts it again at the same address.
    pub(crate) fn crash_and_restart(&mut self, flags: &[&str]) {
        self.crash();
        self.restart(flags);
    }

    /// Starts it again at the same address.
    pub(crate) fn restart(&mut self, flags: &[&str]) {
        let address = self.url.trim_start_matches("http://").to_owned();
        let (child, url, root) = launch(&address, &self.data, flags);
        assert_eq!((&url, &root), (&self.url, &self.root));
        self.child = child;
        // Connections to the old process are gone.
        self.client = client();
    }

    /// A server on a PostgreSQL store that was started elsewhere.
    pub(crate) fn adopt(child: Child, url: String, root: &str, store: &str) -> Server {
        let (root, data) = (root.to_owned(), PathBuf::new());
        let (store, spoilt) = (Some(store.to_owned()), None);
        Server { child, url, root, client: client(), data, store, spoilt, _folder: None }
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status().expect("kill is there");
        assert!(sent.success());
    }

    /// Repeats a request without a key until the answer has this status; returns the answer.
    pub(crate) async fn until_status(&self, path: &str, status: u16) -> Value {
        loop {
            let answer = self.send("GET", path, Value::Null, "", &[]).await;
            if answer.status == status {
                return answer.body;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    /// Kills the process as a power cut would.
    pub(crate) fn crash(&mut self) {
        self.child.kill().expect("it was running");
        self.child.wait().expect("it was killed");
    }

    /// Stops it, and returns its exit status.
    pub(crate) fn terminate(mut self) -> std::process::ExitStatus {
        self.signal("-TERM");
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

    /// A key that may issue credits.
    pub(crate) async fn issuer(&self, role: &str, scope: &str) -> String {
        let body =
            json!({ "role": role, "scope": scope, "name": "test", "capabilities": ["issue"] });
        let made = self.call("POST", "/v1/keys", body).await.expect(201);
        assert_eq!(made["capabilities"], json!(["issue"]));
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
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Every test must leave a valid store, unless it gives a reason.
        if self.spoilt.is_some() || std::thread::panicking() {
            return;
        }
        match &self.store {
            Some(store) => rehearse_postgres(store),
            None => rehearse(&self.data),
        }
    }
}

/// Starts a server that must not start; returns its error.
#[track_caller]
pub(crate) fn refused(data: &std::path::Path, flags: &[&str]) -> String {
    match Server::try_at(data, flags) {
        Err(said) => said,
        Ok(mut server) => {
            server.spoil("it must not have started");
            panic!("it started");
        }
    }
}

/// The address of a server, once it is ready. After a crash it stands by until the lead runs out.
fn until_listening(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> String {
    for line in lines {
        let line = line.expect("text");
        match line.strip_prefix("listening on ") {
            Some(url) => return url.to_owned(),
            None => assert!(line.starts_with("standby on "), "{line}"),
        }
    }
    panic!("it ended before it was ready");
}

/// Converts a response to an answer.
pub(crate) async fn read(response: reqwest::Response) -> Answer {
    let status: StatusCode = response.status();
    let headers = response.headers().clone();
    let bytes = response.bytes().await.expect("the whole body");
    let body = serde_json::from_slice(&bytes)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
    Answer { status: status.as_u16(), headers, body }
}

fn spawn(arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    command.args(arguments).env("BURSAR_LOG", "error").stdout(Stdio::piped());
    command.spawn().expect("the binary is there")
}

fn launch(listen: &str, data: &std::path::Path, flags: &[&str]) -> (Child, String, String) {
    launch_by(Command::new(env!("CARGO_BIN_EXE_bursar")), listen, data, flags)
}

/// The size of the window of what is closed that all servers have, if this variable is set: with `0` every answer about
/// something closed comes from the archive.
const WINDOW: &str = "BURSAR_TEST_CLOSED_MEMORY";

fn window(data: &std::path::Path, flags: &[&str]) -> Vec<std::ffi::OsString> {
    let size = std::env::var(WINDOW).ok().filter(|_| !flags.contains(&"--config"));
    let Some(size) = size else { return Vec::new() };
    let file = data.with_extension("toml");
    let text = format!("[ledger]\nclosed_memory = {size}\n");
    std::fs::write(&file, text).expect("the folder is ours");
    vec!["--config".into(), file.into()]
}

/// The number of ledger shards that all servers have, if this variable is set.
const SHARDS: &str = "BURSAR_TEST_SHARDS";

fn shards(flags: &[&str]) -> Vec<String> {
    let number = std::env::var(SHARDS).ok().filter(|_| !flags.contains(&"--shards"));
    number.map(|number| vec!["--shards".to_owned(), number]).unwrap_or_default()
}

fn launch_by(
    mut command: Command,
    listen: &str,
    data: &std::path::Path,
    flags: &[&str],
) -> (Child, String, String) {
    let mut child = command
        .args(["serve", "--dev", "--listen", listen, "--data"])
        .arg(data)
        .args(flags)
        .args(window(data, flags))
        .args(shards(flags))
        .env("BURSAR_LOG", "error")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary is there");
    let (root, url) = announced(child.stdout.take().expect("it is piped"));
    (child, url, root)
}
