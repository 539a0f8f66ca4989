//! `bursar bench core`.

use bursar_bench::core::{CoreMeasurement, Unit, rows};
use bursar_bench::load_average;
use clap::Args;
use serde_json::json;

use super::spread;
use crate::exit::Failure;
use crate::render::print_line;

#[derive(Args)]
pub(crate) struct CoreArguments {
    /// Do a tenth of the work.
    #[arg(long)]
    quick: bool,
    /// Print only JSON on standard output.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: CoreArguments) -> Result<(), Failure> {
    let CoreArguments { quick, json } = arguments;
    let scale = if quick { 10 } else { 1 };
    let rows = rows(scale, |row| {
        if !json {
            // A closed output is detected by the last line.
            let _ = print_line(&line(row));
        }
    })?;
    let load = load_average();
    match json {
        true => print_line(&serde_json::to_string(&json!({ "rows": rows, "load": load }))?),
        false => print_line(&format!("load of the machine {load}")),
    }
}

fn line(row: &CoreMeasurement) -> String {
    let (digits, unit) = match row.unit {
        Unit::Nanoseconds => (0, " ns"),
        Unit::Bytes => (0, " bytes"),
        Unit::Times => (1, " ×"),
    };
    let least = row.times_the_least.map(|times| format!(", {times:.0} × the bare loop"));
    format!("{:<66} {}{unit}{}", row.work, spread(row.figure, digits), least.unwrap_or_default())
}
