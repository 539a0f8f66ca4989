//! A server with every kind of resource: two tenants, credits, jobs, nodes and keys of every role.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use bursar_testkit::binary::announced;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::rehearsal::rehearse;
use crate::wire::{Answer, Outcome, Request, Wire};

pub(crate) const REGIONS: [&str; 2] = ["default", "north"];

/// A server process, killed at the end.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    pub(crate) root: String,
    folder: TempDir,
}

impl Server {
    pub(crate) fn start() -> Server {
        // The test does not depend on the disk.
        let memory = PathBuf::from("/dev/shm");
        let folder = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
        let folder = folder.expect("a temporary folder");
        let setup = "regions = [\"default\", \"north\"]\n\
                     [limits]\nper_key = 1000000\nper_tenant = 1000000\n";
        std::fs::write(folder.path().join("bursar.toml"), setup).expect("the folder is ours");
        let (child, url, root) = launch("127.0.0.1:0", &folder);
        Server { child, url, root, folder }
    }

    /// Stops it with a signal, and starts it again at the same address.
    pub(crate) fn restart(&mut self) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).expect("a pid"));
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("it runs");
        let ended = self.child.wait().expect("it ends");
        assert!(ended.success(), "it ended with {ended}\n{}", self.said());
        let address = self.url.trim_start_matches("http://").to_owned();
        let (child, url, root) = launch(&address, &self.folder);
        assert_eq!((&url, &root), (&self.url, &self.root));
        self.child = child;
    }

    /// Its standard error.
    pub(crate) fn said(&self) -> String {
        let said = std::fs::read(self.folder.path().join("said")).expect("the file is there");
        String::from_utf8_lossy(&said).into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !std::thread::panicking() {
            rehearse(&self.folder.path().join("data"));
        }
    }
}

fn launch(listen: &str, folder: &TempDir) -> (Child, String, String) {
    let path = |name: &str| folder.path().join(name);
    let said = File::options().create(true).append(true).open(path("said")).expect("ours");
    let mut child = Command::new(env!("CARGO_BIN_EXE_bursar"))
        .args(["serve", "--dev", "--clock", "manual", "--listen", listen, "--data"])
        .arg(path("data"))
        .arg("--config")
        .arg(path("bursar.toml"))
        .env("BURSAR_LOG", "error")
        .stdout(Stdio::piped())
        .stderr(said)
        .spawn()
        .expect("the binary is there");
    let (root, url) = announced(child.stdout.take().expect("it is piped"));
    (child, url, root)
}

/// Sends well-formed requests with one key.
pub(crate) struct Client {
    wire: Wire,
    pub(crate) key: String,
}

impl Client {
    pub(crate) fn new(url: &str, key: &str) -> Client {
        Client { wire: Wire::new(url), key: key.into() }
    }

    /// One request; `None` without an answer.
    pub(crate) fn call(&mut self, method: &str, target: &str, body: &Value) -> Option<Answer> {
        let mut headers = vec![("Authorization".into(), format!("Bearer {}", self.key).into())];
        if !body.is_null() {
            headers.push(("Content-Type".into(), b"application/json".to_vec()));
        }
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let (method, target) = (method.to_owned(), target.to_owned());
        let request = Request { method, target, headers, body, lingers: false };
        match self.wire.send(&request) {
            Outcome::Answered(answer) => Some(answer),
            Outcome::Waiting | Outcome::Closed(_) => None,
        }
    }

    /// One request that must succeed.
    #[track_caller]
    pub(crate) fn must(&mut self, method: &str, target: &str, body: Value) -> Value {
        let answer = self.call(method, target, &body);
        let answer = answer.unwrap_or_else(|| panic!("{method} {target}: no answer"));
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(answer.status < 300, "{method} {target} {body}: {} {text}", answer.status);
        answer.json().unwrap_or(Value::Null)
    }
}

/// The resources and the keys.
#[derive(Clone, Debug)]
pub(crate) struct World {
    /// Keys of every role: of the platform, of each tenant.
    pub(crate) keys: Vec<String>,
    pub(crate) root: String,
}

/// When the world begins.
pub(crate) const BEGINNING: &str = "2030-01-01T00:00:00.000Z";
/// An hour of the next day, for maintenance.
pub(crate) const NEXT_DAY: [&str; 2] = ["2030-01-02T00:00:00.000Z", "2030-01-02T01:00:00.000Z"];

pub(crate) const TENANTS: [&str; 2] = ["acme", "umbra"];

/// Creates the world on a new server.
pub(crate) fn furnish(server: &Server) -> World {
    let mut root = Client::new(&server.url, &server.root);
    root.must("POST", "/v1/clock", json!({ "now": BEGINNING }));
    for (gpu_type, price) in [("H100", "6"), ("A100", "3")] {
        root.must("PUT", &format!("/v1/prices/{gpu_type}"), json!({ "per_gpu_hour": price }));
    }
    let class =
        json!({ "rank": 25, "preempts": [], "grace_seconds": 5, "default_preemptible": true });
    root.must("PUT", "/v1/classes/fuzz", class);
    let mut keys = Vec::new();
    for tenant in TENANTS {
        for (suffix, kind) in
            [("", "org"), (":nlp", "team"), (":nlp:x", "project"), (":scratch", "team")]
        {
            let id = format!("{tenant}{suffix}");
            root.must("POST", "/v1/accounts", json!({ "id": id, "kind": kind }));
        }
        for (id, amount) in [("funds", "1000000"), ("more", "5.5")] {
            let id = format!("{tenant}-{id}");
            let body = json!({ "id": id, "account": tenant, "amount": amount, "kind": "purchase" });
            root.must("POST", "/v1/grants", body);
        }
        for (path, body) in [
            ("/v1/holds", json!({ "id": format!("{tenant}-hold"), "amount": "7" })),
            ("/v1/charges", json!({ "id": format!("{tenant}-charge"), "amount": "3" })),
            // No node has an A100: it waits.
            (
                "/v1/jobs",
                json!({
                    "id": format!("{tenant}-waits"), "gpus": { "types": ["A100"] },
                    "max_runtime_seconds": 3600, "command": ["true"],
                }),
            ),
            (
                "/v1/jobs",
                json!({
                    "id": format!("{tenant}-job"), "gpus": { "types": ["H100"] },
                    "max_runtime_seconds": 3600, "command": ["true"],
                }),
            ),
        ] {
            let mut body = body;
            body["account"] = format!("{tenant}:nlp").into();
            root.must("POST", path, body);
        }
        let (charge, nlp) = (format!("{tenant}-charge"), format!("{tenant}:nlp"));
        let refund = json!({
            "id": format!("{tenant}-refund"), "charge": charge, "amount": "1", "reason": "fuzz"
        });
        root.must("POST", "/v1/refunds", refund);
        let id = format!("{tenant}-transfer");
        let transfer = json!({ "id": id, "from": tenant, "to": nlp, "amount": "9" });
        root.must("POST", "/v1/transfers", transfer);
        for role in ["admin", "billing", "operator", "submitter", "viewer", "auditor"] {
            keys.push(new_key(&mut root, json!({ "role": role, "scope": tenant, "name": role })));
        }
    }
    for role in ["admin", "operator", "viewer", "auditor"] {
        keys.push(new_key(&mut root, json!({ "role": role, "scope": "*", "name": role })));
    }
    for region in REGIONS {
        let body = json!({ "role": "agent", "scope": "*", "name": "agent", "region": region });
        keys.push(new_key(&mut root, body));
    }
    keys.push(server.root.clone());
    World { keys, root: server.root.clone() }
}

fn new_key(root: &mut Client, body: Value) -> String {
    let made = root.must("POST", "/v1/keys", body);
    made["key"].as_str().expect("it is shown once").to_owned()
}

/// A GPU of a node.
pub(crate) fn gpus(node: &str, gpu_type: &str, count: usize) -> Value {
    (0..count)
        .map(|n| json!({ "uuid": format!("GPU-{node}-{n}"), "type": gpu_type, "memory_gib": 80 }))
        .collect()
}
