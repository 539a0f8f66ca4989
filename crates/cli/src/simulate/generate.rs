//! `bursar simulate generate`: synthetic traces for the studies.

use std::path::PathBuf;

use bursar_sim::families::files;
use clap::Args;

use crate::exit::Failure;
use crate::render::print_line;

#[derive(Args)]
pub(crate) struct GenerateArguments {
    /// The folder to write into: nodes.csv, tasks-*.csv and jobs-*.csv.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// The seed. The same seed gives the same files everywhere.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(arguments: &GenerateArguments) -> Result<(), Failure> {
    let folder = arguments.folder.display();
    files::write_all(&arguments.folder, arguments.seed)
        .map_err(|error| Failure::new(format_args!("{folder} cannot be written"), error))?;
    print_line(&format!("wrote the traces of seed {} into {folder}", arguments.seed))
}
