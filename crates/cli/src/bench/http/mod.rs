//! `bursar bench http`: a real server process and clients over loopback, beside an empty handler and,
//! where PostgreSQL is installed, a plain implementation there.

mod empty;
pub(super) mod load;
mod overload;
pub(super) mod wire;
pub(super) mod world;

use std::path::Path;
use std::time::Duration;

use bursar_bench::{Figure, load_average, sync_seconds};
use clap::Args;
use serde::Serialize;

use self::load::{Closed, SPENT, Work, closed};
use self::world::Process;
use super::peer::{self, Baseline, BaselineArguments, Peer};
use super::spread;
use crate::exit::Failure;
use crate::render::{print_line, table};

/// Pairs in one request of the batch endpoint: 1 000 operations.
const BATCH_PAIRS: usize = 500;

#[derive(Args)]
pub(crate) struct HttpArguments {
    /// Numbers of connections, separated by commas. Each is measured.
    #[arg(long, value_delimiter = ',', default_values = ["1", "64", "256"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    connections: Vec<u32>,
    /// The number of accounts, each with three grants. Everything is measured over all of them and on one.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    accounts: u32,
    /// The number of pairs before the measurement; most of them are then in the archive only.
    #[arg(long, default_value_t = 0)]
    pairs_before: u64,
    /// Measure overload instead: three times as many requests as can be answered.
    #[arg(long, conflicts_with = "soak")]
    overload: bool,
    /// Measure memory instead: half of the peak load for this time.
    #[arg(long, value_name = "SECONDS")]
    soak: Option<u64>,
    #[command(flatten)]
    measure: BaselineArguments,
    /// Run the empty handler that serves as the limit.
    #[arg(long, hide = true)]
    empty_handler: bool,
}

/// One row: so many connections, over so many accounts.
#[derive(Debug, Serialize)]
struct Row {
    connections: usize,
    accounts: usize,
    pairs_per_second: Figure,
    /// Requests per second of the empty handler, same client and connections.
    limit_requests_per_second: Figure,
    /// Requests of ours for each request of the limit.
    ratio: Figure,
    /// Processor time of the server, with everything that follows its journal meanwhile.
    server_micros_per_pair: Figure,
    p50_ms: f64,
    p99_ms: f64,
}

/// The batch endpoint, 1 000 operations a request.
#[derive(Debug, Serialize)]
struct BatchRow {
    connections: usize,
    accounts: usize,
    pairs_per_second: Figure,
    server_micros_per_pair: Figure,
}

#[derive(Debug, Serialize)]
struct HttpBenchReport {
    rows: Vec<Row>,
    batches: Vec<BatchRow>,
    /// One write of 4 KiB and its sync, in milliseconds.
    fdatasync_ms: f64,
    /// Pairs on one connection for each pair that two syncs would allow.
    one_connection_ratio: Option<f64>,
    peers: Vec<Peer>,
    /// The best single-operation row for each pair of the peer: all accounts, one account.
    over_peer: Vec<f64>,
    batch_over_peer: Vec<f64>,
    pairs: u64,
    load: f64,
}

pub(crate) fn run(arguments: &HttpArguments) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        if arguments.empty_handler {
            return empty::serve().await;
        }
        let folder = arguments.measure.place.folder()?;
        let seconds = Duration::from_secs(arguments.measure.seconds);
        if arguments.overload {
            let report = overload::overload(folder.path(), arguments.accounts, seconds).await?;
            return print_report(arguments.measure.json, &report, &report.words());
        }
        if let Some(soak) = arguments.soak {
            let time = Duration::from_secs(soak);
            let report = overload::soak(folder.path(), arguments.accounts, time).await?;
            return print_report(arguments.measure.json, &report, &report.words());
        }
        let report = measure(folder.path(), arguments).await?;
        print_report(arguments.measure.json, &report, &words(&report))
    })
}

fn print_report(json: bool, report: &impl Serialize, words: &str) -> Result<(), Failure> {
    print_line(&if json { serde_json::to_string(report)? } else { words.to_owned() })
}

async fn measure(folder: &Path, arguments: &HttpArguments) -> Result<HttpBenchReport, Failure> {
    let all = arguments.accounts as usize;
    let fdatasync = sync_seconds(folder, 4096, Duration::from_secs(1))?;
    let limit = Process::empty_handler()?;
    let server = Process::server(folder, None)?;
    world::set_up(&server.target, all).await?;
    let mut bench = Bench { server, limit, repetitions: arguments.measure.repetitions, pairs: 0 };
    while bench.pairs < arguments.pairs_before {
        bench.make_some(all).await?;
    }
    let time = Duration::from_secs(arguments.measure.seconds);
    let (mut rows, mut batches) = (Vec::new(), Vec::new());
    for accounts in [all, 1] {
        for connections in &arguments.connections {
            rows.push(bench.row(*connections as usize, accounts, time).await?);
        }
        batches.push(bench.batch_row(accounts, time).await?);
    }
    let spent = i128::from(bench.pairs) * SPENT;
    world::check_conservation(&bench.server.target, all, spent).await?;
    let pairs = bench.pairs;
    drop(bench);
    let mut peers = Vec::new();
    if let Some(binaries) = peer::binaries().filter(|_| arguments.measure.baseline.exists()) {
        let baseline =
            Baseline { script: &arguments.measure.baseline, binaries: &binaries, standby: false };
        for accounts in [all, 1] {
            let effort = (arguments.measure.seconds, arguments.measure.repetitions as usize);
            let clients = &arguments.measure.baseline_clients;
            peers.push(baseline.measure(folder, accounts, clients, effort)?);
        }
    }
    let over = |best: &dyn Fn(usize) -> f64| {
        peers.iter().map(|peer| best(peer.accounts) / peer.pairs_per_second).collect()
    };
    let best_row = |accounts: usize| {
        let own = rows.iter().filter(|row| row.accounts == accounts);
        own.map(|row| row.pairs_per_second.median).fold(0.0, f64::max)
    };
    let best_batch = |accounts: usize| {
        let own = batches.iter().filter(|row: &&BatchRow| row.accounts == accounts);
        own.map(|row| row.pairs_per_second.median).fold(0.0, f64::max)
    };
    let one = rows.iter().find(|row| row.connections == 1);
    Ok(HttpBenchReport {
        fdatasync_ms: fdatasync * 1000.0,
        one_connection_ratio: one.map(|row| row.pairs_per_second.median * 2.0 * fdatasync),
        over_peer: over(&best_row),
        batch_over_peer: over(&best_batch),
        rows,
        batches,
        peers,
        pairs,
        load: load_average(),
    })
}

struct Bench {
    server: Process,
    limit: Process,
    repetitions: u32,
    /// Pairs that were settled.
    pairs: u64,
}

impl Bench {
    /// The limit and the server alternately, so that both see the same conditions.
    async fn row(
        &mut self,
        connections: usize,
        accounts: usize,
        time: Duration,
    ) -> Result<Row, Failure> {
        let (mut pairs, mut limits, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let mut costs = Vec::new();
        let mut last = Closed::default();
        for _ in 0..self.repetitions {
            let limit = closed(&self.limit.target, connections, Work::Nothing, time, None).await?;
            let work = Work::Pairs { accounts };
            let before = self.server.processor_seconds();
            last = closed(&self.server.target, connections, work, time, None).await?;
            let took = self.server.processor_seconds() - before;
            self.pairs += last.requests / 2;
            costs.push(took * 2e6 / last.requests as f64);
            pairs.push(last.per_second() / 2.0);
            limits.push(limit.per_second());
            ratios.push(last.per_second() / limit.per_second());
        }
        Ok(Row {
            connections,
            accounts,
            pairs_per_second: Figure::of(pairs),
            limit_requests_per_second: Figure::of(limits),
            ratio: Figure::of(ratios),
            server_micros_per_pair: Figure::of(costs),
            p50_ms: last.quantile_ms(0.5),
            p99_ms: last.quantile_ms(0.99),
        })
    }

    /// Makes pairs for a second.
    async fn make_some(&mut self, accounts: usize) -> Result<(), Failure> {
        let work = Work::Batches { accounts, pairs: BATCH_PAIRS };
        let second = Duration::from_secs(1);
        let done = closed(&self.server.target, 4, work, second, None).await?;
        self.pairs += done.requests * BATCH_PAIRS as u64;
        Ok(())
    }

    async fn batch_row(&mut self, accounts: usize, time: Duration) -> Result<BatchRow, Failure> {
        let connections = 4;
        let work = Work::Batches { accounts, pairs: BATCH_PAIRS };
        let (mut pairs, mut costs) = (Vec::new(), Vec::new());
        for _ in 0..self.repetitions {
            let before = self.server.processor_seconds();
            let done = closed(&self.server.target, connections, work, time, None).await?;
            let took = self.server.processor_seconds() - before;
            self.pairs += done.requests * BATCH_PAIRS as u64;
            costs.push(took * 1e6 / (done.requests * BATCH_PAIRS as u64) as f64);
            pairs.push(done.per_second() * BATCH_PAIRS as f64);
        }
        Ok(BatchRow {
            connections,
            accounts,
            pairs_per_second: Figure::of(pairs),
            server_micros_per_pair: Figure::of(costs),
        })
    }
}

fn words(report: &HttpBenchReport) -> String {
    let header = [
        "connections",
        "accounts",
        "pairs/s",
        "server µs/pair",
        "limit, requests/s",
        "ratio",
        "p50 ms",
        "p99 ms",
    ];
    let rows = report.rows.iter().map(|row| {
        vec![
            row.connections.to_string(),
            row.accounts.to_string(),
            spread(row.pairs_per_second, 0),
            spread(row.server_micros_per_pair, 1),
            spread(row.limit_requests_per_second, 0),
            spread(row.ratio, 2),
            format!("{:.2}", row.p50_ms),
            format!("{:.2}", row.p99_ms),
        ]
    });
    let batches = report.batches.iter().map(|row| {
        let pairs = spread(row.pairs_per_second, 0);
        let cost = spread(row.server_micros_per_pair, 1);
        vec![format!("{} × 1000", row.connections), row.accounts.to_string(), pairs, cost]
    });
    let mut text = table(header.map(str::to_owned).to_vec(), rows.chain(batches));
    text += &format!(
        "\n\nfdatasync of 4 KiB: {:.3} ms; on one connection {} of what two syncs a pair allow",
        report.fdatasync_ms,
        report.one_connection_ratio.map_or("not measured".into(), |ratio| format!("{ratio:.2}"))
    );
    if report.peers.is_empty() {
        text += "\nno baseline: PostgreSQL or its script is not there";
    }
    for (place, peer) in report.peers.iter().enumerate() {
        text += &format!(
            "\nPostgreSQL, {} accounts: {:.0} pairs/s at {} clients; ours {:.1}×, by batch {:.1}×",
            peer.accounts,
            peer.pairs_per_second,
            peer.clients,
            report.over_peer[place],
            report.batch_over_peer[place]
        );
    }
    text + &format!("\n{} pairs, all accounted for; load {:.1}", report.pairs, report.load)
}
