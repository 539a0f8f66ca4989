//! `bursar top`.

use std::time::Duration;

use bursar_client::accounts::balances;
use bursar_client::api::accounts::top::{Top, TopBy, TopEntry, TopKind, TopQuery};
use clap::Args;

use crate::arguments::{TOP_BY, TOP_KINDS, duration, in_one_unit, word};
use crate::exit::Failure;
use crate::render::format::Format;
use crate::render::sheet::{Cell, Column, Row, Sheet, View, numbers, words};
use crate::session::{Session, WatchArguments};

#[derive(Args)]
#[command(after_help = "Examples:\n  bursar top --kind team --window 7d\n  \
    bursar top --by held -k 5 --watch=10")]
pub(crate) struct TopArguments {
    /// What to rank; if not given, users, or else the first of projects, teams and orgs with entries.
    #[arg(long, value_parser = word::<TopKind>(TOP_KINDS))]
    kind: Option<TopKind>,
    /// The value to rank by; spent if not given.
    #[arg(long, value_parser = word::<TopBy>(TOP_BY))]
    by: Option<TopBy>,
    /// How far to look back, such as 30m, 24h or 7d; a day if not given.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    window: Option<Duration>,
    /// The number of entries; 10 if not given.
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..=100))]
    k: Option<u32>,
    #[command(flatten)]
    watch: WatchArguments,
}

pub(crate) async fn run(session: &Session, arguments: TopArguments) -> Result<(), Failure> {
    let TopArguments { kind, by, window, k, watch } = arguments;
    let window = window.map(in_one_unit);
    let shown = window.clone().unwrap_or_else(|| "24h".to_owned());
    session.remark(Some(&heading(by.unwrap_or(TopBy::Spent), &shown)));
    let query = |kind| TopQuery { kind, by, window: window.clone(), k, limit: None, cursor: None };
    if kind.is_some() || watch.is_on() || session.format() != Format::Table {
        return session.watch(balances::top(&query(kind)), &watch).await;
    }
    // Without a kind, the first that has entries: few tenants have accounts of every kind.
    let mut answer = session.send(balances::top(&query(None))).await?;
    for kind in [TopKind::Project, TopKind::Team, TopKind::Org] {
        if !answer.value.data.is_empty() {
            break;
        }
        answer = session.send(balances::top(&query(Some(kind)))).await?;
    }
    session.show(&answer)
}

/// What the column of values is.
fn heading(by: TopBy, window: &str) -> String {
    match by {
        TopBy::Spent => format!("ranked by credits spent in the last {window}"),
        TopBy::GpuSeconds => format!("ranked by GPU seconds in the last {window}"),
        TopBy::Available => "ranked by credits available now".to_owned(),
        TopBy::Held => "ranked by credits held now".to_owned(),
    }
}

impl View for Top {
    fn sheet(&self) -> Sheet {
        Sheet::list(&self.data)
    }
}

impl Row for TopEntry {
    const COLUMNS: &'static [Column] = &[words("id"), numbers("value")];

    fn cells(&self) -> Vec<Cell> {
        vec![Cell::new(&self.id), Cell::new(self.value)]
    }
}
