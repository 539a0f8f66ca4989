//! `bursar admin store-test`: the laws of the journal against a database of the user.

use bursar_journal::postgres::{PostgresOptions, test_store};
use clap::Args;

use crate::exit::{Exit, Failure};
use crate::render::format::print;

/// Arguments of the test.
#[derive(Args)]
pub(crate) struct StoreTestArguments {
    /// The address of the database, as for `bursar serve --store`.
    #[arg(value_name = "URL")]
    store: String,
    /// Accept a PostgreSQL without a synchronous standby.
    #[arg(long)]
    unsafe_single_postgres: bool,
    /// Accept a PostgreSQL on another machine without encryption (sslmode=disable).
    #[arg(long)]
    unsafe_plaintext_postgres: bool,
}

impl StoreTestArguments {
    pub(super) fn run(self) -> Result<(), Failure> {
        let mut options = PostgresOptions::new(self.store, "store-test");
        options.unsafe_single = self.unsafe_single_postgres;
        options.unsafe_plaintext = self.unsafe_plaintext_postgres;
        let mut broken = 0;
        let mut unprinted = None;
        let tested = test_store(&options, &mut |law| {
            let line = match &law.outcome {
                Ok(seen) => format!("ok    {}: {seen}\n", law.law),
                Err(reason) => {
                    broken += 1;
                    format!("FAIL  {}: {reason}\n", law.law)
                }
            };
            unprinted = print(&line).err().or(unprinted.take());
        });
        if let Some(failure) = unprinted {
            return Err(failure);
        }
        let all_hold = tested.map_err(|error| {
            Failure::because(Exit::Failed, format!("the test broke off: {error}"))
        })?;
        if all_hold {
            return Ok(());
        }
        let why = format!("{broken} of the laws do not hold for this database");
        let next = "correct what the lines with FAIL name, and run the test again";
        Err(Failure::because(Exit::Failed, why).with_next(next))
    }
}
