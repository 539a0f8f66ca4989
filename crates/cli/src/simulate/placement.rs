//! `bursar simulate placement`: the published packing experiment.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bursar_sim::placement::{Curve, Experiment, PlacementPolicy, REPORTED, spread_at};
use bursar_sim::traces::{read_nodes, read_tasks};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Serialize;

use crate::exit::Failure;
use crate::render::chart::{Axis, Chart, Line, Series};
use crate::render::{print_line, progress, rounded, table, write_file};

/// The first seed; the others are consecutive.
const FIRST_SEED: u64 = 42;

#[derive(Args)]
pub(crate) struct PlacementArguments {
    /// The nodes: a CSV file with sn,cpu_milli,memory_mib,gpu,model.
    #[arg(long, value_name = "CSV")]
    nodes: PathBuf,
    /// The tasks: a CSV file with name,cpu_milli,memory_mib,num_gpu,gpu_milli[,gpu_spec].
    #[arg(long, value_name = "CSV")]
    jobs: PathBuf,
    /// The policies to run, separated by commas or given several times; all if none is given.
    #[arg(long, value_delimiter = ',', value_parser = policy_parser())]
    policy: Vec<PlacementPolicy>,
    /// The number of seeds, from 42.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,
    /// The GPUs that all arriving tasks request, as a multiple of the GPUs of the nodes.
    #[arg(long, default_value_t = 1.3, value_parser = parse_inflate)]
    inflate: f64,
    /// Print only JSON on standard output.
    #[arg(long)]
    json: bool,
    /// Draw the curves into this SVG file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

fn policy_parser() -> impl TypedValueParser<Value = PlacementPolicy> {
    PossibleValuesParser::new(PlacementPolicy::ALL.map(PlacementPolicy::name)).map(|name| {
        PlacementPolicy::named(&name).expect("the parser lets only names of policies pass")
    })
}

fn parse_inflate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(inflate) if (0.01..=10.0).contains(&inflate) => Ok(inflate),
        _ => Err("a number between 0.01 and 10 is needed".into()),
    }
}

/// The results of one policy.
struct PlacementOutcome {
    policy: PlacementPolicy,
    curves: Vec<Curve>,
}

pub(crate) fn run(mut arguments: PlacementArguments) -> Result<(), Failure> {
    if arguments.policy.is_empty() {
        arguments.policy = PlacementPolicy::ALL.to_vec();
    }
    let (nodes, tasks) = (read_nodes(&arguments.nodes)?, read_tasks(&arguments.jobs)?);
    let Some(experiment) = Experiment::new(&nodes, &tasks) else {
        return Err(Failure::new("nothing to measure", "no GPU, or no task that asks for one"));
    };
    let outcomes = run_policies(&experiment, &arguments);
    if let Some(path) = &arguments.svg {
        write_file(path, &chart(&outcomes, &arguments).svg())?;
    }
    if arguments.json {
        print_line(&serde_json::to_string(&report(&outcomes))?)
    } else {
        print_line(&text_table(&outcomes))
    }
}

fn run_policies(experiment: &Experiment, arguments: &PlacementArguments) -> Vec<PlacementOutcome> {
    let seeds: Vec<u64> = (FIRST_SEED..FIRST_SEED + arguments.seeds).collect();
    let bar = progress(arguments.policy.len() as u64 * arguments.seeds);
    let mut outcomes = Vec::new();
    for policy in &arguments.policy {
        bar.set_message(policy.name());
        let curves = experiment.run_all(*policy, &seeds, arguments.inflate, &|| bar.inc(1));
        outcomes.push(PlacementOutcome { policy: *policy, curves });
    }
    bar.finish_and_clear();
    outcomes
}

#[derive(Serialize)]
struct PlacementReport {
    policies: Vec<PolicyReport>,
}

#[derive(Serialize)]
struct PolicyReport {
    policy: &'static str,
    seeds: usize,
    /// By the arrived work, in per cent of the GPUs.
    allocated_pct: BTreeMap<usize, SpreadReport>,
}

#[derive(Serialize)]
struct SpreadReport {
    mean: f64,
    sd: f64,
}

fn report(outcomes: &[PlacementOutcome]) -> PlacementReport {
    let allocated_pct = |curves: &[Curve]| {
        REPORTED
            .into_iter()
            .filter_map(|x| {
                let spread = spread_at(curves, x)?;
                Some((x, SpreadReport { mean: rounded(spread.mean), sd: rounded(spread.sd) }))
            })
            .collect()
    };
    let policies = outcomes
        .iter()
        .map(|outcome| PolicyReport {
            policy: outcome.policy.name(),
            seeds: outcome.curves.len(),
            allocated_pct: allocated_pct(&outcome.curves),
        })
        .collect();
    PlacementReport { policies }
}

fn text_table(outcomes: &[PlacementOutcome]) -> String {
    let mut header = vec!["GPUs in use, %, at".to_string()];
    header.extend(REPORTED.map(|x| format!("{x} % arrived")));
    let rows = outcomes.iter().map(|outcome| {
        let mut row = vec![outcome.policy.name().to_string()];
        row.extend(REPORTED.map(|x| match spread_at(&outcome.curves, x) {
            Some(spread) => format!("{:.2} ± {:.2}", spread.mean, spread.sd),
            None => "–".into(),
        }));
        row
    });
    table(header, rows)
}

fn chart(outcomes: &[PlacementOutcome], arguments: &PlacementArguments) -> Chart {
    let last = (arguments.inflate * 100.0).floor() as usize;
    let first = 80.min(last.saturating_sub(1));
    let mut series = vec![Series {
        name: "all that arrived".into(),
        line: Line::Reference,
        points: (first..=last).map(|x| (x as f64, x.min(100) as f64)).collect(),
    }];
    series.extend(outcomes.iter().map(|outcome| {
        Series {
            name: outcome.policy.name().into(),
            line: if outcome.policy == PlacementPolicy::Bursar { Line::Ours } else { Line::Theirs },
            points: (first..=last)
                .filter_map(|x| Some((x as f64, spread_at(&outcome.curves, x)?.mean)))
                .collect(),
        }
    }));
    let trace = arguments.jobs.file_stem().unwrap_or_default().to_string_lossy();
    Chart {
        title: "GPUs in use as work arrives".into(),
        subtitle: format!("{trace}, mean of {} seeds", arguments.seeds),
        x: Axis { label: "work arrived, % of all GPUs".into(), logarithmic: false },
        y: Axis { label: "GPUs in use, %".into(), logarithmic: false },
        series,
    }
}
