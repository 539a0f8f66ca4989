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
    /// How fast a cell decides, on 1 000 and on 10 000 nodes.
    #[command(after_help = "Examples:\n  bursar bench cell\n  \
        bursar bench cell --nodes 10000 --repeat 3 --json")]
    Cell(cell::CellArguments),
    /// Members on a PostgreSQL with a synchronous standby: pairs through the one that leads and through one that
    /// forwards, beside a plain SQL implementation.
    #[command(after_help = "Example:\n  bursar bench cluster --dir /var/tmp --json")]
    Cluster(cluster::ClusterArguments),
    /// The ledger in memory, beside a lower bound for the same draws.
    #[command(after_help = "Examples:\n  bursar bench core --quick\n  bursar bench core --json")]
    Core(core::CoreArguments),
    /// Durable commands through the engine and SQLite, beside the limit of group commit.
    #[command(after_help = "Examples:\n  bursar bench engine\n  \
        bursar bench engine --part rates --in-flight 1,64,8000 --json\n  \
        bursar bench engine --part replay --events 10000000 --dir /var/tmp\n  \
        bursar bench engine --part memory --pairs 10000000\n  \
        bursar bench engine --part segments --in-flight 64,1000")]
    Engine(engine::EngineArguments),
    /// Pages of a long list of entries.
    #[command(after_help = "Example:\n  bursar bench history --entries 10000000 --dir /var/tmp")]
    History(history::HistoryArguments),
    /// The service over HTTP, beside an empty handler and PostgreSQL.
    #[command(after_help = "Examples:\n  bursar bench http --json\n  \
        bursar bench http --overload\n  bursar bench http --soak 600")]
    Http(Box<http::HttpArguments>),
    /// Thousands of running jobs, each metered every half minute by its node's report.
    #[command(after_help = "Examples:\n  bursar bench jobs\n  \
        bursar bench jobs --jobs 50000 --seconds 120 --json")]
    Jobs(jobs::JobsArguments),
    /// The journal in PostgreSQL with a synchronous standby, beside a plain SQL implementation.
    #[command(after_help = "Example:\n  bursar bench postgres --dir /var/tmp --json")]
    Postgres(postgres::PostgresArguments),
    /// A long run at default settings: memory and disk, and requests about holds that were forgotten.
    #[command(after_help = "Examples:\n  bursar bench soak --pairs 20000000 --dir /var/tmp\n  \
        bursar bench soak --pairs 20000000 --command-ms 25 --dir /var/tmp")]
    Soak(soak::SoakArguments),
    /// A start from a snapshot of many accounts, grants and open holds: time and memory.
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
    /// The folder on the disk to be measured; that of temporary files if none is given.
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
