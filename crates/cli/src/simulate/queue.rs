//! `bursar simulate queue`: waiting times and fairness.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bursar_core::cell::CellConfig;
use bursar_sim::queue::baseline::{self, Baseline};
use bursar_sim::queue::metrics::{Figures, figures};
use bursar_sim::queue::shares::{
    ContentionWindow, ShareErrorCause, by_cause, share_errors, windows, worst_beyond_rule,
};
use bursar_sim::queue::{Cluster, Run, cell, first_impossible};
use bursar_sim::traces::{JobRow, read_jobs};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::exit::Failure;
use crate::render::chart::{Axis, Chart, Line, Series};
use crate::render::{print_line, progress, rounded, table, write_file};

#[derive(Args)]
pub(crate) struct QueueArguments {
    /// The jobs: a CSV file with num_gpu,submit_time,duration[,tenant][,resumable], or a .trace file.
    #[arg(long, value_name = "CSV")]
    jobs: PathBuf,
    /// The number of GPUs.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    gpus: u32,
    /// The number of GPUs per node.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    gpus_per_node: u16,
    /// The policies to run, separated by commas or given several times; all if none is given.
    #[arg(long, value_delimiter = ',')]
    policy: Vec<QueuePolicy>,
    /// Divide the jobs of a trace without tenants among this many tenants. Without it each job is its own user.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    tenants: Option<u32>,
    /// Change a setting of the cell, such as half_life_ms=604800000; may be given several times.
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = parse_setting)]
    settings: Vec<(usize, i64)>,
    /// Print only JSON on standard output.
    #[arg(long)]
    json: bool,
    /// Draw the distribution of completion times into this SVG file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
enum QueuePolicy {
    /// The cell's own code, which does not know durations.
    Bursar,
    /// Shortest remaining time first; knows durations.
    Srtf,
    /// Shortest remaining service (time × GPUs) first; knows durations.
    Srsf,
}

impl QueuePolicy {
    fn name(self) -> &'static str {
        match self {
            QueuePolicy::Bursar => "bursar",
            QueuePolicy::Srtf => "srtf",
            QueuePolicy::Srsf => "srsf",
        }
    }
}

/// The results of one policy.
struct QueueOutcome {
    policy: QueuePolicy,
    run: Run,
    figures: Figures,
    windows: Vec<ContentionWindow>,
}

pub(crate) fn run(mut arguments: QueueArguments) -> Result<(), Failure> {
    if arguments.policy.is_empty() {
        arguments.policy = QueuePolicy::value_variants().to_vec();
    }
    let jobs = read_jobs(&arguments.jobs)?;
    let cluster = cluster(&arguments, &jobs)?;
    let tenants = tenants(&arguments, &jobs);
    let (config, changed) = settings(&arguments.settings);
    let run = |policy: &QueuePolicy| run_policy(*policy, &jobs, &tenants, cluster, &config);
    let outcomes = arguments.policy.iter().map(run).collect::<Result<Vec<_>, _>>()?;
    if let Some(path) = &arguments.svg {
        write_file(path, &chart(&outcomes, &jobs, &arguments).svg())?;
    }
    if arguments.json {
        return print_line(&serde_json::to_string(&report(&outcomes, cluster, changed))?);
    }
    print_line(&text_table(&outcomes))?;
    changed.iter().try_for_each(|(name, value)| print_line(&format!("setting {name} = {value}")))
}

fn cluster(arguments: &QueueArguments, jobs: &[JobRow]) -> Result<Cluster, Failure> {
    let per_node = u32::from(arguments.gpus_per_node);
    if !arguments.gpus.is_multiple_of(per_node) {
        let cause = format!("{} is not a multiple of {per_node}", arguments.gpus);
        return Err(Failure::new("--gpus must be whole nodes of --gpus-per-node", cause));
    }
    let nodes = arguments.gpus / per_node;
    let cluster = Cluster { nodes, gpus_per_node: arguments.gpus_per_node };
    match first_impossible(jobs, cluster) {
        None => Ok(cluster),
        Some(job) => Err(Failure::new(
            format_args!("job {} asks for {} GPUs", job + 1, jobs[job].gpus),
            format_args!("it needs one node of {per_node}, or a whole number of {nodes} nodes"),
        )),
    }
}

/// The account of each job. Jobs of one tenant share an account.
fn tenants(arguments: &QueueArguments, jobs: &[JobRow]) -> Vec<String> {
    let dealt = |job: usize| arguments.tenants.map(|count| job % count as usize);
    let named = jobs.iter().any(|job| job.tenant.is_some());
    let account = |(place, job): (usize, &JobRow)| match (&job.tenant, dealt(place)) {
        (Some(name), _) => format!("lab:{}", name.to_ascii_lowercase()),
        (None, _) if named => "lab:unnamed".to_string(),
        (None, Some(tenant)) => format!("lab:t{tenant}"),
        (None, None) => format!("lab:u{place}"),
    };
    jobs.iter().enumerate().map(account).collect()
}

fn run_policy(
    policy: QueuePolicy,
    jobs: &[JobRow],
    tenants: &[String],
    cluster: Cluster,
    config: &CellConfig,
) -> Result<QueueOutcome, Failure> {
    let bar = progress(jobs.len() as u64);
    bar.set_message(policy.name());
    let run = match policy {
        QueuePolicy::Bursar => cell::run(jobs, tenants, cluster, config, &mut || bar.inc(1))?,
        QueuePolicy::Srtf => baseline::run(jobs, cluster, Baseline::Srtf),
        QueuePolicy::Srsf => baseline::run(jobs, cluster, Baseline::Srsf),
    };
    bar.finish_and_clear();
    let figures = figures(jobs, cluster, &run);
    let windows = windows(jobs, tenants, cluster, config.half_life_ms, &run);
    Ok(QueueOutcome { policy, run, figures, windows })
}

/// A setting that a study may change, and how to set it.
type Setting = (&'static str, fn(&mut CellConfig, i64) -> bool);
const SETTINGS: [Setting; 9] = [
    ("half_life_ms", |config, value| put(&mut config.half_life_ms, value)),
    ("entry_charge_ms", |config, value| put(&mut config.entry_charge_ms, value)),
    ("ageing_after_ms", |config, value| put(&mut config.ageing_after_ms, value)),
    ("ageing_one_in", |config, value| {
        u32::try_from(value).is_ok_and(|value| put(&mut config.ageing_one_in, value))
    }),
    ("heartbeat_ms", |config, value| put(&mut config.heartbeat_ms, value)),
    ("node_lease_ms", |config, value| put(&mut config.node_lease_ms, value)),
    ("assumed_runtime_ms", |config, value| put(&mut config.assumed_runtime_ms, value)),
    ("share_minimum_runtime_ms", |config, value| put(&mut config.share_minimum_runtime_ms, value)),
    ("review_ms", |config, value| put(&mut config.review_ms, value)),
];

fn put<T>(field: &mut T, value: T) -> bool {
    *field = value;
    true
}

pub(super) fn parse_setting(text: &str) -> Result<(usize, i64), String> {
    let (name, value) = text.split_once('=').ok_or("NAME=VALUE is needed")?;
    let known = || SETTINGS.map(|(name, _)| name).join(", ");
    let place = SETTINGS.iter().position(|(known, _)| *known == name);
    let place = place.ok_or_else(|| format!("no such setting; there are: {}", known()))?;
    let value: i64 = value.parse().map_err(|_| format!("`{value}` is not a whole number"))?;
    let fits = value >= 0 && SETTINGS[place].1(&mut CellConfig::default(), value);
    if fits { Ok((place, value)) } else { Err(format!("`{value}` is out of range")) }
}

/// The cell's settings, and those of them that were set, by name.
pub(super) fn settings(set: &[(usize, i64)]) -> (CellConfig, BTreeMap<&'static str, i64>) {
    let mut config = CellConfig::default();
    let mut changed = BTreeMap::new();
    for (place, value) in set {
        let (name, set) = SETTINGS[*place];
        set(&mut config, *value);
        changed.insert(name, *value);
    }
    (config, changed)
}

#[derive(Serialize)]
struct QueueReport {
    gpus: u32,
    gpus_per_node: u16,
    /// Settings of the cell that differ from the defaults.
    settings: BTreeMap<&'static str, i64>,
    policies: Vec<PolicyReport>,
}

#[derive(Serialize)]
struct PolicyReport {
    policy: &'static str,
    jobs: usize,
    mean_jct_seconds: f64,
    p99_jct_seconds: f64,
    makespan_seconds: f64,
    worst_finish_time_fairness: f64,
    unfair_pct: f64,
    starts_per_job: f64,
    /// By tenant, for those that were backlogged for 24 hours.
    share_error: BTreeMap<String, f64>,
    /// The largest deviation from fair share that no other cause explains.
    share_error_beyond_rule: f64,
    /// The windows of 24 hours that were examined.
    share_windows: ShareWindows,
}

/// The number of windows of 24 hours in which tenants waited all the time, and in how many of them
/// a tenant was more than 5 % from an equal share, by cause.
#[derive(Serialize)]
struct ShareWindows {
    all: usize,
    /// A tenant requested less than its share.
    demand: usize,
    /// A tenant had used less or more before.
    memory: usize,
    /// A tenant had capacity that no other tenant could have used.
    room: usize,
    /// The cell deviated from the rule.
    cell: usize,
}

impl ShareWindows {
    fn of(windows: &[ContentionWindow]) -> ShareWindows {
        let counts = by_cause(windows);
        let of = |cause| counts.get(&cause).copied().unwrap_or(0);
        ShareWindows {
            all: windows.len(),
            demand: of(ShareErrorCause::Demand),
            memory: of(ShareErrorCause::Memory),
            room: of(ShareErrorCause::Room),
            cell: of(ShareErrorCause::Cell),
        }
    }
}

fn report(
    outcomes: &[QueueOutcome],
    cluster: Cluster,
    settings: BTreeMap<&'static str, i64>,
) -> QueueReport {
    let policy = |outcome: &QueueOutcome| PolicyReport {
        policy: outcome.policy.name(),
        jobs: outcome.run.jobs.len(),
        mean_jct_seconds: rounded(outcome.figures.mean_jct_s),
        p99_jct_seconds: rounded(outcome.figures.p99_jct_s),
        makespan_seconds: rounded(outcome.figures.makespan_s),
        worst_finish_time_fairness: rounded(outcome.figures.worst_fairness),
        unfair_pct: rounded(outcome.figures.unfair_pct),
        starts_per_job: rounded(outcome.figures.starts_per_job),
        share_error: share_errors(&outcome.windows)
            .into_iter()
            .map(|(tenant, error)| (tenant, rounded(error)))
            .collect(),
        share_error_beyond_rule: rounded(worst_beyond_rule(&outcome.windows)),
        share_windows: ShareWindows::of(&outcome.windows),
    };
    QueueReport {
        gpus: cluster.gpus(),
        gpus_per_node: cluster.gpus_per_node,
        settings,
        policies: outcomes.iter().map(policy).collect(),
    }
}

fn text_table(outcomes: &[QueueOutcome]) -> String {
    let header = [
        "policy",
        "mean JCT, s",
        "p99 JCT, s",
        "makespan, s",
        "worst ρ",
        "ρ > 1.05, %",
        "starts/job",
        "worst share error, %",
        "beyond the rule, %",
    ];
    let rows = outcomes.iter().map(|outcome| {
        let Figures { mean_jct_s, p99_jct_s, makespan_s, .. } = outcome.figures;
        let Figures { worst_fairness, unfair_pct, starts_per_job, .. } = outcome.figures;
        let percent = |error: f64| format!("{:.1}", 100.0 * error);
        let worst = share_errors(&outcome.windows).into_values().reduce(f64::max);
        vec![
            outcome.policy.name().to_string(),
            format!("{mean_jct_s:.0}"),
            format!("{p99_jct_s:.0}"),
            format!("{makespan_s:.0}"),
            format!("{worst_fairness:.2}"),
            format!("{unfair_pct:.1}"),
            format!("{starts_per_job:.2}"),
            worst.map_or("–".into(), percent),
            worst.map_or("–".into(), |_| percent(worst_beyond_rule(&outcome.windows))),
        ]
    });
    table(header.map(String::from).to_vec(), rows)
}

fn chart(outcomes: &[QueueOutcome], jobs: &[JobRow], arguments: &QueueArguments) -> Chart {
    let series = outcomes.iter().map(|outcome| {
        let ends = outcome.run.jobs.iter().zip(jobs);
        let mut times: Vec<f64> =
            ends.map(|(job, row)| (job.finished_ms - row.submit_ms) as f64 / 1000.0).collect();
        times.sort_by(f64::total_cmp);
        let place = |index: usize| 100.0 * (index + 1) as f64 / times.len() as f64;
        let points = times.iter().enumerate().map(|(at, time)| (time.max(1.0), place(at)));
        Series {
            name: outcome.policy.name().into(),
            line: match outcome.policy {
                QueuePolicy::Bursar => Line::Ours,
                QueuePolicy::Srtf | QueuePolicy::Srsf => Line::Theirs,
            },
            points: points.collect(),
        }
    });
    let trace = arguments.jobs.file_stem().unwrap_or_default().to_string_lossy();
    Chart {
        title: "Jobs done within a time of their submission".into(),
        subtitle: format!("{trace}, {} GPUs", arguments.gpus),
        x: Axis { label: "seconds".into(), logarithmic: true },
        y: Axis { label: "jobs done, %".into(), logarithmic: false },
        series: series.collect(),
    }
}
