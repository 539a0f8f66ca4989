//! `bursar bench`: what the parts that are shipped cost on this machine.

mod cell;

use clap::Subcommand;

use crate::exit::Failure;

#[derive(Subcommand)]
pub(crate) enum Bench {
    /// How fast a cell decides, on 1 000 and on 10 000 nodes.
    #[command(after_help = "Examples:\n  bursar bench cell\n  \
        bursar bench cell --nodes 10000 --repeat 3 --json")]
    Cell(cell::CellArguments),
}

pub(crate) fn run(bench: Bench) -> Result<(), Failure> {
    match bench {
        Bench::Cell(arguments) => cell::run(&arguments),
    }
}
