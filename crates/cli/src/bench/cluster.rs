//! `bursar bench cluster`: pairs through the member that leads and through one that forwards, with one or more members
//! and ledger shards on a PostgreSQL with one synchronous standby, beside the baseline there.

use std::path::Path;
use std::time::Duration;

use bursar_bench::{Figure, load_average};
use clap::Args;
use serde::Serialize;

use super::http::load::{SPENT, Work, closed};
use super::http::wire::Target;
use super::http::world::{self, Process};
use super::peer::{self, BaselineArguments, Peer};
use super::postgres::server::Pair;
use super::{mebibytes, spread};
use crate::exit::Failure;
use crate::render::{print_line, table};

#[derive(Args)]
pub(crate) struct ClusterArguments {
    /// Numbers of servers, separated by commas. Each is measured.
    #[arg(long, value_delimiter = ',', default_values = ["1", "2", "3"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=9))]
    members: Vec<u32>,
    /// Numbers of ledger shards, separated by commas. Each is measured in a new store, with one org for each shard.
    #[arg(long, value_delimiter = ',', default_values = ["1", "2", "4"])]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=16))]
    shards: Vec<u16>,
    /// Numbers of connections, separated by commas. Each is measured.
    #[arg(long, value_delimiter = ',', default_values = ["1", "64"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    connections: Vec<u32>,
    /// The number of accounts.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    accounts: u32,
    #[command(flatten)]
    measure: BaselineArguments,
}

/// So many connections to one member.
#[derive(Debug, Serialize)]
struct MemberRate {
    shards: u16,
    members: usize,
    /// Whether the member forwards to the one that leads.
    forwards: bool,
    connections: usize,
    pairs_per_second: Figure,
    p50_ms: f64,
    p99_ms: f64,
    /// Memory of the member.
    resident_bytes: u64,
}

#[derive(Debug, Serialize)]
struct ClusterBenchReport {
    rates: Vec<MemberRate>,
    peer: Option<Peer>,
    load: f64,
}

pub(crate) fn run(arguments: &ClusterArguments) -> Result<(), Failure> {
    let Some(binaries) = peer::binaries() else {
        return Err(Failure::new(
            "PostgreSQL is not installed",
            "install it (on Debian: apt install postgresql), or say where its programs are with PGBIN",
        ));
    };
    let folder = arguments.measure.place.folder()?;
    let servers = Pair::start(&binaries, folder.path())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut rates = Vec::new();
    for shards in &arguments.shards {
        let name = format!("shards_{shards}");
        let (url, own) = (servers.database(&name)?, folder.path().join(&name));
        std::fs::create_dir(&own)?;
        rates.extend(runtime.block_on(measure(&own, (&url, *shards), arguments))?);
    }
    drop(servers);
    let mut peer = None;
    if arguments.measure.baseline.exists() {
        let baseline = peer::Baseline {
            script: &arguments.measure.baseline,
            binaries: &binaries,
            standby: true,
        };
        let effort = (arguments.measure.seconds, arguments.measure.repetitions as usize);
        let (accounts, clients) =
            (arguments.accounts as usize, &arguments.measure.baseline_clients);
        peer = Some(baseline.measure(folder.path(), accounts, clients, effort)?);
    }
    let report = ClusterBenchReport { rates, peer, load: load_average() };
    print_line(&if arguments.measure.json {
        serde_json::to_string(&report)?
    } else {
        words(&report)
    })
}

async fn measure(
    folder: &Path,
    (url, shards): (&str, u16),
    arguments: &ClusterArguments,
) -> Result<Vec<MemberRate>, Failure> {
    // A new org goes to the shard with the fewest orgs.
    let accounts = (arguments.accounts as usize / usize::from(shards)).max(1);
    let leader = Process::with_shards(folder, url, shards)?;
    for target in tenants(&leader, shards) {
        world::set_up(&target, accounts).await?;
    }
    let (mut rates, mut settled, mut others) = (Vec::new(), 0, Vec::new());
    let mut counts = arguments.members.clone();
    counts.sort_unstable();
    for count in counts {
        while others.len() + 1 < count as usize {
            others.push(Process::beside(&leader, folder, url)?);
        }
        for connections in &arguments.connections {
            for member in [Some(&leader), others.last()].into_iter().flatten() {
                let (mut figures, mut quantiles) = (Vec::new(), (0.0, 0.0_f64));
                for _ in 0..arguments.measure.repetitions {
                    let (work, time) =
                        (Work::Pairs { accounts }, Duration::from_secs(arguments.measure.seconds));
                    let each = (*connections as usize).div_ceil(usize::from(shards));
                    let targets = tenants(member, shards);
                    let loads = targets.iter().map(|target| closed(target, each, work, time, None));
                    let (mut per_second, mut worst) = (0.0, (0.0, 0.0_f64));
                    let all = futures_util::future::try_join_all(loads).await?;
                    for done in all {
                        settled += done.requests / 2;
                        per_second += done.per_second() / 2.0;
                        worst.0 = done.quantile_ms(0.5).max(worst.0);
                        worst.1 = done.quantile_ms(0.99).max(worst.1);
                    }
                    figures.push(per_second);
                    quantiles = worst;
                }
                rates.push(MemberRate {
                    shards,
                    members: others.len() + 1,
                    forwards: member.target.address != leader.target.address,
                    connections: *connections as usize,
                    pairs_per_second: Figure::of(figures),
                    p50_ms: quantiles.0,
                    p99_ms: quantiles.1,
                    resident_bytes: member.resident_bytes(),
                });
            }
        }
    }
    // Grants of all orgs are listed.
    let all = accounts * usize::from(shards);
    world::check_conservation(&leader.target, all, i128::from(settled) * SPENT).await?;
    Ok(rates)
}

/// A member as each org of the load reaches it.
fn tenants(member: &Process, count: u16) -> Vec<Target> {
    let tenant = |number: u16| format!("bench-{number}");
    (0..count).map(|number| Target { tenant: tenant(number), ..member.target.clone() }).collect()
}

fn words(report: &ClusterBenchReport) -> String {
    let header =
        ["shards", "members", "through", "connections", "pairs/s", "p50 ms", "p99 ms", "resident"];
    let rows = report.rates.iter().map(|rate| {
        vec![
            rate.shards.to_string(),
            rate.members.to_string(),
            if rate.forwards { "another member" } else { "the leader" }.to_owned(),
            rate.connections.to_string(),
            spread(rate.pairs_per_second, 0),
            format!("{:.2}", rate.p50_ms),
            format!("{:.2}", rate.p99_ms),
            mebibytes(rate.resident_bytes),
        ]
    });
    let mut text = table(header.map(str::to_owned).to_vec(), rows);
    match &report.peer {
        Some(peer) => {
            text += &format!(
                "\n\nthe baseline with a synchronous standby: {:.0} pairs/s at {} clients",
                peer.pairs_per_second, peer.clients
            );
        }
        None => text += "\n\nno baseline: its script is not there",
    }
    text + &format!("\nall accounted for; load {:.1}", report.load)
}
