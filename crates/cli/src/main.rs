//! The `bursar` command. One file per subcommand; `render/` draws, `exit.rs` says how it went.

mod exit;
mod pool;
mod render;
mod serve;
mod simulate;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Credits and a scheduler for shared GPUs.
#[derive(Parser)]
#[command(name = "bursar", version, about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the service.
    Serve(Box<serve::ServeArguments>),
    /// Look at a set-up without using it.
    #[command(subcommand)]
    Config(serve::ConfigCommand),
    /// Study the scheduler on traces of real clusters.
    #[command(subcommand)]
    Simulate(simulate::Simulate),
    /// Manage a pool of resources over standard input and output.
    Pool(pool::PoolArguments),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Serve(arguments) => serve::run(*arguments),
        Command::Config(command) => serve::config(&command),
        Command::Simulate(study) => simulate::run(study),
        Command::Pool(arguments) => pool::run(arguments),
    };
    exit::report(outcome)
}
