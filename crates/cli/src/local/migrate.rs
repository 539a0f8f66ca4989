//! `bursar admin migrate`: moves a store into PostgreSQL.

use std::path::PathBuf;

use bursar_journal::postgres::PostgresOptions;
use bursar_server::backup::migrate::migrate;
use bursar_server::backup::postgres::LocalFiles;
use clap::Args;

use super::{TerminalProgress, failed};
use crate::exit::Failure;
use crate::render::format::print;

/// From where, and to where.
#[derive(Args)]
pub(crate) struct MigrateArguments {
    /// The folder of the store. No server may use it.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The URL of an empty PostgreSQL database.
    #[arg(long, value_name = "URL")]
    to: String,
    /// Accept a PostgreSQL without a synchronous standby: its loss loses the store.
    #[arg(long)]
    unsafe_single_postgres: bool,
    /// Accept a PostgreSQL on another machine without encryption (sslmode=disable).
    #[arg(long)]
    unsafe_plaintext_postgres: bool,
    /// Where to write the key that signs checkpoints: `checkpoint.key` beside the root key.
    #[arg(long, value_name = "FILE")]
    checkpoint_key: Option<PathBuf>,
    /// The folder for the output of jobs, as of `bursar serve --state`.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

impl MigrateArguments {
    pub(super) fn run(&self, bar: TerminalProgress) -> Result<(), Failure> {
        let options = |machine: &str| {
            let mut options = PostgresOptions::new(self.to.clone(), machine);
            options.unsafe_single = self.unsafe_single_postgres;
            options.unsafe_plaintext = self.unsafe_plaintext_postgres;
            options
        };
        let (key, state) = (self.checkpoint_key.as_deref(), self.state.as_deref());
        let moved = migrate(&self.data, &options, &LocalFiles { key, state }, &bar).map_err(failed);
        bar.finish();
        moved?;
        print(&format!(
            "next: bursar serve --store URL. {} is marked as moved and not served any more\n",
            self.data.display()
        ))
    }
}
