//! `bursar shard`: the ledger shards of a store.

use bursar_client::api::system::shard::{
    AddLedgerShard, LedgerShard, LedgerShardState, LedgerShards,
};
use bursar_client::system::shard;
use clap::Subcommand;

use crate::exit::Failure;
use crate::render::sheet::{Cell, Column, Row, Sheet, Tone, View, numbers, words};
use crate::session::{ChangeArguments, Session, no_more_known};

#[derive(Subcommand)]
pub(crate) enum ShardCommand {
    /// List the shards.
    #[command(after_help = "Example:\n  bursar shard ls")]
    Ls,
    /// Add a shard. New orgs go to the open shard with the fewest.
    #[command(after_help = "Example:\n  bursar shard add\n\n\
        It is used from the next start of the server on.")]
    Add {
        /// Its name: `ledger-` and the next number; chosen if absent.
        id: Option<String>,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Drain a shard: it takes no new orgs and keeps those that it has.
    #[command(after_help = "Example:\n  bursar shard drain ledger-0")]
    Drain {
        /// The shard.
        id: String,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Open a shard: it takes new orgs.
    #[command(after_help = "Example:\n  bursar shard open ledger-0")]
    Open {
        /// The shard.
        id: String,
        #[command(flatten)]
        change: ChangeArguments,
    },
}

pub(crate) async fn run(session: &Session, command: ShardCommand) -> Result<(), Failure> {
    match command {
        ShardCommand::Ls => session.read(shard::list()).await,
        ShardCommand::Add { id, change } => {
            session.change(shard::add(&AddLedgerShard { id }), &change, no_more_known).await
        }
        ShardCommand::Drain { id, change } => {
            session.change(shard::drain(&id), &change, no_more_known).await
        }
        ShardCommand::Open { id, change } => {
            session.change(shard::open(&id), &change, no_more_known).await
        }
    }
}

impl View for LedgerShards {
    fn sheet(&self) -> Sheet {
        Sheet::list(&self.data)
    }
}

impl View for LedgerShard {
    fn sheet(&self) -> Sheet {
        Sheet::list(std::slice::from_ref(self))
    }
}

impl Row for LedgerShard {
    const COLUMNS: &'static [Column] =
        &[words("id"), words("state"), numbers("orgs"), numbers("load"), words("next")];

    fn cells(&self) -> Vec<Cell> {
        let tone = match self.state {
            LedgerShardState::Open => Tone::Good,
            LedgerShardState::Draining | LedgerShardState::Closed => Tone::Warning,
        };
        vec![
            Cell::new(&self.id),
            Cell::word(&self.state).with_tone(tone),
            Cell::new(self.orgs),
            Cell::new(self.load),
            Cell::maybe(self.next.as_ref()),
        ]
    }
}
