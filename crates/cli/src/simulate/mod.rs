//! `bursar simulate`: studies on traces.

mod placement;

use clap::Subcommand;

use crate::exit::Failure;

#[derive(Subcommand)]
pub(crate) enum Simulate {
    /// How much of the GPUs is in use when enough work has arrived, by placement policy.
    Placement(placement::PlacementArguments),
}

pub(crate) fn run(study: Simulate) -> Result<(), Failure> {
    match study {
        Simulate::Placement(arguments) => placement::run(arguments),
    }
}
