//! `bursar session`.

use bursar_client::api::Page;
use bursar_client::api::system::session::ActiveSession;
use bursar_client::system::sessions;
use clap::Subcommand;

use crate::exit::Failure;
use crate::render::sheet::{Cell, Column, Row, words};
use crate::session::{ChangeArguments, ConfirmArguments, ListArguments, Session};

#[derive(Subcommand)]
pub(crate) enum SessionCommand {
    /// List who is signed in with a browser or `bursar login`, the last used first.
    #[command(after_help = "Example:\n  bursar session ls")]
    Ls(ListArguments),
    /// End every session of a key or person, in browsers and on command lines.
    #[command(after_help = "Examples:\n  bursar session end key_01JAB2C3D4E5F6G7H8J9K0MNPQ\n  \
        bursar session end ada@https://id.example --yes")]
    End {
        /// The actor, as `bursar session ls` and the audit trail show it.
        actor: String,
        #[command(flatten)]
        confirm: ConfirmArguments,
        #[command(flatten)]
        change: ChangeArguments,
    },
}

pub(crate) async fn run(session: &Session, command: SessionCommand) -> Result<(), Failure> {
    match command {
        SessionCommand::Ls(list) => {
            let page = Page { limit: list.limit, cursor: list.cursor.clone() };
            session.list(sessions::list(&page), &list).await
        }
        SessionCommand::End { actor, confirm, change } => {
            confirm.ask(&change, &format!("end every session of {actor}?"))?;
            let done = format!(
                "the sessions of {actor} have ended; its key, or its account at the \
                identity provider, still works"
            );
            session.remove(sessions::end_of(&actor), &change, &done).await
        }
    }
}

impl Row for ActiveSession {
    const COLUMNS: &'static [Column] = &[
        words("actor"),
        words("name"),
        words("role"),
        words("scope"),
        words("last_used_at"),
        words("expires_at"),
    ];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::new(&self.actor),
            Cell::maybe(self.name.as_ref()),
            Cell::word(&self.role),
            Cell::new(&self.scope),
            Cell::maybe_time(Some(self.last_used_at)),
            Cell::maybe_time(Some(self.expires_at)),
        ]
    }
}
