//! The members of a cluster as processes of their own, each at an address that it keeps.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::journal_support::postgres::TestPostgres;

const BURSAR: &str = env!("CARGO_BIN_EXE_bursar");
pub(crate) const ROOT_KEY: &str = "root-key-of-several-servers-that-is-long-enough";
/// How many members a cluster has.
pub(crate) const MEMBERS: usize = 3;

/// Servers that share a store, and an agent that knows all of them.
pub(crate) struct ServerProcesses {
    pub(crate) folder: TempDir,
    /// How tools reach the database.
    pub(crate) store: String,
    /// How each member reaches it.
    pub(crate) stores: Vec<String>,
    /// Where each member is reached.
    pub(crate) urls: Vec<String>,
    /// Where the other members reach each member.
    pub(crate) advertised: Vec<String>,
    /// Flags of every member.
    pub(crate) flags: Vec<&'static str>,
    /// A program, with its arguments, that runs what follows as the same process; none for most members.
    pub(crate) wrappers: Vec<Vec<String>>,
    running: Vec<Option<Child>>,
    agent: Option<Child>,
}

/// A database, whichever server of it is the primary.
pub(crate) trait QueriedDatabase {
    /// Runs SQL and returns the output.
    fn sql(&self, sql: &str) -> String;
}

impl QueriedDatabase for TestPostgres {
    fn sql(&self, sql: &str) -> String {
        TestPostgres::sql(self, sql)
    }
}

/// An address at which nothing listens.
pub(crate) fn free_url() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    format!("http://{}", listener.local_addr().expect("it is bound"))
}

impl ServerProcesses {
    /// Starts all members at the same instant.
    pub(crate) fn start(store: &str) -> ServerProcesses {
        let mut cluster = ServerProcesses::prepare(store);
        cluster.launch_all();
        cluster
    }

    /// Members that do not run yet.
    pub(crate) fn prepare(store: &str) -> ServerProcesses {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join("root.key"), ROOT_KEY).expect("the folder is ours");
        let mut urls: Vec<String> = Vec::new();
        while urls.len() < MEMBERS {
            let url = free_url();
            if !urls.contains(&url) {
                urls.push(url);
            }
        }
        ServerProcesses {
            folder,
            store: store.to_owned(),
            stores: vec![store.to_owned(); MEMBERS],
            advertised: urls.clone(),
            urls,
            flags: Vec::new(),
            wrappers: vec![Vec::new(); MEMBERS],
            running: (0..MEMBERS).map(|_| None).collect(),
            agent: None,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn log(&self, name: &str) -> File {
        let log = File::options().create(true).append(true).open(self.path(name));
        log.expect("the folder is ours")
    }

    /// Starts every member that does not run.
    pub(crate) fn launch_all(&mut self) {
        for member in 0..MEMBERS {
            if self.running[member].is_none() {
                self.launch(member);
            }
        }
    }

    /// Starts a member at its address.
    pub(crate) fn launch(&mut self, member: usize) {
        let name = name(member);
        let address = self.urls[member].trim_start_matches("http://").to_owned();
        let mut words = self.wrappers[member].iter().map(String::as_str).chain([BURSAR]);
        let mut command = Command::new(words.next().expect("the binary is the last"));
        command.args(words).args(["serve", "--unsafe-single-postgres", "--listen", &address]);
        command.args(["--store", &self.stores[member], "--member", &name]);
        command.args(["--advertise", &self.advertised[member]]).args(&self.flags);
        command.arg("--root-key-file").arg(self.path("root.key")).env("BURSAR_LOG", "warn");
        command.stdout(Stdio::null());
        command.stderr(self.log(&format!("{name}.log")));
        self.running[member] = Some(command.spawn().expect("the binary is there"));
    }

    /// Sends a signal to a member.
    pub(crate) fn signal(&self, member: usize, signal: &str) {
        let process = self.running[member].as_ref().expect("it runs").id().to_string();
        let sent = Command::new("kill").args([signal, &process]).status();
        assert!(sent.expect("kill is there").success());
    }

    /// A folder as a member sees it.
    pub(crate) fn inside(&self, member: usize, folder: &Path) -> PathBuf {
        let process = self.running[member].as_ref().expect("it runs").id();
        let root = PathBuf::from(format!("/proc/{process}/root"));
        root.join(folder.strip_prefix("/").expect("an absolute path"))
    }

    /// Kills a member as a power cut would.
    pub(crate) fn kill(&mut self, member: usize) {
        let mut child = self.running[member].take().expect("it runs");
        child.kill().expect("it runs");
        child.wait().expect("it is ours");
    }

    /// Asks a member to end, and waits until it has.
    pub(crate) fn stop(&mut self, member: usize) {
        self.signal(member, "-TERM");
        let ended = self.running[member].take().expect("it runs").wait().expect("it is ours");
        assert!(ended.success(), "{} did not end in order: {ended}", name(member));
    }

    /// Waits until a member has ended by itself.
    pub(crate) fn ended(&mut self, member: usize) -> std::process::ExitStatus {
        self.running[member].take().expect("it runs").wait().expect("it is ours")
    }

    /// The member that leads, once there is one.
    pub(crate) fn leader(&self, database: &impl QueriedDatabase) -> usize {
        let held = "SELECT url FROM bursar_store WHERE until >= clock_timestamp()";
        loop {
            let url = database.sql(held);
            if let Some(member) = self.advertised.iter().position(|known| *known == url) {
                return member;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// Starts the agent of a node with one simulated GPU.
    pub(crate) fn start_agent(&mut self, key: &str) {
        let file = self.path("agent.key");
        std::fs::write(&file, key).expect("the folder is ours");
        let own = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&file, own).expect("the file is ours");
        let mut command = Command::new(BURSAR);
        command.args(["agent", "--server", &self.urls.join(","), "--region", "default"]);
        command.args(["--node", "n1", "--fake-gpus", "H100:1:80", "--key-file"]).arg(file);
        command.arg("--state").arg(self.path("n1")).arg("--workdir").arg(self.folder.path());
        command.env("BURSAR_LOG", "warn").env("HOME", self.folder.path());
        command.stdout(Stdio::null()).stderr(self.log("agent.log"));
        self.agent = Some(command.spawn().expect("the binary is there"));
    }

    /// Rehearses the loss of the store, once all members have ended.
    pub(crate) fn rehearse(&self) {
        crate::rehearsal::rehearse_postgres(&self.store);
    }

    /// Runs the binary; returns what it printed if it succeeded.
    #[track_caller]
    pub(crate) fn tool(&self, arguments: &[&str]) -> String {
        let output = Command::new(BURSAR).args(arguments).output().expect("the binary is there");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Runs the binary, which must fail; returns what it said.
    #[track_caller]
    pub(crate) fn fails(&self, arguments: &[&str]) -> String {
        let output = Command::new(BURSAR).args(arguments).output().expect("the binary is there");
        assert!(!output.status.success(), "{arguments:?} succeeded");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// The records of each ledger as lines of JSON, read by the auditor's own code, once all journals verify.
    pub(crate) fn records(&self) -> Vec<String> {
        self.tool(&["audit", "verify", "--store", &self.store]);
        let copy = self.path("copy").display().to_string();
        self.tool(&["admin", "backup", "--store", &self.store, "--without-key", &copy]);
        let shards =
            (0..).take_while(|shard| self.path("copy").join(format!("ledger-{shard}.db")).exists());
        let export = |shard: u32| {
            self.tool(&["admin", "export", "--data", &copy, "--shard", &shard.to_string()])
        };
        shards.map(export).collect()
    }
}

/// The name of a member.
pub(crate) fn name(member: usize) -> String {
    format!("m{member}")
}

impl Drop for ServerProcesses {
    fn drop(&mut self) {
        // Some have ended already.
        for child in self.running.iter_mut().flatten().chain(&mut self.agent) {
            let _ = child.kill();
            let _ = child.wait();
        }
        // The job of the agent has a supervisor that outlives the agent.
        crate::work::end_attempts(&self.path("n1"));
        if !std::thread::panicking() {
            return;
        }
        for log in (0..MEMBERS).map(|member| format!("{}.log", name(member))) {
            let text = std::fs::read_to_string(self.path(&log)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            eprintln!(
                "{log}, its last lines:\n{}",
                lines[lines.len().saturating_sub(15)..].join("\n")
            );
        }
    }
}
