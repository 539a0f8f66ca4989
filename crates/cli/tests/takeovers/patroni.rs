//! Two PostgreSQL that Patroni runs, with the configuration of `deploy/compose` and an etcd, on this machine.

use std::fs::{File, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::journal_support::postgres::{binaries, unprivileged};
use crate::members::{QueriedDatabase, ServerProcesses};
use crate::{ClusterUnderLoad, rounds};

/// What is shipped, with what differs here: addresses, folders, and shorter times.
const SHIPPED: &str = include_str!("../../../../deploy/compose/patroni.yaml");
const MAKE_DATABASE: &str = include_str!("../../../../deploy/compose/make-database");

/// An etcd, and two databases that elect their primary in it.
struct PatroniDatabases {
    folder: TempDir,
    etcd: Child,
    etcd_port: u16,
    nodes: Vec<PatroniNode>,
}

struct PatroniNode {
    name: &'static str,
    port: u16,
    rest_port: u16,
    patroni: Option<Child>,
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it is bound").port()
}

/// Whether the packages are there. Where nothing may be skipped they must be.
fn is_installed() -> bool {
    let found = |program: &&str| !Path::new("/usr/bin").join(program).exists();
    let missing: Vec<&str> = ["patroni", "etcd"].into_iter().filter(found).collect();
    let is_required = std::env::var_os("BURSAR_SKIP_NO_TEST").is_some();
    assert!(
        missing.is_empty() || !is_required,
        "{missing:?}: run scripts/setup, which installs the Debian packages patroni and etcd-server"
    );
    if !missing.is_empty() {
        println!("skipped: {missing:?} are not installed; scripts/setup installs them");
    }
    missing.is_empty()
}

/// Waits until an address answers 200.
async fn until_good(url: &str) {
    let http = crate::clients::client();
    loop {
        if let Ok(answer) = http.get(url).send().await
            && answer.status() == 200
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

impl PatroniDatabases {
    async fn start() -> PatroniDatabases {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let all = Permissions::from_mode(0o777);
        std::fs::set_permissions(folder.path(), all).expect("the folder is ours");
        let make = folder.path().join("make-database");
        std::fs::write(&make, MAKE_DATABASE).expect("the folder is ours");
        let program = Permissions::from_mode(0o755);
        std::fs::set_permissions(&make, program).expect("the file is ours");
        let (etcd_port, peers) = (free_port(), format!("http://127.0.0.1:{}", free_port()));
        let clients = format!("http://127.0.0.1:{etcd_port}");
        let mut etcd = unprivileged(Path::new("/usr/bin/etcd"));
        etcd.arg("--data-dir").arg(folder.path().join("etcd"));
        etcd.args(["--name", "e", "--initial-cluster", &format!("e={peers}")]);
        etcd.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        etcd.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        let etcd = etcd.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log(&folder, "etcd"));
        let etcd = etcd.spawn().expect("it is installed");
        until_good(&format!("{clients}/health")).await;
        let node = |name| {
            let (port, rest_port) = (free_port(), free_port());
            PatroniNode { name, port, rest_port, patroni: None }
        };
        let nodes = vec![node("pg1"), node("pg2")];
        let mut databases = PatroniDatabases { folder, etcd, etcd_port, nodes };
        databases.launch(0);
        databases.until(0, "primary").await;
        databases.launch(1);
        databases.until(1, "synchronous").await;
        databases
    }

    fn data(&self, node: usize) -> PathBuf {
        self.folder.path().join(self.nodes[node].name)
    }

    /// The shipped configuration with this node's addresses and folders.
    fn configuration(&self, node: usize) -> String {
        let found = &self.nodes[node];
        let (folder, data) = (self.folder.path().display(), self.data(node));
        let mut text = SHIPPED.to_owned();
        for (shipped, here) in [
            ("etcd:2379", format!("127.0.0.1:{}", self.etcd_port)),
            ("0.0.0.0:8008", format!("127.0.0.1:{}", found.rest_port)),
            ("0.0.0.0:5432", format!("127.0.0.1:{}", found.port)),
            ("/usr/local/bin/make-database", format!("{folder}/make-database")),
            ("data_dir: /var/lib/postgresql/data", format!("data_dir: {}", data.display())),
            ("/usr/lib/postgresql/15/bin", binaries().display().to_string()),
            ("ttl: 30", "ttl: 5".into()),
            ("loop_wait: 10", "loop_wait: 1".into()),
            ("retry_timeout: 10", "retry_timeout: 2".into()),
        ] {
            assert_eq!(text.matches(shipped).count(), 1, "deploy/compose/patroni.yaml: {shipped}");
            text = text.replace(shipped, &here);
        }
        format!(
            "name: {}\n{text}\n  parameters:\n    unix_socket_directories: {folder}\n",
            found.name
        )
    }

    /// Starts a node.
    fn launch(&mut self, node: usize) {
        let file = self.folder.path().join(format!("{}.yaml", self.nodes[node].name));
        std::fs::write(&file, self.configuration(node)).expect("the folder is ours");
        let mut patroni = unprivileged(Path::new("/usr/bin/patroni"));
        patroni.arg(file).stdin(Stdio::null()).stdout(Stdio::null());
        patroni.current_dir(self.folder.path()).env("HOME", self.folder.path());
        patroni.stderr(log(&self.folder, self.nodes[node].name));
        self.nodes[node].patroni = Some(patroni.spawn().expect("it is installed"));
    }

    /// Waits until a node has a role.
    async fn until(&self, node: usize, role: &str) {
        until_good(&format!("http://127.0.0.1:{}/{role}", self.nodes[node].rest_port)).await;
    }

    /// The node whose database is the primary.
    async fn primary(&self) -> usize {
        tokio::select! {
            () = self.until(0, "primary") => 0,
            () = self.until(1, "primary") => 1,
        }
    }

    /// Kills a node as a power cut of its machine would.
    fn kill(&mut self, node: usize) {
        if let Some(mut patroni) = self.nodes[node].patroni.take() {
            let _ = patroni.kill();
            let _ = patroni.wait();
        }
        let lines = std::fs::read_to_string(self.data(node).join("postmaster.pid"));
        let Ok(lines) = lines else { return };
        if let Some(process) = lines.lines().next() {
            let _ = Command::new("kill").args(["-9", process]).stderr(Stdio::null()).status();
        }
    }

    /// The connection string of the servers.
    fn url(&self) -> String {
        let [one, two] = [self.nodes[0].port, self.nodes[1].port];
        format!(
            "postgres://bursar:bursar@127.0.0.1:{one},127.0.0.1:{two}/bursar?target_session_attrs=read-write"
        )
    }
}

fn log(folder: &TempDir, name: &str) -> File {
    let path = folder.path().join(format!("{name}.log"));
    File::options().create(true).append(true).open(path).expect("the folder is ours")
}

impl QueriedDatabase for PatroniDatabases {
    fn sql(&self, sql: &str) -> String {
        loop {
            let mut psql = Command::new(binaries().join("psql"));
            psql.args(["--no-psqlrc", "-qAt", "-v", "ON_ERROR_STOP=1", "-c", sql, &self.url()]);
            let output = psql.output().expect("psql starts");
            if output.status.success() {
                return String::from_utf8_lossy(&output.stdout).trim().to_owned();
            }
            // There may be no primary at the moment.
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for PatroniDatabases {
    fn drop(&mut self) {
        self.kill(0);
        self.kill(1);
        let _ = self.etcd.kill();
        let _ = self.etcd.wait();
        if std::thread::panicking() {
            for name in ["pg1", "pg2"] {
                let path = self.folder.path().join(format!("{name}.log"));
                let text = std::fs::read_to_string(path).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                let last = &lines[lines.len().saturating_sub(15)..];
                eprintln!("{name}, its last lines:\n{}", last.join("\n"));
            }
        }
    }
}

impl ClusterUnderLoad {
    /// Kills the machine of the primary, waits for the promotion, and starts the machine again.
    async fn lose_the_primary(&mut self, databases: &mut PatroniDatabases) {
        let lost = databases.primary().await;
        self.note("Patroni promotes");
        databases.kill(lost);
        databases.until(1 - lost, "primary").await;
        // With one database left, changes wait for a standby.
        databases.launch(lost);
        self.clients.revoke_guests().await;
        self.until_answered().await;
        databases.until(lost, "synchronous").await;
        self.clients.make_guest("promoted").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_patroni_promotes_the_standby_of_a_lost_machine() {
    if !is_installed() {
        return;
    }
    let mut databases = PatroniDatabases::start().await;
    let cluster = ServerProcesses::prepare(&databases.url());
    let mut loaded = ClusterUnderLoad::load(cluster).await;
    for _ in 0..rounds() {
        loaded.lose_the_primary(&mut databases).await;
    }
    loaded.end(&databases).await;
}
