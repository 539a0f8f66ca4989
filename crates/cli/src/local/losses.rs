//! `bursar cluster accept-loss`: an operator accepts that a store has lost changes.

use bursar_journal::JournalError;
use bursar_journal::postgres::{PostgresOptions, PostgresStore};
use clap::Args;

use crate::exit::{Exit, Failure};
use crate::render::format::print;

/// Which store, and whether to do it.
#[derive(Args)]
pub(crate) struct AcceptLossArguments {
    /// The address of the database, as for `bursar serve --store`.
    #[arg(long, value_name = "URL", env = "BURSAR_STORE")]
    store: String,
    /// Accept a PostgreSQL on another machine without encryption (sslmode=disable).
    #[arg(long)]
    unsafe_plaintext_postgres: bool,
    /// Accept the loss.
    #[arg(long)]
    yes: bool,
}

impl AcceptLossArguments {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut options = PostgresOptions::new(self.store, "store");
        options.unsafe_single = true;
        options.unsafe_plaintext = self.unsafe_plaintext_postgres;
        let failed = |error: JournalError| Failure::because(Exit::Failed, error.to_string());
        let Some(lost) = PostgresStore::loss(&options).map_err(failed)? else {
            return print("no loss is noted in this store: nothing was changed\n");
        };
        if !self.yes {
            let next =
                "put back the newest copy of the database, or accept the loss: repeat with --yes";
            return Err(Failure::because(Exit::Failed, format!("lost: {lost}")).with_next(next));
        }
        PostgresStore::accept_loss(&options).map_err(failed)?;
        print(&format!("accepted: {lost}\nThe servers go on with the store as it is.\n"))
    }
}
