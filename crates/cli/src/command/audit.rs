//! `bursar audit`.

use bursar_client::api::audit::{AuditQuery, AuditRecord, Checkpoint, Proof};
use bursar_client::audit;
use clap::{Args, Subcommand};

use crate::exit::Failure;
use crate::render::sheet::{Cell, Column, Row, Sheet, View, numbers, words};
use crate::session::{ListArguments, Session};

#[derive(Subcommand)]
pub(crate) enum AuditCommand {
    /// List the records of what happened, oldest first.
    #[command(after_help = "Examples:\n  bursar audit ls --account acme:nlp\n  \
        bursar audit ls --after 1200 --limit 100 -o json")]
    Ls(AuditArguments),
    /// Show a signed statement of how far the journal has come.
    #[command(after_help = "Example:\n  bursar audit checkpoint -o json > checkpoint.json")]
    Checkpoint,
    /// Show the proof that a record is in the journal.
    #[command(after_help = "Example:\n  bursar audit proof 1200 -o json")]
    Proof {
        /// The position of the record.
        position: u64,
    },
}

#[derive(Args)]
pub(crate) struct AuditArguments {
    /// Only those that concern this account or one below it.
    #[arg(long)]
    account: Option<String>,
    /// Only those that concern this job.
    #[arg(long)]
    job: Option<String>,
    /// Only those behind this position.
    #[arg(long, value_name = "POSITION")]
    after: Option<u64>,
    /// How many at most; 25 if not given.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    limit: Option<u32>,
}

pub(crate) async fn run(session: &Session, command: AuditCommand) -> Result<(), Failure> {
    match command {
        AuditCommand::Ls(AuditArguments { account, job, after, limit }) => {
            let call = audit::list(&AuditQuery { account, job, after, limit });
            session.list(call, &ListArguments::default()).await
        }
        AuditCommand::Checkpoint => session.read(audit::checkpoint()).await,
        AuditCommand::Proof { position } => session.read(audit::proof(position)).await,
    }
}

impl Row for AuditRecord {
    const COLUMNS: &'static [Column] =
        &[numbers("position"), words("at"), words("actor"), words("accounts"), words("events")];

    fn cells(&self) -> Vec<Cell> {
        let mut accounts: Vec<String> =
            self.events.iter().filter_map(|event| event.account.clone()).collect();
        accounts.dedup();
        let kinds: Vec<String> = self.events.iter().map(|event| event.kind.clone()).collect();
        vec![
            Cell::new(self.position),
            Cell::time(self.at),
            Cell::maybe(self.actor.as_ref()),
            Cell::joined(Some(&accounts)),
            Cell::joined(Some(&kinds)),
        ]
    }
}

impl View for Checkpoint {
    fn sheet(&self) -> Sheet {
        Sheet::record([
            ("journal", Cell::new(&self.journal)),
            ("sequence", Cell::new(self.sequence)),
            ("position", Cell::new(self.position)),
            ("hash", Cell::new(&self.hash)),
            ("public_key", Cell::new(&self.public_key)),
            ("text", Cell::new(&self.text)),
        ])
    }
}

impl View for Proof {
    fn sheet(&self) -> Sheet {
        Sheet::record([
            ("position", Cell::new(self.position)),
            ("sequence", Cell::new(self.sequence)),
            ("leaf", Cell::new(&self.leaf)),
            ("path", Cell::new(self.path.join("\n"))),
            ("checkpoint", Cell::new(&self.checkpoint.hash)),
        ])
    }
}
