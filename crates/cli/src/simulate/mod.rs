//! `bursar simulate`: studies on traces.

mod ablation;
mod generate;
mod placement;
mod queue;

use clap::Subcommand;

use crate::exit::Failure;

#[derive(Subcommand)]
pub(crate) enum Simulate {
    /// Measure GPU utilisation under saturating load, by placement policy.
    #[command(
        after_help = "Example:\n  bursar simulate placement --nodes nodes.csv --jobs tasks.csv \
        --policy bursar --json"
    )]
    Placement(placement::PlacementArguments),
    /// Measure waiting times and fairness, by scheduling policy.
    #[command(
        after_help = "Example:\n  bursar simulate queue --jobs jobs.csv --gpus 64 --tenants 8 \
        --json"
    )]
    Queue(queue::QueueArguments),
    /// Measure what each rule of the scheduling policy buys.
    #[command(after_help = "Example:\n  bursar simulate ablation --family gang-heavy --json")]
    Ablation(ablation::AblationArguments),
    /// Generate traces from a seed, modelled on published ones.
    #[command(after_help = "Example:\n  bursar simulate generate ./traces --seed 7")]
    Generate(generate::GenerateArguments),
}

pub(crate) fn run(study: Simulate) -> Result<(), Failure> {
    match study {
        Simulate::Placement(arguments) => placement::run(arguments),
        Simulate::Queue(arguments) => queue::run(arguments),
        Simulate::Ablation(arguments) => ablation::run(arguments),
        Simulate::Generate(arguments) => generate::run(&arguments),
    }
}
