//! `bursar bench history`.

use bursar_bench::history::cost;
use clap::Args;

use super::{Place, mebibytes};
use crate::exit::Failure;
use crate::render::print_line;

#[derive(Args)]
pub(crate) struct HistoryArguments {
    /// The number of entries, all of one account.
    #[arg(long, default_value_t = 300_000)]
    entries: u64,
    #[command(flatten)]
    place: Place,
    /// Print only JSON on standard output.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &HistoryArguments) -> Result<(), Failure> {
    let folder = arguments.place.folder()?;
    let cost = cost(folder.path(), arguments.entries)?;
    if arguments.json {
        return print_line(&serde_json::to_string(&cost)?);
    }
    print_line(&format!(
        "{} entries of one account, {}, {:.0} fed a second, load {}",
        cost.entries,
        mebibytes(cost.file_bytes),
        cost.fed_per_second,
        cost.load
    ))?;
    print_line(&format!(
        "a page of 100, anywhere: {} µs, p99 {} µs, the slowest {} µs",
        cost.page_us, cost.page_p99_us, cost.page_worst_us
    ))?;
    print_line(&format!(
        "balance half way back {} µs · 100 records of the audit trail {} µs · top orgs of a day {} µs",
        cost.balance_as_of_us, cost.audit_us, cost.top_us
    ))
}
