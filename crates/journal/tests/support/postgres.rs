//! PostgreSQL servers for tests, from the installed binaries, on Unix sockets.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::TempDir;

/// Only names the socket file: every server has its own directory.
static NEXT_PORT: AtomicU32 = AtomicU32::new(54_000);

/// A running server, stopped and removed when dropped.
pub struct TestPostgres {
    directory: TempDir,
    port: u32,
    arguments: Vec<String>,
    server: Child,
}

/// The role that administers the servers. Everything under test connects as an ordinary role that
/// owns its database and nothing else.
const ADMINISTRATOR: &str = "administrator";
const ORDINARY: &str = "bursar";

/// The folder of the installed programs.
pub fn binaries() -> PathBuf {
    let found = fs::read_dir("/usr/lib/postgresql").ok().and_then(|versions| {
        let mut found: Vec<PathBuf> = versions
            .filter_map(|version| Some(version.ok()?.path().join("bin")))
            .filter(|bin| bin.join("initdb").exists())
            .collect();
        found.sort();
        found.pop()
    });
    found.expect(
        "these tests run a PostgreSQL server of their own and found none under \
         /usr/lib/postgresql: install the Debian package `postgresql` (version 15 or newer)",
    )
}

/// A command as a user that PostgreSQL accepts: it refuses to run as root.
pub fn unprivileged(program: &Path) -> Command {
    if !nix::unistd::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(program);
    command
}

/// An unused port.
fn free_port() -> u32 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it is bound").port().into()
}

fn run(command: &mut Command) {
    let output = command.output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}");
}

impl TestPostgres {
    /// A new, empty primary with `fsync` on.
    pub fn start() -> TestPostgres {
        Self::launch(Self::initialized(), &["-h", ""]).with_a_database()
    }

    /// A new, empty primary on a port of this machine. It encrypts if it is given a certificate and
    /// its key.
    pub fn on_a_port(certified: Option<(&str, &str)>) -> TestPostgres {
        let directory = Self::initialized();
        let mut arguments = vec!["-h", "localhost,127.0.0.1"];
        if let Some((certificate, key)) = certified {
            let data = directory.path().join("data");
            Self::put(&data.join("server.crt"), certificate);
            Self::put(&data.join("server.key"), key);
            arguments.extend(["-c", "ssl=on"]);
        }
        Self::launch(directory, &arguments).with_a_database()
    }

    /// A new, empty primary that copies each finished file of its log to a folder.
    pub fn archiving() -> TestPostgres {
        let directory = Self::initialized();
        let log = directory.path().join("wal");
        Self::open_to_all(&log);
        let command = format!("archive_command=cp %p {}/%f", log.display());
        Self::launch(directory, &["-h", "", "-c", "archive_mode=on", "-c", &command])
            .with_a_database()
    }

    /// Names this point, and waits until the log up to it is in the folder.
    pub fn restore_point(&self, name: &str) {
        let file = self.sql(&format!("SELECT pg_walfile_name(pg_create_restore_point('{name}'))"));
        self.sql("SELECT pg_switch_wal()");
        let archived = format!("SELECT last_archived_wal >= '{file}' FROM pg_stat_archiver");
        self.wait_for(&archived, "t");
    }

    /// A copy of the files of a running server, and with the log of it a server as it was at a named point.
    pub fn base_backup(&self) -> impl FnOnce(&str) -> TestPostgres {
        let directory = self.copied("backup", &[]);
        let log = self.directory.path().join("wal").display().to_string();
        move |point| {
            Self::put(&directory.path().join("data/recovery.signal"), "");
            let command = format!("restore_command=cp {log}/%f %p");
            let point = format!("recovery_target_name={point}");
            let settings = ["-c", &command, "-c", &point, "-c", "recovery_target_action=promote"];
            let recovered = Self::launch(directory, &[&["-h", ""], &settings[..]].concat());
            recovered.wait_for("SELECT pg_is_in_recovery()", "f");
            recovered
        }
    }

    /// An ordinary role, and a database that it owns.
    fn with_a_database(self) -> TestPostgres {
        let statements = [
            format!("CREATE ROLE {ORDINARY} LOGIN"),
            format!("CREATE DATABASE {ORDINARY} OWNER {ORDINARY}"),
        ];
        for statement in statements {
            self.sql_in("postgres", &statement);
        }
        self
    }

    /// A file that only the server's user may read.
    fn put(path: &Path, text: &str) {
        fs::write(path, text).expect("the directory is ours");
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("the file is ours");
        if nix::unistd::geteuid().is_root() {
            let user = nix::unistd::User::from_name("postgres").expect("users can be looked up");
            let user = user.expect("the package has made this user");
            nix::unistd::chown(path, Some(user.uid), Some(user.gid)).expect("root may do this");
        }
    }

    fn initialized() -> TempDir {
        let directory = Self::open_directory();
        let data = directory.path().join("data");
        run(unprivileged(&binaries().join("initdb")).arg("-D").arg(&data).args([
            &format!("--username={ADMINISTRATOR}"),
            "--auth=trust",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
        ]));
        directory
    }

    /// A standby of this server, named `name` in `synchronous_standby_names`.
    pub fn standby(&self, name: &str) -> TestPostgres {
        Self::launch(self.copied(name, &["--write-recovery-conf"]), &["-h", ""])
    }

    /// A copy of the files of the running server.
    fn copied(&self, name: &str, flags: &[&str]) -> TempDir {
        let directory = Self::open_directory();
        let source = format!(
            "host={} port={} user={ADMINISTRATOR} application_name={name}",
            self.directory.path().display(),
            self.port
        );
        run(unprivileged(&binaries().join("pg_basebackup"))
            .arg("-D")
            .arg(directory.path().join("data"))
            .args(["--checkpoint=fast", "--no-sync", "--dbname", &source])
            .args(flags));
        directory
    }

    fn open_directory() -> TempDir {
        let directory = TempDir::new();
        Self::open_to_all(directory.path());
        directory
    }

    /// A directory in which the server's user may write.
    fn open_to_all(directory: &Path) {
        fs::create_dir_all(directory).expect("it is ours");
        fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).expect("it is ours");
    }

    fn launch(directory: TempDir, arguments: &[&str]) -> TestPostgres {
        let port = match arguments {
            ["-h", "", ..] => NEXT_PORT.fetch_add(1, Ordering::Relaxed),
            _ => free_port(),
        };
        let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
        let server = Self::spawn(&directory, port, &arguments);
        let postgres = TestPostgres { directory, port, arguments, server };
        postgres.wait_until_ready();
        postgres
    }

    fn spawn(directory: &TempDir, port: u32, arguments: &[String]) -> Child {
        let log = fs::File::options().create(true).append(true).open(directory.path().join("log"));
        unprivileged(&binaries().join("postgres"))
            .arg("-D")
            .arg(directory.path().join("data"))
            .arg("-k")
            .arg(directory.path())
            .args(["-p", &port.to_string(), "-c", "max_connections=80"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("the directory is ours"))
            .spawn()
            .expect("the server starts")
    }

    /// Stops the server: connections are cut, nothing is lost.
    pub fn stop(&mut self) {
        self.signal(nix::sys::signal::Signal::SIGINT);
        self.server.wait().expect("the test started it");
    }

    /// Stops the server at once, as a crash does: its next start recovers from its log.
    pub fn crash(&mut self) {
        self.signal(nix::sys::signal::Signal::SIGQUIT);
        self.server.wait().expect("the test started it");
    }

    /// Starts it again after [`TestPostgres::stop`].
    pub fn start_again(&mut self) {
        self.server = Self::spawn(&self.directory, self.port, &self.arguments);
        self.wait_until_ready();
    }

    fn signal(&self, signal: nix::sys::signal::Signal) {
        // Sent to the postmaster itself: `setpriv` replaces itself with it.
        let id = i32::try_from(self.server.id()).expect("process ids are small");
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(id), signal);
    }

    fn wait_until_ready(&self) {
        let mut ready = Command::new(binaries().join("pg_isready"));
        ready.arg("-q").arg("-h").arg(self.directory.path()).args(["-p", &self.port.to_string()]);
        let mut tries = 0;
        while !ready.status().expect("pg_isready starts").success() {
            tries += 1;
            let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
            assert!(tries < 1_000, "the server does not come up:\n{log}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// Where it listens, if it was started on a port.
    pub fn address(&self) -> std::net::SocketAddr {
        let port = u16::try_from(self.port).expect("a port");
        (std::net::Ipv4Addr::LOCALHOST, port).into()
    }

    /// The connection string of the ordinary role through a proxy on this machine.
    pub fn url_through(&self, proxy: std::net::SocketAddr) -> String {
        let (host, port) = (proxy.ip(), proxy.port());
        format!("host={host} port={port} user={ORDINARY} dbname={ORDINARY}")
    }

    /// The connection string of the ordinary role over TCP.
    pub fn url_by_port(&self, host: &str) -> String {
        format!("host={host} port={} user={ORDINARY} dbname={ORDINARY}", self.port)
    }

    /// The connection string of the ordinary role.
    pub fn url(&self) -> String {
        let host = self.directory.path().display();
        format!("host={host} port={} user={ORDINARY} dbname={ORDINARY}", self.port)
    }

    /// The connection string of the ordinary role to this server or another one, whichever takes writes.
    pub fn url_with(&self, other: &TestPostgres) -> String {
        let hosts = [self, other].map(|server| server.directory.path().display().to_string());
        let ports = [self, other].map(|server| server.port.to_string());
        format!(
            "host={} port={} user={ORDINARY} dbname={ORDINARY} target_session_attrs=read-write",
            hosts.join(","),
            ports.join(",")
        )
    }

    /// Runs SQL as an administrator and returns the output.
    pub fn sql(&self, sql: &str) -> String {
        self.sql_in(ORDINARY, sql)
    }

    /// Creates another database of the ordinary role and returns its connection string.
    pub fn database(&self, name: &str) -> String {
        self.sql(&format!("CREATE DATABASE {name} OWNER {ORDINARY}"));
        self.url().replace(&format!("dbname={ORDINARY}"), &format!("dbname={name}"))
    }

    /// Runs SQL in another database.
    pub fn sql_in(&self, database: &str, sql: &str) -> String {
        let host = self.directory.path().display();
        let url = format!("host={host} port={} user={ADMINISTRATOR} dbname={database}", self.port);
        let output = Command::new(binaries().join("psql"))
            .args(["--no-psqlrc", "-qAt", "-v", "ON_ERROR_STOP=1", "-c", sql, &url])
            .output()
            .expect("psql starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{sql}: {text}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Queries until the answer is `expected`.
    pub fn wait_for(&self, sql: &str, expected: &str) {
        let mut tries = 0;
        while self.sql(sql) != expected {
            tries += 1;
            assert!(tries < 1_000, "{sql} never became {expected}");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

impl Drop for TestPostgres {
    fn drop(&mut self) {
        self.signal(nix::sys::signal::Signal::SIGQUIT);
        let _ = self.server.wait();
    }
}
