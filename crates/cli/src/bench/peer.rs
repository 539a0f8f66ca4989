//! The peer: a plain implementation in PostgreSQL, measured by its own script.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use serde::Serialize;

use super::Place;
use crate::exit::Failure;

/// Where the peer's script is, seen from the root of the repository.
pub(in crate::bench) const PG_SCRIPT: &str = "crates/bench/peers/pg/run.sh";

/// How a benchmark is repeated, and the baseline beside which it stands.
#[derive(Args)]
pub(in crate::bench) struct BaselineArguments {
    /// The number of repetitions; medians are printed.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(in crate::bench) repetitions: u32,
    /// The length of each repetition, in seconds.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    pub(in crate::bench) seconds: u64,
    /// The script of the PostgreSQL baseline, relative to the root of the repository. Left out if it is not there.
    #[arg(long, value_name = "FILE", default_value = PG_SCRIPT)]
    pub(in crate::bench) baseline: PathBuf,
    /// Numbers of clients of the baseline, separated by commas. The best one counts.
    #[arg(long, value_delimiter = ',', default_values = ["8", "16"])]
    pub(in crate::bench) baseline_clients: Vec<u32>,
    #[command(flatten)]
    pub(in crate::bench) place: Place,
    /// Print only JSON on standard output.
    #[arg(long)]
    pub(in crate::bench) json: bool,
}

/// The timeout of the script in seconds: a standby that does not follow would block it for ever.
const SCRIPT_TIMEOUT_SECONDS: &str = "600";

/// The result of the peer.
#[derive(Clone, Debug, Serialize)]
pub(in crate::bench) struct Peer {
    /// Accounts.
    pub(in crate::bench) accounts: usize,
    /// Clients at which it was best.
    pub(in crate::bench) clients: u32,
    /// Pairs per second there, the median of its runs.
    pub(in crate::bench) pairs_per_second: f64,
}

/// The folder with the newest PostgreSQL's programs, if there is one.
pub(in crate::bench) fn binaries() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("PGBIN") {
        return Some(folder.into());
    }
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut folders: Vec<PathBuf> =
        versions.flatten().map(|entry| entry.path().join("bin")).collect();
    folders.retain(|folder| folder.join("initdb").exists() && folder.join("pgbench").exists());
    folders.sort();
    folders.pop()
}

/// A port that is free, with the next one, and that the system gives to no connection: those of the load just ended
/// may still have what the script would take.
fn free_port() -> Option<u16> {
    let is_free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    (15_932..16_932).step_by(2).find(|port| is_free(*port) && is_free(*port + 1))
}

fn failed(what: impl std::fmt::Display) -> Failure {
    Failure::new("the PostgreSQL baseline", what)
}

/// The peer's script, and how it is to be run.
pub(in crate::bench) struct Baseline<'a> {
    pub(in crate::bench) script: &'a Path,
    /// The folder with PostgreSQL's programs.
    pub(in crate::bench) binaries: &'a Path,
    /// Whether every commit waits for a synchronous standby.
    pub(in crate::bench) standby: bool,
}

impl Baseline<'_> {
    /// The script, with the programs it is to use.
    fn command(&self) -> Command {
        let mut command = Command::new("timeout");
        command.args([SCRIPT_TIMEOUT_SECONDS, "bash"]).arg(self.script).env("PGBIN", self.binaries);
        if self.standby {
            command.arg("-S");
        }
        command
    }

    /// Runs the script at each number of clients and keeps the best.
    pub(in crate::bench) fn measure(
        &self,
        folder: &Path,
        accounts: usize,
        clients: &[u32],
        (seconds, runs): (u64, usize),
    ) -> Result<Peer, Failure> {
        let mut best = Peer { accounts, clients: 0, pairs_per_second: 0.0 };
        let port = free_port().ok_or_else(|| failed("no free port"))?;
        for count in clients {
            let work = folder.join(format!("pg-{accounts}-{count}"));
            let output = self
                .command()
                .env("PGPORT_BASE", port.to_string())
                .args(["-s", "pair", "-c", &count.to_string(), "-a", &accounts.to_string()])
                .args(["-d", &seconds.to_string(), "-r", &runs.to_string(), "-D"])
                .arg(&work)
                .output()?;
            let text = String::from_utf8_lossy(&output.stdout);
            if !output.status.success() || !text.contains("conserved=true") {
                let why = String::from_utf8_lossy(&output.stderr).into_owned();
                return Err(failed(format_args!("{text}{why}")));
            }
            if self.standby && !text.contains("standby: streaming sync") {
                return Err(failed(format_args!("its standby does not follow: {text}")));
            }
            let median = text.lines().next_back().and_then(|line| line.trim().parse::<f64>().ok());
            let pairs_per_second = median.ok_or_else(|| failed("it gave no figure"))?;
            if pairs_per_second > best.pairs_per_second {
                best = Peer { accounts, clients: *count, pairs_per_second };
            }
        }
        Ok(best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_part_of_the_repository() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        assert!(root.join(PG_SCRIPT).is_file());
    }
}
