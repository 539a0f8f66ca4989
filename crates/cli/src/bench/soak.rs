//! `bursar bench soak`.

use bursar_bench::soak::{LateRequests, SoakFigures, SoakRun, SoakStep, soak};
use bursar_engine::archiver::ClosedWindow;
use bursar_journal::Sealing;
use clap::Args;

use super::{Place, mebibytes};
use crate::exit::Failure;
use crate::render::print_line;

#[derive(Args)]
pub(crate) struct SoakArguments {
    /// The number of pairs: holds that are placed and settled, each request with an idempotency key.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pairs: u64,
    /// The number of pairs between two measurements.
    #[arg(long, default_value_t = 250_000, value_parser = clap::value_parser!(u64).range(1..))]
    step: u64,
    /// The number of orgs, each with ten grants.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    accounts: u32,
    /// The number of commands in flight.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    in_flight: u32,
    /// The number of closed holds and of answers that stay in memory; the default of a server if absent.
    #[arg(long)]
    closed_memory: Option<u32>,
    /// The size of a sealed segment: bytes of records.
    #[arg(long, default_value_t = Sealing::DEFAULT_BYTES, value_parser = clap::value_parser!(u64).range(1..))]
    segment_bytes: u64,
    /// How far the clock of the ledger advances with each command, in milliseconds. With 25, the first answers are past
    /// their retention after about 12 million pairs.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(i64).range(1..=60_000))]
    command_ms: i64,
    #[command(flatten)]
    place: Place,
    /// Print only JSON on standard output.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &SoakArguments) -> Result<(), Failure> {
    let folder = arguments.place.folder()?;
    let default = ClosedWindow::default();
    let keep = arguments.closed_memory.map_or(default.keep, |keep| keep as usize);
    let run = SoakRun {
        accounts: arguments.accounts as usize,
        in_flight: arguments.in_flight as usize,
        pairs: arguments.pairs,
        step: arguments.step,
        window: ClosedWindow { keep, ..default },
        segment_bytes: arguments.segment_bytes,
        command_ms: arguments.command_ms,
    };
    let say = |line: String| if arguments.json { Ok(()) } else { print_line(&line) };
    let figures = soak(folder.path(), run, |step| {
        // A closed output is detected by the following lines.
        let _ = say(step_line(&step));
    })?;
    if arguments.json {
        print_line(&serde_json::to_string(&figures)?)?;
    }
    say(figure_lines(&figures))
}

fn step_line(step: &SoakStep) -> String {
    format!(
        "{:>10} pairs: {} resident, {:.0} pairs/s, live journal {}, segments {}, archive {}, load {}",
        step.pairs,
        mebibytes(step.resident_bytes),
        step.pairs_per_second,
        mebibytes(step.live_bytes),
        mebibytes(step.segment_bytes),
        mebibytes(step.archive_bytes),
        step.load
    )
}

fn figure_lines(figures: &SoakFigures) -> String {
    format!(
        "after the first tenth {} to {} resident; {:.1} days of the ledger's time\n\
         bytes for each pair: records {:.0}, sealed {:.0}, archive {:.0}, all files {:.0}; peak disk {}\n\
         p99 of a forgotten hold: {}; of one in memory: {}; of a new id and key: {:.1} µs",
        mebibytes(figures.least_resident_bytes),
        mebibytes(figures.most_resident_bytes),
        figures.days,
        figures.record_bytes_per_pair,
        figures.sealed_bytes_per_pair,
        figures.archive_bytes_per_pair,
        figures.bytes_per_pair,
        mebibytes(figures.peak_disk_bytes),
        late(&figures.forgotten),
        late(&figures.in_memory),
        figures.fresh_p99_us
    )
}

fn late(figures: &LateRequests) -> String {
    let LateRequests { settle_p99_ms, refund_p99_ms, repeat_p99_ms } = figures;
    format!(
        "settle {settle_p99_ms:.2} ms, refund {refund_p99_ms:.2} ms, repeat {repeat_p99_ms:.2} ms"
    )
}
