//! A PostgreSQL of our own with one synchronous standby, set up as the baseline sets up its own but for the memory:
//! a journal is written once and hardly read, so that what PostgreSQL takes by default is enough.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::exit::Failure;

const STANDBY: &str = "second";
const SETTINGS: [&str; 3] = ["max_wal_size=8GB", "checkpoint_timeout=15min", "listen_addresses="];

/// The primary and its standby; both end with it.
pub(in crate::bench) struct Pair {
    psql: PathBuf,
    primary: Server,
    _standby: Server,
}

struct Server {
    folder: PathBuf,
    port: u16,
    process: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        let id = i32::try_from(self.process.id()).map(nix::unistd::Pid::from_raw);
        // A fast shutdown; it may have ended by itself.
        let _ = id.map(|id| nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGINT));
        let _ = self.process.wait();
    }
}

fn failed(what: impl std::fmt::Display) -> Failure {
    Failure::new("the PostgreSQL of the benchmark", what)
}

/// PostgreSQL refuses to run as root.
fn unprivileged(program: &Path) -> Command {
    if !nix::unistd::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(program);
    command
}

fn finished(command: &mut Command) -> Result<String, Failure> {
    let output = command.stdin(Stdio::null()).output()?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Pair {
    /// Starts both in `folder`, whose disk is what is measured.
    pub(in crate::bench) fn start(binaries: &Path, folder: &Path) -> Result<Pair, Failure> {
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777))?;
        let data = folder.join("primary");
        let words = ["--username=bursar", "--auth=trust", "--encoding=UTF8", "--no-locale"];
        finished(unprivileged(&binaries.join("initdb")).arg("-D").arg(&data).args(words))?;
        let primary = Server::start(binaries, folder, "primary", 1)?;
        let data = folder.join("standby");
        let source = format!("{} application_name={STANDBY}", primary.url());
        finished(unprivileged(&binaries.join("pg_basebackup")).arg("-D").arg(&data).args([
            "--write-recovery-conf",
            "--checkpoint=fast",
            "--dbname",
            &source,
        ]))?;
        let standby = Server::start(binaries, folder, "standby", 2)?;
        let psql = binaries.join("psql");
        let sql = |sql: &str| {
            let words = ["--no-psqlrc", "-qAt", "-v", "ON_ERROR_STOP=1", "-c", sql];
            finished(Command::new(&psql).args(words).arg(primary.url()))
        };
        sql(&format!("ALTER SYSTEM SET synchronous_standby_names = '{STANDBY}'"))?;
        sql("SELECT pg_reload_conf()")?;
        let follows = || Ok(sql("SELECT sync_state FROM pg_stat_replication")? == "sync");
        if !becomes_true(follows)? {
            return Err(failed("the standby does not follow"));
        }
        Ok(Pair { psql, primary, _standby: standby })
    }

    /// How to connect, in libpq's words.
    pub(in crate::bench) fn url(&self) -> String {
        self.primary.url()
    }

    /// The same for a new, empty database.
    pub(in crate::bench) fn database(&self, name: &str) -> Result<String, Failure> {
        let words = ["--no-psqlrc", "-qAt", "-v", "ON_ERROR_STOP=1", "-c"];
        let create = format!("CREATE DATABASE {name}");
        finished(Command::new(&self.psql).args(words).arg(create).arg(self.url()))?;
        Ok(self.url().replace("dbname=postgres", &format!("dbname={name}")))
    }
}

impl Server {
    /// Starts a server on a socket in `folder`; the port only names its file.
    fn start(binaries: &Path, folder: &Path, name: &str, port: u16) -> Result<Server, Failure> {
        let mut command = unprivileged(&binaries.join("postgres"));
        command.arg("-D").arg(folder.join(name)).arg("-k").arg(folder);
        command.args(["-p", &port.to_string()]);
        command.args(SETTINGS.iter().flat_map(|setting| ["-c", setting]));
        let log = folder.join(format!("{name}.log"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(std::fs::File::create(&log)?);
        let process = command.spawn()?;
        let server = Server { folder: folder.to_owned(), port, process };
        let ready = || {
            let mut asked = Command::new(binaries.join("pg_isready"));
            let asked = asked.arg("-q").arg("-h").arg(folder).args(["-p", &port.to_string()]);
            Ok(asked.status()?.success())
        };
        if !becomes_true(ready)? {
            return Err(failed(std::fs::read_to_string(log)?));
        }
        Ok(server)
    }

    fn url(&self) -> String {
        let (folder, port) = (self.folder.display(), self.port);
        format!("host={folder} port={port} user=bursar dbname=postgres")
    }
}

/// Asks every 20 ms, for 20 seconds at most.
fn becomes_true(mut asked: impl FnMut() -> Result<bool, Failure>) -> Result<bool, Failure> {
    for _ in 0..1000 {
        if asked()? {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(false)
}
