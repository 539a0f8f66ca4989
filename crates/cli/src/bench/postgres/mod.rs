//! `bursar bench postgres`: the journal in PostgreSQL with one synchronous standby, beside what a team
//! would write there.

pub(super) mod server;

use std::path::Path;
use std::time::Duration;

use bursar_bench::engine::Effort;
use bursar_bench::store::{StoreRate, store_rate};
use bursar_bench::{Figure, load_average};
use clap::Args;
use serde::Serialize;

use self::server::Pair;
use super::http::load::{SPENT, Work, closed};
use super::http::world::{self, Process};
use super::peer::{self, BaselineArguments, Peer};
use super::spread;
use crate::exit::Failure;
use crate::render::{print_line, table};

#[derive(Args)]
pub(crate) struct PostgresArguments {
    /// Numbers of commands in flight in process, and of operations in a batch over HTTP, separated by commas.
    #[arg(long, value_delimiter = ',', default_values = ["64", "1000"])]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=1000))]
    in_flight: Vec<u32>,
    /// The number of accounts. Everything is measured over all of them and on one.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    accounts: u32,
    #[command(flatten)]
    measure: BaselineArguments,
}

/// One connection of the service that sends batch after batch.
#[derive(Debug, Serialize)]
struct BatchRate {
    /// Operations of one request.
    operations: usize,
    accounts: usize,
    pairs_per_second: Figure,
}

#[derive(Debug, Serialize)]
struct PostgresBenchReport {
    in_process: Vec<StoreRate>,
    by_batch: Vec<BatchRate>,
    peers: Vec<Peer>,
    load: f64,
}

pub(crate) fn run(arguments: &PostgresArguments) -> Result<(), Failure> {
    let Some(binaries) = peer::binaries() else {
        return Err(Failure::new(
            "PostgreSQL is not installed",
            "install it (on Debian: apt install postgresql), or say where its programs are with PGBIN",
        ));
    };
    let all = arguments.accounts as usize;
    let (mut in_process, mut by_batch, mut peers) = (Vec::new(), Vec::new(), Vec::new());
    for accounts in [all, 1] {
        let folder = arguments.measure.place.folder()?;
        let servers = Pair::start(&binaries, folder.path())?;
        for in_flight in &arguments.in_flight {
            let effort = Effort {
                accounts,
                repetitions: arguments.measure.repetitions as usize,
                time: Duration::from_secs(arguments.measure.seconds),
            };
            in_process.push(store_rate(&servers.url(), *in_flight as usize, effort)?);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        by_batch.extend(runtime.block_on(batches(folder.path(), &servers, accounts, arguments))?);
        drop(servers);
        if arguments.measure.baseline.exists() {
            let effort = (arguments.measure.seconds, arguments.measure.repetitions as usize);
            let baseline = peer::Baseline {
                script: &arguments.measure.baseline,
                binaries: &binaries,
                standby: true,
            };
            let clients = &arguments.measure.baseline_clients;
            peers.push(baseline.measure(folder.path(), accounts, clients, effort)?);
        }
    }
    let report = PostgresBenchReport { in_process, by_batch, peers, load: load_average() };
    print_line(&if arguments.measure.json {
        serde_json::to_string(&report)?
    } else {
        words(&report)
    })
}

/// The batch endpoint of a server on this store, on one connection: what is in flight is one batch.
async fn batches(
    folder: &Path,
    servers: &Pair,
    accounts: usize,
    arguments: &PostgresArguments,
) -> Result<Vec<BatchRate>, Failure> {
    let server = Process::on_store(folder, &servers.url())?;
    world::set_up(&server.target, accounts).await?;
    let (mut rates, mut settled) = (Vec::new(), 0);
    for operations in &arguments.in_flight {
        let pairs = *operations as usize / 2;
        let work = Work::Batches { accounts, pairs };
        let mut figures = Vec::new();
        for _ in 0..arguments.measure.repetitions {
            let time = Duration::from_secs(arguments.measure.seconds);
            let done = closed(&server.target, 1, work, time, None).await?;
            settled += done.requests * pairs as u64;
            figures.push(done.per_second() * pairs as f64);
        }
        let pairs_per_second = Figure::of(figures);
        rates.push(BatchRate { operations: 2 * pairs, accounts, pairs_per_second });
    }
    world::check_conservation(&server.target, accounts, i128::from(settled) * SPENT).await?;
    Ok(rates)
}

fn words(report: &PostgresBenchReport) -> String {
    let times = |accounts: usize, ours: Figure| {
        let peer = report.peers.iter().find(|peer| peer.accounts == accounts);
        peer.map_or("-".into(), |peer| format!("{:.1}×", ours.median / peer.pairs_per_second))
    };
    let header =
        ["", "accounts", "pairs/s", "baseline", "answers ms", "p99 ms", "records a commit"];
    let in_process = report.in_process.iter().map(|rate| {
        vec![
            format!("{} in flight", rate.in_flight),
            rate.accounts.to_string(),
            spread(rate.pairs_per_second, 0),
            times(rate.accounts, rate.pairs_per_second),
            format!("{:.2}", rate.latency_ms),
            format!("{:.2}", rate.latency_p99_ms),
            format!("{:.0}", rate.mean_batch),
        ]
    });
    let by_batch = report.by_batch.iter().map(|rate| {
        let (pairs, accounts) = (rate.pairs_per_second, rate.accounts);
        let what = format!("HTTP, batches of {}", rate.operations);
        vec![what, accounts.to_string(), spread(pairs, 0), times(accounts, pairs)]
    });
    let mut text = table(header.map(str::to_owned).to_vec(), in_process.chain(by_batch));
    if report.peers.is_empty() {
        text += "\n\nno baseline: its script is not there";
    }
    for peer in &report.peers {
        text += &format!(
            "\n\nthe baseline with a synchronous standby, {} accounts: {:.0} pairs/s at {} clients",
            peer.accounts, peer.pairs_per_second, peer.clients
        );
    }
    text + &format!("\n\nall accounted for; load {:.1}", report.load)
}
