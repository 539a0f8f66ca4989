//! `bursar bench engine`.

use std::path::Path;
use std::time::Duration;

use bursar_bench::engine::{Effort, EngineRate, SnapshotCost, rate, snapshot_cost};
use bursar_bench::memory::{LongRun, MemoryStep, long_run};
use bursar_bench::replay::{ReplaySpeed, replay_speed};
use bursar_bench::segments::{SealingRun, SegmentCost, segment_cost};
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::{Place, mebibytes, spread};
use crate::exit::Failure;
use crate::render::print_line;

#[derive(Args)]
pub(crate) struct EngineArguments {
    /// The parts to measure, separated by commas.
    #[arg(long, value_delimiter = ',', default_values = ["rates", "snapshots", "replay"])]
    part: Vec<Part>,
    /// Numbers of commands in flight, separated by commas. Each is measured.
    #[arg(long, value_delimiter = ',', default_values = ["1", "8", "64", "1000", "8000"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    in_flight: Vec<u32>,
    /// The number of orgs, each with ten grants.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    accounts: u32,
    /// The number of repetitions; medians are printed.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// The length of each repetition, in milliseconds.
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u64).range(1..))]
    milliseconds: u64,
    /// The number of records between two snapshots (part snapshots).
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    snapshot_every: u64,
    /// The number of events to replay (part replay).
    #[arg(long, default_value_t = 500_000)]
    events: u64,
    /// The number of pairs, a hold and its settlement (part memory).
    #[arg(long, default_value_t = 1_000_000)]
    pairs: u64,
    /// The number of pairs between two measurements of memory (part memory).
    #[arg(long, default_value_t = 250_000, value_parser = clap::value_parser!(u64).range(1..))]
    step: u64,
    /// The time for which answers and closed holds are kept, in milliseconds (part memory).
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(i64).range(1..))]
    retention_ms: i64,
    /// Run the ledger without the engine, and drop its records instead of writing them (part memory).
    #[arg(long)]
    unwritten: bool,
    /// The size of a segment: bytes of records (part segments).
    #[arg(long, default_value_t = 64 << 20, value_parser = clap::value_parser!(u64).range(1..))]
    segment_bytes: u64,
    /// The compression level of segments (part segments).
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(i32).range(1..=19))]
    compression: i32,
    #[command(flatten)]
    place: Place,
    /// Print only JSON on standard output.
    #[arg(long)]
    json: bool,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Durable commands per second, against the limit.
    Rates,
    /// The effect of snapshots on waiting requests.
    Snapshots,
    /// How fast a start without a snapshot is.
    Replay,
    /// Whether memory stays flat over a long run.
    Memory,
    /// Bytes of the journal for each pair, and the effect of sealing on waiting requests.
    Segments,
}

/// All figures, as JSON.
#[derive(Default, Serialize)]
struct Figures {
    rates: Vec<EngineRate>,
    snapshots: Option<SnapshotCost>,
    replay: Option<ReplaySpeed>,
    memory: Vec<MemoryStep>,
    segments: Vec<SegmentCost>,
}

pub(crate) fn run(arguments: &EngineArguments) -> Result<(), Failure> {
    let mut figures = Figures::default();
    for part in [Part::Rates, Part::Snapshots, Part::Replay, Part::Memory, Part::Segments] {
        if arguments.part.contains(&part) {
            let folder = arguments.place.folder()?;
            measure(part, folder.path(), arguments, &mut figures)?;
        }
    }
    if arguments.json {
        print_line(&serde_json::to_string(&figures)?)?;
    }
    Ok(())
}

fn measure(
    part: Part,
    folder: &Path,
    arguments: &EngineArguments,
    figures: &mut Figures,
) -> Result<(), Failure> {
    let effort = Effort {
        accounts: arguments.accounts as usize,
        repetitions: arguments.repetitions as usize,
        time: Duration::from_millis(arguments.milliseconds),
    };
    let say = |line: String| if arguments.json { Ok(()) } else { print_line(&line) };
    match part {
        Part::Rates => {
            for in_flight in &arguments.in_flight {
                let rate = rate(folder, *in_flight as usize, effort)?;
                say(rate_lines(&rate))?;
                figures.rates.push(rate);
            }
        }
        Part::Snapshots => {
            let cost = snapshot_cost(folder, 64, arguments.snapshot_every, effort)?;
            say(snapshot_lines(&cost))?;
            figures.snapshots = Some(cost);
        }
        Part::Replay => {
            let (events, accounts) = (arguments.events, effort.accounts);
            let speed = replay_speed(folder, events, accounts, effort.repetitions)?;
            say(replay_lines(&speed))?;
            figures.replay = Some(speed);
        }
        Part::Memory => {
            let EngineArguments { pairs, step, retention_ms, .. } = *arguments;
            let run = LongRun {
                accounts: effort.accounts,
                in_flight: 1_000,
                pairs,
                step,
                retention_ms,
                written: !arguments.unwritten,
            };
            long_run(folder, run, |at| {
                // A closed output is detected by the following lines.
                let _ = say(memory_line(&at));
                figures.memory.push(at);
            })?;
        }
        Part::Segments => {
            let (segment_bytes, level) = (arguments.segment_bytes, arguments.compression);
            for in_flight in &arguments.in_flight {
                let in_flight = *in_flight as usize;
                let run = SealingRun { in_flight, segment_bytes, level };
                let cost = segment_cost(folder, run, effort)?;
                say(segment_lines(&cost))?;
                figures.segments.push(cost);
            }
        }
    }
    Ok(())
}

fn segment_lines(cost: &SegmentCost) -> String {
    format!(
        "segments, {} in flight, level {}: {} pairs\n  bytes a pair: {:.0} of records, {:.0} in the \
         database, {:.0} sealed ({} segments, live file {})\n  sealing takes {} of records a \
         second\n  commands/s {} without, {} while sealing, ratio {}\n  p99 of answers {} ms without, \
         {} ms while sealing, load {}",
        cost.in_flight,
        cost.level,
        cost.pairs,
        cost.record_bytes_per_pair,
        cost.unsealed_bytes_per_pair,
        cost.sealed_bytes_per_pair,
        cost.segments,
        mebibytes(cost.live_bytes),
        mebibytes(cost.sealed_bytes_per_second as u64),
        spread(cost.off_per_second, 0),
        spread(cost.on_per_second, 0),
        spread(cost.ratio, 3),
        spread(cost.off_p99_ms, 2),
        spread(cost.on_p99_ms, 2),
        cost.load
    )
}

fn rate_lines(rate: &EngineRate) -> String {
    format!(
        "{} in flight: {} commands/s, {:.0} pairs/s\n  limit {} = N / ({} ms fdatasync + N · {} µs)\n  \
         ratio {}\n  answers {:.2} ms, p99 {:.2} ms · {} batches and syncs of the log, {:.1} records each, \
         at most {}\n  {} resident, load {}",
        rate.in_flight,
        spread(rate.commands_per_second, 0),
        rate.commands_per_second.median / 2.0,
        spread(rate.limit_per_second, 0),
        spread(rate.fdatasync_ms, 3),
        spread(rate.core_us, 2),
        spread(rate.ratio, 2),
        rate.latency_ms,
        rate.latency_p99_ms,
        rate.batches,
        rate.mean_batch,
        rate.largest_batch,
        mebibytes(rate.resident_bytes),
        rate.load
    )
}

fn snapshot_lines(cost: &SnapshotCost) -> String {
    format!(
        "snapshots: {} of {} while {} were in flight, one every {} records, load {}\n  \
         p99 of answers {} ms without, {} ms with\n  commands/s {} without, {} with",
        cost.snapshots,
        mebibytes(cost.snapshot_bytes),
        cost.in_flight,
        cost.every,
        cost.load,
        spread(cost.off_p99_ms, 2),
        spread(cost.on_p99_ms, 2),
        spread(cost.off_per_second, 0),
        spread(cost.on_per_second, 0)
    )
}

fn replay_lines(speed: &ReplaySpeed) -> String {
    format!(
        "replay: {} events in {} records, {} on disk, in {} s: {} events/s, {} by the processor time of the busier thread\n  \
         state of {}, load {}",
        speed.events,
        speed.records,
        mebibytes(speed.file_bytes),
        spread(speed.seconds, 2),
        spread(speed.events_per_second, 0),
        spread(speed.events_per_processor_second, 0),
        mebibytes(speed.state_bytes),
        speed.load
    )
}

fn memory_line(at: &MemoryStep) -> String {
    format!(
        "{:>10} pairs: {} resident, {:.0} pairs/s, load {}",
        at.pairs,
        mebibytes(at.resident_bytes),
        at.pairs_per_second,
        at.load
    )
}
