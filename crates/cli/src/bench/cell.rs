//! `bursar bench cell`: how fast a cell decides. The loops are in `bursar_sim::speed`.

use bursar_sim::speed::{self, SpeedMeasurement};
use clap::Args;
use serde::Serialize;

use crate::exit::Failure;
use crate::render::{print_line, progress, rounded, table};

#[derive(Args)]
pub(crate) struct CellArguments {
    /// The number of nodes; may be given several times or with commas.
    #[arg(long, value_delimiter = ',', default_values_t = [1000, 10_000],
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    nodes: Vec<u32>,
    /// The number of repetitions; medians are printed.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Print only JSON on standard output.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &CellArguments) -> Result<(), Failure> {
    let bar = progress(u64::from(arguments.repeat) * arguments.nodes.len() as u64);
    let mut works: Vec<WorkSamples> = Vec::new();
    for _ in 0..arguments.repeat {
        for nodes in &arguments.nodes {
            bar.set_message(format!("{nodes} nodes"));
            for row in speed::run(*nodes as usize) {
                add(&mut works, row);
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let lines: Vec<Line> = works.iter().map(WorkSamples::line).collect();
    let growth = growth(&lines);
    if arguments.json {
        return print_line(&serde_json::to_string(&CellBenchReport { growth, work: lines })?);
    }
    print_line(&text_table(&lines))?;
    growth.map_or(Ok(()), |growth| {
        print_line(&format!("a decision costs {growth:.2} times as much on the most nodes"))
    })
}

/// All repetitions of one kind of work.
struct WorkSamples {
    rows: Vec<SpeedMeasurement>,
}

fn add(works: &mut Vec<WorkSamples>, row: SpeedMeasurement) {
    let same =
        |work: &&mut WorkSamples| (work.rows[0].name, work.rows[0].nodes) == (row.name, row.nodes);
    match works.iter_mut().find(same) {
        Some(work) => work.rows.push(row),
        None => works.push(WorkSamples { rows: vec![row] }),
    }
}

impl WorkSamples {
    /// The least, the median and the most of a figure.
    fn spread(&self, figure: impl Fn(&SpeedMeasurement) -> u64) -> [u64; 3] {
        let mut figures: Vec<u64> = self.rows.iter().map(figure).collect();
        figures.sort_unstable();
        [figures[0], figures[figures.len() / 2], figures[figures.len() - 1]]
    }

    fn line(&self) -> Line {
        let median = |figure: fn(&SpeedMeasurement) -> u64| self.spread(figure)[1];
        let [least, placements_per_second, most] = self.spread(|row| row.per_second);
        Line {
            work: self.rows[0].name,
            nodes: self.rows[0].nodes,
            repetitions: self.rows.len(),
            placements: self.rows[0].placements,
            waiting: self.rows[0].waiting,
            placements_per_second,
            placements_per_second_spread: [least, most],
            mean_ns: median(|row| row.mean_ns),
            p50_ns: median(|row| row.p50_ns),
            p99_ns: median(|row| row.p99_ns),
            p999_ns: median(|row| row.p999_ns),
            max_ns: median(|row| row.max_ns),
            rss_mib: median(|row| row.rss_mib),
        }
    }
}

/// How much more a decision costs on the most nodes than on the fewest, where it is placed.
fn growth(lines: &[Line]) -> Option<f64> {
    let fills = || lines.iter().filter(|line| line.work == "fill");
    let fewest = fills().min_by_key(|line| line.nodes)?;
    let most = fills().max_by_key(|line| line.nodes)?;
    let ratio = most.mean_ns as f64 / fewest.mean_ns as f64;
    (fewest.nodes < most.nodes).then(|| rounded(ratio))
}

#[derive(Serialize)]
struct CellBenchReport {
    /// Cost of a decision on the most nodes over that on the fewest.
    growth: Option<f64>,
    work: Vec<Line>,
}

/// The medians of one kind of work.
#[derive(Serialize)]
struct Line {
    work: &'static str,
    nodes: usize,
    repetitions: usize,
    placements: u64,
    waiting: usize,
    placements_per_second: u64,
    placements_per_second_spread: [u64; 2],
    mean_ns: u64,
    p50_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    max_ns: u64,
    rss_mib: u64,
}

fn text_table(lines: &[Line]) -> String {
    let header = [
        "work",
        "nodes",
        "placed",
        "waiting",
        "placements/s",
        "least",
        "most",
        "mean µs",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "max µs",
        "memory, MiB",
    ];
    let micros = |nanos: u64| format!("{:.1}", nanos as f64 / 1000.0);
    let rows = lines.iter().map(|line| {
        let [least, most] = line.placements_per_second_spread;
        vec![
            line.work.to_string(),
            line.nodes.to_string(),
            line.placements.to_string(),
            line.waiting.to_string(),
            line.placements_per_second.to_string(),
            least.to_string(),
            most.to_string(),
            micros(line.mean_ns),
            micros(line.p50_ns),
            micros(line.p99_ns),
            micros(line.p999_ns),
            micros(line.max_ns),
            line.rss_mib.to_string(),
        ]
    });
    table(header.map(String::from).to_vec(), rows)
}
