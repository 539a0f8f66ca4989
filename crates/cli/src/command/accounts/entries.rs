//! `bursar entries`.

use bursar_client::accounts::balances;
use bursar_client::api::accounts::entry::{EntriesQuery, EntriesView, Entry};
use clap::Args;

use crate::arguments::word;
use crate::exit::Failure;
use crate::render::sheet::{Cell, Column, Row, numbers, words};
use crate::session::{PeriodArguments, Session};

/// The views, as in the API.
const VIEWS: &[&str] = &["own", "spent", "all", "subtree"];

#[derive(Args)]
#[command(after_help = "Examples:\n  bursar entries acme:nlp\n  \
    bursar entries acme --type captured,charged,refunded --spender acme:nlp --from 2026-11-01\n  \
    bursar entries acme --view subtree --type granted,expired\n  \
    bursar entries acme:nlp --all -o csv > entries.csv")]
pub(crate) struct EntriesArguments {
    /// The account; else BURSAR_ACCOUNT, else the one that the key is for.
    #[arg(env = "BURSAR_ACCOUNT")]
    account: Option<String>,
    /// Which movements: of the account's own credits (own), of credits that it held or spent,
    /// whichever account owns them (spent), both (all), or both with every account below it (subtree).
    #[arg(long, default_value = "all", value_parser = word::<EntriesView>(VIEWS))]
    view: EntriesView,
    /// Only these types, separated by commas, such as captured,charged.
    #[arg(long = "type", value_name = "TYPES")]
    kind: Option<String>,
    /// Only what this account, or one below it, held or spent.
    #[arg(long, value_name = "ACCOUNT")]
    spender: Option<String>,
    /// Only what concerns this job.
    #[arg(long, value_name = "ID")]
    job: Option<String>,
    /// Only movements of the credits of this grant.
    #[arg(long, value_name = "ID")]
    grant: Option<String>,
    #[command(flatten)]
    period: PeriodArguments,
}

pub(crate) async fn run(session: &Session, arguments: EntriesArguments) -> Result<(), Failure> {
    let EntriesArguments { account, view, kind, spender, job, grant, period } = arguments;
    let account = session.account_or_own(account).await?;
    let PeriodArguments { from, to, list } = period;
    let query = EntriesQuery {
        view: Some(view),
        from,
        to,
        kind,
        spender,
        job,
        grant,
        limit: list.limit,
        cursor: list.cursor.clone(),
        min_position: None,
    };
    session.list(balances::entries(&account, &query), &list).await
}

impl Row for Entry {
    const COLUMNS: &'static [Column] = &[
        words("at"),
        words("type"),
        words("account"),
        numbers("available"),
        numbers("held"),
        numbers("spent"),
        numbers("balance_after"),
        words("spender"),
        words("job"),
        words("hold"),
        words("grant"),
        words("by"),
        words("reference"),
        words("id"),
    ];

    fn cells(&self) -> Vec<Cell> {
        let by = self.refund.as_ref().or(self.transfer.as_ref()).or(self.collection.as_ref());
        vec![
            Cell::time(self.at),
            Cell::new(&self.kind),
            Cell::new(&self.account),
            Cell::new(self.available_change),
            Cell::new(self.held_change),
            Cell::new(self.spent_change),
            Cell::new(self.balance_after),
            Cell::maybe(self.spender.as_ref()),
            Cell::maybe(self.job.as_ref()),
            Cell::maybe(self.hold.as_ref()),
            Cell::maybe(self.grant.as_ref()),
            Cell::maybe(by),
            Cell::maybe(self.reference.as_ref()),
            Cell::new(&self.id),
        ]
    }
}
