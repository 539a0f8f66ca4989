//! `bursar bench start`.

use std::path::PathBuf;
use std::process::Command;

use bursar_bench::start::{StartFigures, StartState, fill, start};
use clap::Args;

use super::{Place, mebibytes};
use crate::exit::Failure;
use crate::render::print_line;

#[derive(Args)]
pub(crate) struct StartArguments {
    /// The number of accounts.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    accounts: u32,
    /// The number of grants of each account.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    grants: u32,
    /// The number of open holds.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(0..=100_000_000))]
    holds: u32,
    #[command(flatten)]
    place: Place,
    /// Print only JSON on standard output.
    #[arg(long)]
    json: bool,
    /// Start on a state that was written before, and print its figures.
    #[arg(long, hide = true, value_name = "DIR")]
    on: Option<PathBuf>,
}

pub(crate) fn run(arguments: &StartArguments) -> Result<(), Failure> {
    if let Some(folder) = &arguments.on {
        return print_line(&serde_json::to_string(&start(folder)?)?);
    }
    let folder = arguments.place.folder()?;
    let state = StartState {
        accounts: arguments.accounts as usize,
        grants: arguments.grants as usize,
        holds: arguments.holds as usize,
    };
    let stored = fill(folder.path(), state)?;
    if !arguments.json {
        print_line(&format!(
            "{} accounts with {} grants each, {} open holds: {} records, snapshot {}, journal {}",
            arguments.accounts,
            arguments.grants,
            arguments.holds,
            stored.records,
            mebibytes(stored.snapshot_bytes),
            mebibytes(stored.file_bytes)
        ))?;
    }
    let failed = |error| Failure::new("cannot start another process for the measurement", error);
    let program = std::env::current_exe().map_err(failed)?;
    let mut child = Command::new(program);
    child.args(["bench", "start", "--on"]).arg(folder.path());
    let output = child.output().map_err(failed)?;
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    if arguments.json && output.status.success() {
        return print_line(words.trim());
    }
    let figures: StartFigures = serde_json::from_str(words.trim()).map_err(|error| {
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        Failure::new("the other process gave no figures", format!("{error}: {words}"))
    })?;
    print_line(&format!(
        "start from the snapshot: {:.1} s until it answers, {} resident; its copy: {:.1} s, {} with both; {} accounts and \
         {} open holds; load {}",
        figures.seconds,
        mebibytes(figures.resident_bytes),
        figures.copy_seconds,
        mebibytes(figures.both_bytes),
        figures.found.0,
        figures.found.1,
        figures.load
    ))
}
