//! `bursar bench`: performance of the shipped parts on this machine. The measured loops
//! are in `bursar-bench`; here they are called and their figures printed.

mod cell;
mod cluster;
mod core;
mod engine;
mod history;
mod http;
mod jobs;
mod peer;
mod postgres;
mod soak;
mod start;

use std::path::PathBuf;

use bursar_bench::Figure;
use clap::{Args, Subcommand};
use tempfile::TempDir;

use crate::exit::Failure;

#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Measure how fast a cell decides, on 1 000 and on 10 000 nodes.
    #[command(after_help = "Examples:\n  bursar bench cell\n  \
        bursar bench cell --nodes 10000 --repeat 3 --json")]
    Cell(cell::CellArguments),
    /// Measure several servers on a PostgreSQL with a synchronous standby: pairs through the server that leads and
    /// through one that forwards, compared with a plain SQL implementation.
    #[command(after_help = "Example:\n  bursar bench cluster --dir /var/tmp --json")]
    Cluster(cluster::ClusterArguments),
    /// Measure the ledger in memory, compared with a lower bound for the same draws.
    #[command(after_help = "Examples:\n  bursar bench core --quick\n  bursar bench core --json")]
    Core(core::CoreArguments),
    /// Measure durable commands through the engine and SQLite, compared with the limit of group commit.
    #[command(after_help = "Examples:\n  bursar bench engine\n  \
        bursar bench engine --part rates --in-flight 1,64,8000 --json\n  \
        bursar bench engine --part replay --events 10000000 --dir /var/tmp\n  \
        bursar bench engine --part memory --pairs 10000000\n  \
        bursar bench engine --part segments --in-flight 64,1000")]
    Engine(engine::EngineArguments),
    /// Measure reads of pages of a long list of entries.
    #[command(after_help = "Example:\n  bursar bench history --entries 10000000 --dir /var/tmp")]
    History(history::HistoryArguments),
    /// Measure the service over HTTP, compared with an empty handler and with PostgreSQL.
    #[command(after_help = "Examples:\n  bursar bench http --json\n  \
        bursar bench http --overload\n  bursar bench http --soak 600")]
    Http(Box<http::HttpArguments>),
    /// Measure thousands of running jobs, each metered every half minute by a report of its node.
    #[command(after_help = "Examples:\n  bursar bench jobs\n  \
        bursar bench jobs --jobs 50000 --seconds 120 --json")]
    Jobs(jobs::JobsArguments),
    /// Measure the journal in PostgreSQL with a synchronous standby, compared with a plain SQL implementation.
    #[command(after_help = "Example:\n  bursar bench postgres --dir /var/tmp --json")]
    Postgres(postgres::PostgresArguments),
    /// Measure a long run at default settings: memory, disk, and requests about holds that only the archive has.
    #[command(after_help = "Examples:\n  bursar bench soak --pairs 20000000 --dir /var/tmp\n  \
        bursar bench soak --pairs 20000000 --command-ms 25 --dir /var/tmp")]
    Soak(soak::SoakArguments),
    /// Measure a start from a snapshot of many accounts, grants and open holds: time and memory.
    #[command(after_help = "Example:\n  \
        bursar bench start --accounts 1000000 --grants 10 --holds 1000000 --dir /var/tmp")]
    Start(start::StartArguments),
}

pub(crate) fn run(bench: Bench) -> Result<(), Failure> {
    match bench {
        Bench::Cell(arguments) => cell::run(&arguments),
        Bench::Cluster(arguments) => cluster::run(&arguments),
        Bench::Core(arguments) => core::run(arguments),
        Bench::Engine(arguments) => engine::run(&arguments),
        Bench::History(arguments) => history::run(&arguments),
        Bench::Http(arguments) => http::run(&arguments),
        Bench::Jobs(arguments) => jobs::run(&arguments),
        Bench::Postgres(arguments) => postgres::run(&arguments),
        Bench::Soak(arguments) => soak::run(&arguments),
        Bench::Start(arguments) => start::run(&arguments),
    }
}

/// The location of files.
#[derive(Args)]
struct Place {
    /// A folder on the disk to measure; the folder of temporary files if none is given.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Place {
    /// A new folder that is removed at the end.
    fn folder(&self) -> Result<TempDir, Failure> {
        let folder = match &self.dir {
            Some(dir) => TempDir::with_prefix_in("bursar-bench-", dir),
            None => TempDir::with_prefix("bursar-bench-"),
        };
        folder.map_err(|error| Failure::new("cannot create a folder for the benchmark", error))
    }
}

/// The median with its spread.
fn spread(figure: Figure, digits: usize) -> String {
    let Figure { median, least, most } = figure;
    format!("{median:.digits$} ({least:.digits$} to {most:.digits$})")
}

/// Bytes in MiB.
fn mebibytes(bytes: u64) -> String {
    format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20))
}
