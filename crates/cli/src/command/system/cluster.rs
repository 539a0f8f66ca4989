//! `bursar cluster`: the servers of a store.

use bursar_client::api::system::cluster::{
    Cluster, ClusterMachine, ClusterMember, ClusterMemberState,
};
use bursar_client::system::cluster;
use clap::Subcommand;

use crate::exit::Failure;
use crate::local::losses::AcceptLossArguments;
use crate::render::sheet::{Cell, Column, Row, Sheet, Tone, View, numbers, words};
use crate::session::{ChangeArguments, Session, WatchArguments, no_more_known};

#[derive(Subcommand)]
pub(crate) enum ClusterCommand {
    /// Show the servers of the store and the machines that they own.
    #[command(after_help = "Example:\n  bursar cluster status --watch")]
    Status {
        #[command(flatten)]
        watch: WatchArguments,
    },
    /// Drain a server: it hands over what it owns and only forwards requests.
    #[command(after_help = "Example:\n  bursar cluster drain gpu-api-1-7070")]
    Drain {
        /// The server.
        member: String,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Resume a server: it may own machines again.
    #[command(after_help = "Example:\n  bursar cluster resume gpu-api-1-7070")]
    Resume {
        /// The server.
        member: String,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Raise the form of the store, so that servers may store what earlier builds cannot read. Refused while a server
    /// runs that cannot read it.
    #[command(after_help = "Example:\n  bursar cluster upgrade\n\n\
        When every server runs the new build. Earlier builds are then refused. `bursar cluster status` shows the \
        form of the store, what each server reads, and which of them hold back an upgrade.")]
    Upgrade {
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Accept that the store has lost changes, so that it is served as it is. Works on the database itself, because no
    /// server answers until the loss is accepted.
    #[command(
        name = "accept-loss",
        after_help = "Example:\n  bursar cluster accept-loss --store postgres://bursar@db.example/bursar\n\n\
            Without --yes \
            it only shows what was lost. A server that had led ends, and must be started again."
    )]
    AcceptLoss(AcceptLossArguments),
    /// Remove a server that is gone from the list.
    #[command(after_help = "Example:\n  bursar cluster evict gpu-api-1-7070")]
    Evict {
        /// The server.
        member: String,
        #[command(flatten)]
        change: ChangeArguments,
    },
}

pub(crate) async fn run(session: &Session, command: ClusterCommand) -> Result<(), Failure> {
    match command {
        ClusterCommand::Status { watch } => session.watch(cluster::show(), &watch).await,
        ClusterCommand::Drain { member, change } => {
            session.change(cluster::drain(&member), &change, no_more_known).await
        }
        ClusterCommand::Resume { member, change } => {
            session.change(cluster::resume(&member), &change, no_more_known).await
        }
        ClusterCommand::Upgrade { change } => {
            session.change(cluster::upgrade(), &change, no_more_known).await
        }
        ClusterCommand::AcceptLoss(arguments) => arguments.run(),
        ClusterCommand::Evict { member, change } => {
            session.change(cluster::evict(&member), &change, no_more_known).await
        }
    }
}

impl View for Cluster {
    fn sheet(&self) -> Sheet {
        let raise = self.next_form.map(|next| match self.held_back_by.as_slice() {
            [] => format!("to {next}: bursar cluster upgrade"),
            members => format!("to {next}: held back by {}", members.join(", ")),
        });
        let form = [("form", Cell::new(self.form)), ("upgrade", Cell::maybe(raise.as_ref()))];
        Sheet::list(&self.members)
            .with_section("machines", Sheet::list(&self.machines))
            .with_section("store", Sheet::record(form))
    }
}

impl Row for ClusterMember {
    const COLUMNS: &'static [Column] = &[
        words("id"),
        words("state"),
        words("url"),
        words("build"),
        numbers("form"),
        words("seen_at"),
    ];

    fn cells(&self) -> Vec<Cell> {
        let tone = match self.state {
            ClusterMemberState::Active => Tone::Good,
            ClusterMemberState::Draining => Tone::Warning,
            ClusterMemberState::Gone => Tone::Bad,
        };
        vec![
            Cell::new(&self.id),
            Cell::word(&self.state).with_tone(tone),
            Cell::new(&self.url),
            Cell::new(&self.build),
            Cell::new(self.form),
            Cell::time(self.seen_at),
        ]
    }
}

impl Row for ClusterMachine {
    const COLUMNS: &'static [Column] =
        &[words("id"), words("owner"), numbers("epoch"), numbers("position")];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::new(&self.id),
            Cell::maybe(self.owner.as_ref()),
            Cell::new(self.epoch),
            Cell::new(self.position),
        ]
    }
}
