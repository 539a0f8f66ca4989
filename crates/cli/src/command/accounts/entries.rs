//! `bursar entries`.

use bursar_client::accounts::balances;
use bursar_client::api::accounts::balance::{EntriesQuery, Entry};
use clap::Args;

use crate::exit::Failure;
use crate::render::sheet::{Cell, Column, Row, numbers, words};
use crate::session::{ListArguments, Session};

#[derive(Args)]
#[command(after_help = "Examples:\n  bursar entries acme:nlp\n  \
    bursar entries acme:nlp --all -o csv > entries.csv")]
pub(crate) struct EntriesArguments {
    /// The account.
    account: String,
    #[command(flatten)]
    list: ListArguments,
}

pub(crate) async fn run(session: &Session, arguments: EntriesArguments) -> Result<(), Failure> {
    let EntriesArguments { account, list } = arguments;
    let query = EntriesQuery { limit: list.limit, cursor: list.cursor.clone(), min_position: None };
    session.list(balances::entries(&account, &query), &list).await
}

impl Row for Entry {
    const COLUMNS: &'static [Column] = &[
        words("at"),
        words("type"),
        numbers("amount"),
        numbers("balance_after"),
        words("grant"),
        words("hold"),
        words("job"),
        words("id"),
    ];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::time(self.at),
            Cell::new(&self.kind),
            Cell::new(self.amount),
            Cell::new(self.balance_after),
            Cell::maybe(self.grant.as_ref()),
            Cell::maybe(self.hold.as_ref()),
            Cell::maybe(self.job.as_ref()),
            Cell::new(&self.id),
        ]
    }
}
