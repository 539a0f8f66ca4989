//! `bursar simulate`: studies on traces.

mod generate;
mod placement;
mod queue;

use clap::Subcommand;

use crate::exit::Failure;

#[derive(Subcommand)]
pub(crate) enum Simulate {
    /// How much of the GPUs is in use when enough work has arrived, by placement policy.
    Placement(placement::PlacementArguments),
    /// How long jobs wait, and how fairly, by scheduling policy.
    Queue(queue::QueueArguments),
    /// Write traces that a seed makes, shaped after published ones.
    Generate(generate::GenerateArguments),
}

pub(crate) fn run(study: Simulate) -> Result<(), Failure> {
    match study {
        Simulate::Placement(arguments) => placement::run(arguments),
        Simulate::Queue(arguments) => queue::run(arguments),
        Simulate::Generate(arguments) => generate::run(&arguments),
    }
}
