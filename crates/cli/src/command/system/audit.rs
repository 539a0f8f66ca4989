//! `bursar audit`.

use bursar_client::api::system::audit::{AuditQuery, AuditRecord, Checkpoint, Proof};
use bursar_client::system::audit;
use clap::{Args, Subcommand};

use super::verify;
use crate::exit::Failure;
use crate::local::audit::LocalAudit;
use crate::render::sheet::{Cell, Column, Row, Sheet, Tone, View, numbers, words};
use crate::session::{ListArguments, Session};

#[derive(Subcommand)]
pub(crate) enum AuditCommand {
    /// List records of the audit trail, newest first.
    #[command(after_help = "Examples:\n  bursar audit ls --account acme:nlp\n  \
        bursar audit ls --after 1200 --limit 100 -o json\n  \
        bursar audit ls --machine cell-eu --command drain_node,resume_node,preempt_job\n\n\
        Without --machine it lists the ledger. A cell also has the reports of its nodes: name the commands \
        that you look for.")]
    Ls(AuditArguments),
    /// Show what a record of the journal says: who, which command, and every event with its fields.
    #[command(after_help = "Examples:\n  bursar audit show 1200\n  \
        bursar audit show 45 --machine cell-eu -o json\n\n\
        The proof that the record is in the journal is checked first. Positions are in the answers to \
        changes and in `bursar audit ls`.")]
    Show {
        /// The position of the record.
        position: u64,
        #[command(flatten)]
        machine: MachineArgument,
    },
    /// Show a signed checkpoint of the journal.
    #[command(after_help = "Example:\n  bursar audit checkpoint -o json > checkpoint.json")]
    Checkpoint {
        #[command(flatten)]
        machine: MachineArgument,
    },
    /// Show the proof that a record is in the journal.
    #[command(after_help = "Example:\n  bursar audit proof 1200 -o json")]
    Proof {
        /// The position of the record.
        position: u64,
        #[command(flatten)]
        machine: MachineArgument,
    },
    #[command(flatten)]
    Local(LocalAudit),
}

/// Which machine's journal.
#[derive(Args)]
pub(crate) struct MachineArgument {
    /// The machine: `ledger-0`, `directory`, or `cell-REGION`.
    #[arg(long, value_name = "NAME")]
    machine: Option<String>,
}

impl MachineArgument {
    fn name(&self) -> Option<&str> {
        self.machine.as_deref()
    }
}

#[derive(Args)]
pub(crate) struct AuditArguments {
    #[command(flatten)]
    machine: MachineArgument,
    /// Only records about this account or its subtree.
    #[arg(long)]
    account: Option<String>,
    /// Only records about this job.
    #[arg(long)]
    job: Option<String>,
    /// Only records after this position.
    #[arg(long, value_name = "POSITION")]
    after: Option<u64>,
    /// Only records of this key or person, by its id in the trail.
    #[arg(long, value_name = "ID")]
    actor: Option<String>,
    /// Only these commands, separated by commas.
    #[arg(long, value_name = "NAMES")]
    command: Option<String>,
    #[command(flatten)]
    list: ListArguments,
}

pub(crate) async fn run(session: &Session, command: AuditCommand) -> Result<(), Failure> {
    match command {
        AuditCommand::Ls(AuditArguments { machine, account, job, after, actor, command, list }) => {
            let (machine, limit, cursor) = (machine.machine, list.limit, list.cursor.clone());
            let query = AuditQuery {
                machine,
                account,
                job,
                after,
                position: None,
                actor,
                command,
                limit,
                cursor,
            };
            session.list(audit::list(&query), &list).await
        }
        AuditCommand::Show { position, machine } => {
            verify::show(session, machine.name(), position).await
        }
        AuditCommand::Checkpoint { machine } => {
            session.read(audit::checkpoint(machine.name())).await
        }
        AuditCommand::Proof { position, machine } => {
            session.read(audit::proof(machine.name(), position)).await
        }
        AuditCommand::Local(command) => match command.remote() {
            Some(arguments) => verify::run(session, arguments).await,
            None => crate::local::audit::run(command, session.format()),
        },
    }
}

impl Row for AuditRecord {
    const COLUMNS: &'static [Column] = &[
        numbers("position"),
        words("at"),
        words("actor"),
        words("command"),
        words("refusal"),
        words("about"),
        words("events"),
    ];

    fn cells(&self) -> Vec<Cell> {
        let about: Vec<String> = self.about.iter().map(|subject| subject.id.clone()).collect();
        vec![
            Cell::new(self.position),
            Cell::time(self.at),
            Cell::maybe(self.actor.as_ref()),
            Cell::maybe(self.command.as_ref()),
            Cell::maybe(self.refusal.as_ref()).with_tone(Tone::Warning),
            Cell::joined(Some(&about)),
            Cell::joined(Some(&self.events)),
        ]
    }
}

impl View for Checkpoint {
    fn sheet(&self) -> Sheet {
        Sheet::record([
            ("journal", Cell::new(&self.journal)),
            ("size", Cell::new(self.size)),
            ("root", Cell::new(&self.root)),
            ("signed_at", Cell::time(self.signed_at)),
            ("public_key", Cell::new(&self.public_key)),
        ])
    }
}

impl View for Proof {
    fn sheet(&self) -> Sheet {
        Sheet::record([
            ("position", Cell::new(self.position)),
            ("path", Cell::lines(&self.path)),
            ("size", Cell::new(self.checkpoint.size)),
            ("root", Cell::new(&self.checkpoint.root)),
            ("public_key", Cell::new(&self.checkpoint.public_key)),
        ])
    }
}
