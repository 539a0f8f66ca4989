//! A server, agents and jobs as processes of their own, and the checks that hold at every end.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use bursar_agent::attempt::process::{Identity, marked};
use serde_json::Value;
use tempfile::TempDir;

use crate::rehearsal::{rehearse, tool};

const BURSAR: &str = env!("CARGO_BIN_EXE_bursar");

/// A server with a priced region and a tenant `acme` with money, and the agents of its nodes.
pub(crate) struct World {
    folder: TempDir,
    server: Option<Child>,
    url: String,
    /// The name of the folder with its journals.
    data: String,
    agents: BTreeMap<String, Child>,
}

/// Waits for a condition. A test that waits too long is stopped by the test runner.
pub(crate) fn until<T>(mut condition: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = condition() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl World {
    /// A server whose nodes report every second and are lost after `lease_seconds`.
    pub(crate) fn new(lease_seconds: u32) -> World {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = format!("heartbeat_seconds = 1\nnode_lease_seconds = {lease_seconds}\n");
        std::fs::write(folder.path().join("server.toml"), settings).expect("written");
        let (url, data, agents) = (String::new(), "data".to_owned(), BTreeMap::new());
        let mut world = World { folder, server: None, url, data, agents };
        world.start_server("127.0.0.1:0");
        world.furnish();
        world
    }

    fn furnish(&self) {
        let world = self;
        world.done(&["price", "set", "H100", "3600"]);
        world.done(&["account", "open", "acme"]);
        world.done(&["grant", "add", "acme", "1000000", "--kind", "purchase", "--id", "funds"]);
        let key =
            world.json(&["key", "create", "--role", "agent", "--scope", "*", "--name", "node"]);
        let key = key["key"].as_str().expect("shown once");
        std::fs::write(world.path("agent.key"), key).expect("written");
        let own = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(world.path("agent.key"), own).expect("it is ours");
    }

    /// Stops the server, and starts a new one with an empty store at the same address.
    pub(crate) fn replace_server(&mut self) {
        kill_and_wait(self.server.take().expect("it runs"));
        self.data = "fresh".to_owned();
        let address = self.url.trim_start_matches("http://").to_owned();
        self.start_server(&address);
        self.furnish();
    }

    /// Makes a backup beside the running server.
    pub(crate) fn back_up(&self, name: &str) {
        let place = self.path(name).display().to_string();
        tool(&["admin", "backup", &place], &self.path(&self.data));
    }

    /// Stops the server, and starts one on a restored backup at the same address.
    pub(crate) fn restore(&mut self, name: &str) {
        kill_and_wait(self.server.take().expect("it runs"));
        self.data = "restored".to_owned();
        let place = self.path(name).display().to_string();
        tool(&["admin", "restore", &place], &self.path(&self.data));
        self.start_again();
    }

    /// Starts the server again at the same address.
    fn start_again(&mut self) {
        let address = self.url.trim_start_matches("http://").to_owned();
        self.start_server(&address);
    }

    /// Ends the server, removes its manifest, makes another one, and starts it again.
    pub(crate) fn lose_manifest(&mut self) {
        kill_and_wait(self.server.take().expect("it runs"));
        let data = self.path(&self.data);
        std::fs::remove_file(data.join("manifest.json")).expect("it is there");
        let mut adopt = Command::new(BURSAR);
        let adopted = adopt.args(["admin", "adopt", "--data"]).arg(data).status();
        assert!(adopted.expect("the binary is there").success());
        self.start_again();
    }

    /// A node as the server shows it.
    pub(crate) fn node(&self, id: &str) -> Value {
        let nodes = self.json(&["node", "ls"]);
        let found = nodes["data"].as_array().expect("a list").iter().find(|one| one["id"] == id);
        found.cloned().unwrap_or_default()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start_server(&mut self, listen: &str) {
        let mut command = Command::new(BURSAR);
        command.args(["serve", "--listen", listen, "--config"]).arg(self.path("server.toml"));
        command.arg("--data").arg(self.path(&self.data));
        command.arg("--root-key-file").arg(self.path("root.key"));
        command.env("BURSAR_LOG", "error").stdout(Stdio::piped());
        let mut child = command.spawn().expect("the binary is there");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let said = lines
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("listening on ").map(str::to_owned));
        self.url = said.expect("it says where it listens");
        self.server = Some(child);
    }

    /// Kills the server as a power cut would, and starts it again at the same address.
    pub(crate) fn crash_server(&mut self) {
        kill_and_wait(self.server.take().expect("it runs"));
        let address = self.url.trim_start_matches("http://").to_owned();
        self.start_server(&address);
    }

    /// Starts the agent of a node with two simulated GPUs, and waits until the node is ready.
    pub(crate) fn start_agent(&mut self, node: &str) {
        self.start_agent_with(node, &[]);
    }

    /// The same, with more flags.
    pub(crate) fn start_agent_with(&mut self, node: &str, flags: &[&str]) {
        let mut command = self.plain_agent(node);
        command.arg("--state").arg(self.path(node)).arg("--workdir").arg(self.folder.path());
        command.args(flags);
        self.launch_agent(node, command);
    }

    /// The same, with jobs that run as another user.
    pub(crate) fn start_agent_for(&mut self, node: &str, user: &str) {
        let mut command = self.plain_agent(node);
        command.arg("--state").arg(self.path(node)).args(["--workdir", "/", "--run-as", user]);
        self.launch_agent(node, command);
    }

    /// The same with its state in another place.
    pub(crate) fn start_agent_at(&mut self, node: &str, state: &str) {
        let mut command = self.plain_agent(node);
        command.args(["--state", state]);
        self.launch_agent(node, command);
    }

    /// The same with no flags but those that every agent needs.
    pub(crate) fn start_plain_agent(&mut self, node: &str) {
        let command = self.plain_agent(node);
        self.launch_agent(node, command);
    }

    /// The agent of a node, which is not started.
    pub(crate) fn plain_agent(&self, node: &str) -> Command {
        let mut command = Command::new(BURSAR);
        command.args(["agent", "--server", &self.url, "--region", "default", "--node", node]);
        command.args(["--fake-gpus", "H100:2:80", "--key-file"]).arg(self.path("agent.key"));
        command.env("BURSAR_LOG", "error").env("HOME", self.folder.path());
        command.env("XDG_STATE_HOME", self.path("state"));
        command
    }

    fn launch_agent(&mut self, node: &str, mut command: Command) {
        let child = command.spawn().expect("the binary is there");
        self.agents.insert(node.to_owned(), child);
        until(|| {
            let nodes = self.json(&["node", "ls"]);
            let nodes = nodes["data"].as_array().expect("a list");
            nodes.iter().any(|one| one["id"] == node && one["state"] == "ready").then_some(())
        });
    }

    /// Kills an agent as a power cut would. Its supervisors and jobs go on.
    pub(crate) fn kill_agent(&mut self, node: &str) {
        kill_and_wait(self.agents.remove(node).expect("it runs"));
    }

    /// The command with the root key.
    pub(crate) fn bursar(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(BURSAR);
        command.args(arguments).env("BURSAR_SERVER", &self.url).env("HOME", self.folder.path());
        command.env("BURSAR_KEY_FILE", self.path("root.key")).env_remove("BURSAR_CONTEXTS");
        command.stdin(Stdio::null());
        command
    }

    pub(crate) fn output(&self, arguments: &[&str]) -> Output {
        self.bursar(arguments).output().expect("the binary is there")
    }

    /// The output of a command that succeeds.
    #[track_caller]
    pub(crate) fn done(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).expect("text")
    }

    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let mut all = arguments.to_vec();
        all.extend(["-o", "json"]);
        serde_json::from_str(&self.done(&all)).expect("JSON")
    }

    /// Submits a script on GPUs of one node and does not wait for it.
    #[track_caller]
    pub(crate) fn submit(&self, id: &str, gpus: &str, script: &str) {
        let arguments =
            ["run", "--id", id, "-a", "acme", "-g", gpus, "-t", "10m", "--grace", "20s"];
        let mut all = arguments.to_vec();
        all.extend(["--yes", "--detach", "--", "bash", "-c", script]);
        self.done(&all);
    }

    pub(crate) fn job(&self, id: &str) -> Value {
        self.json(&["job", "show", id])
    }

    /// Waits until a job is in a state.
    pub(crate) fn wait_for(&self, id: &str, state: &str) -> Value {
        until(|| {
            let job = self.job(id);
            (job["state"] == state).then_some(job)
        })
    }

    /// Waits until a job has printed something.
    pub(crate) fn says(&self, id: &str, what: &str) {
        until(|| {
            let output = self.output(&["logs", id]);
            String::from_utf8_lossy(&output.stdout).contains(what).then_some(())
        });
    }

    /// The running processes of a job's attempts on all nodes.
    pub(crate) fn left(&self, job: &Value) -> Vec<Identity> {
        let attempts = job["attempts"].as_array().expect("a list");
        let mut found = Vec::new();
        for attempt in attempts {
            let id = attempt["id"].as_str().expect("an id");
            for node in attempt["nodes"].as_array().expect("a list") {
                let node = node.as_str().expect("a name");
                let place = self.path(node).join("attempts").join(id).display().to_string();
                found.extend(marked("BURSAR_PLACE", &place).expect("/proc is there"));
            }
        }
        found
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("written");
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("readable")
    }

    /// Every attempt of these jobs cost its price times its GPU time, to the micro-credit; that is
    /// what the account lacks; nothing is held any more; the journals verify.
    #[track_caller]
    pub(crate) fn check_books(&self, jobs: &[&str]) {
        let mut charged = 0;
        for id in jobs {
            let job = self.job(id);
            let attempts = job["attempts"].as_array().expect("a list");
            for attempt in attempts {
                let gpu_ms = u128::from(attempt["gpu_ms"].as_u64().expect("a number"));
                // One credit per GPU-second: a thousandth per millisecond, and nothing to round.
                assert_eq!(micros(&attempt["per_gpu_hour"]), 3_600_000_000);
                assert_eq!(micros(&attempt["charged"]), gpu_ms * 1000, "{attempt}");
                charged += gpu_ms * 1000;
            }
        }
        let balance = self.json(&["balance", "acme"]);
        assert_eq!(micros(&balance["spendable"]), 1_000_000_000_000 - charged, "{balance}");
        assert_eq!(balance["held"], "0");
        let mut command = Command::new(BURSAR);
        let verified =
            command.args(["audit", "verify", "--data"]).arg(self.path(&self.data)).output();
        let verified = verified.expect("the binary is there");
        let errors = String::from_utf8_lossy(&verified.stderr);
        assert!(verified.status.success(), "{errors}");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // What still runs after a test that failed.
        let agents = std::mem::take(&mut self.agents);
        agents.into_values().for_each(kill_and_wait);
        if let Some(server) = self.server.take() {
            kill_and_wait(server);
        }
        clear(self.folder.path());
        if !std::thread::panicking() {
            let stores = ["data", "fresh", "restored"].map(|name| self.path(name));
            stores.iter().filter(|store| store.is_dir()).for_each(|store| rehearse(store));
        }
    }
}

/// Ends every remaining job under the folder of the test.
fn clear(folder: &Path) {
    for record in records(folder) {
        let text = std::fs::read_to_string(record).unwrap_or_default();
        let record: Value = serde_json::from_str(&text).unwrap_or_default();
        if record["ended"] == false
            && let Some(pid) = record["supervisor"]["pid"].as_i64()
        {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
    }
}

fn records(folder: &Path) -> Vec<PathBuf> {
    let list = |path: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let attempts = list(folder).into_iter().flat_map(|node| list(&node.join("attempts")));
    attempts.map(|attempt| attempt.join("record.json")).collect()
}

fn kill_and_wait(mut child: Child) {
    // It may have ended already.
    let _ = child.kill();
    let _ = child.wait();
}

/// Micro-credits out of an amount as it is written.
pub(crate) fn micros(amount: &Value) -> u128 {
    bursar_testkit::binary::micros(amount.as_str().expect("an amount is text"))
}
