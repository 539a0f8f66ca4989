//! `bursar statement`.

use bursar_client::accounts::balances;
use bursar_client::api::Time;
use bursar_client::api::accounts::statement::{
    Spending, SpendingLine, Statement, StatementBy, StatementQuery,
};
use bursar_client::api::amount::Sum;
use clap::Args;

use crate::arguments::{instant, month};
use crate::exit::{Exit, Failure};
use crate::render::format::{Format, print};
use crate::render::sheet::{Cell, Column, Row, Sheet, View, numbers, words};
use crate::session::Session;

#[derive(Args)]
#[command(after_help = "Examples:\n  bursar statement acme --month 2026-11\n  \
    bursar statement acme --month 2026-11 --by account\n  \
    bursar statement acme --from 2026-11-01 --to 2026-11-08 --by label:project -o csv")]
pub(crate) struct StatementArguments {
    /// The account; else BURSAR_ACCOUNT, else the one that the key is for.
    #[arg(env = "BURSAR_ACCOUNT")]
    account: Option<String>,
    /// A whole month in the local time zone, or in UTC with --utc, such as 2026-11.
    #[arg(long, value_parser = month, conflicts_with_all = ["from", "to"])]
    month: Option<(Time, Time)>,
    /// The first instant of the period.
    #[arg(long, value_name = "WHEN", value_parser = instant, requires = "to")]
    from: Option<Time>,
    /// The first instant after the period.
    #[arg(long, value_name = "WHEN", value_parser = instant, requires = "from")]
    to: Option<Time>,
    /// What spending is grouped by: subtree (the account itself and each account directly below it),
    /// account, gpu_type, class, region, job, day, none or label:NAME; subtree if not given. With -o
    /// csv it prints these groups instead of the movements.
    #[arg(long, value_parser = str::parse::<StatementBy>)]
    by: Option<StatementBy>,
}

pub(crate) async fn run(session: &Session, arguments: StatementArguments) -> Result<(), Failure> {
    let (from, to) = match (arguments.month, arguments.from, arguments.to) {
        (Some(month), _, _) => month,
        (None, Some(from), Some(to)) => (from, to),
        (None, _, _) => {
            return Err(Failure::because(Exit::Usage, "the period is needed")
                .with_next("give --month 2026-11, or --from and --to"));
        }
    };
    let account = session.account_or_own(arguments.account).await?;
    let has_groups = arguments.by.is_some() && session.format() == Format::Csv;
    let query = StatementQuery { from, to, by: Some(arguments.by.unwrap_or_default()), k: None };
    let call = balances::statement(&account, &query);
    if has_groups {
        let statement = session.send(call).await?.value;
        return print(&spent(&statement.spending).csv()?);
    }
    session.read(call).await
}

/// One line of the movements: an end or a type.
struct Line {
    kind: String,
    available: Sum,
    held: Sum,
    spent: Option<Sum>,
    count: Option<u64>,
}

impl View for Statement {
    fn sheet(&self) -> Sheet {
        let end = |kind: &str, available, held, spent| Line {
            kind: kind.to_owned(),
            available,
            held,
            spent,
            count: None,
        };
        let mut lines = vec![end("opening", self.opening, self.held_opening, None)];
        lines.extend(self.movements.iter().map(|line| Line {
            kind: line.kind.clone(),
            available: line.amount,
            held: line.held_change,
            spent: Some(line.spent_change),
            count: Some(line.count),
        }));
        lines.push(end("closing", self.closing, self.held_closing, Some(self.spent)));
        let of = Sheet::record([
            ("account", Cell::new(&self.account)),
            ("from", Cell::time(self.from)),
            ("to", Cell::time(self.to)),
        ]);
        let sheet = Sheet::list(&lines).with_section("statement of", of);
        sheet.with_section(title(&self.spending), spent(&self.spending))
    }
}

fn title(spending: &Spending) -> &'static str {
    use bursar_client::api::accounts::spend::SpendBy;
    match &spending.by {
        StatementBy::Day => "spent by day",
        StatementBy::Group(by) => match by {
            SpendBy::None => "spent",
            SpendBy::Account => "spent by account",
            SpendBy::Subtree => "spent by subtree",
            SpendBy::GpuType => "spent by GPU type",
            SpendBy::Class => "spent by class",
            SpendBy::Region => "spent by region",
            SpendBy::Job => "spent by job",
            SpendBy::Label(_) => "spent by label",
        },
    }
}

/// The lines of spending, the rest and the sum.
fn spent(spending: &Spending) -> Sheet {
    let mut lines = spending.lines.clone();
    let mut push =
        |key: &str, amount| lines.push(SpendingLine { key: Some(key.to_owned()), amount });
    if spending.other.micros() != 0 && !spending.lines.is_empty() {
        push("other", spending.other);
    }
    push("total", spending.total);
    Sheet::list(&lines)
}

impl Row for Line {
    const COLUMNS: &'static [Column] =
        &[words("type"), numbers("available"), numbers("held"), numbers("spent"), numbers("count")];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::new(&self.kind),
            Cell::new(self.available),
            Cell::new(self.held),
            Cell::maybe(self.spent),
            Cell::maybe(self.count),
        ]
    }
}

impl Row for SpendingLine {
    const COLUMNS: &'static [Column] = &[words("group"), numbers("spent")];

    fn cells(&self) -> Vec<Cell> {
        vec![Cell::new(self.key.as_deref().unwrap_or("(none)")), Cell::new(self.amount)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn a_statement_adds_up_from_opening_to_closing() {
        let body = r#"{"account":"acme","from":"2026-11-01T00:00:00.000Z",
            "to":"2026-12-01T00:00:00.000Z","opening":"0","held_opening":"0","movements":[
            {"type":"granted","amount":"1000","held_change":"0","spent_change":"0","count":2},
            {"type":"held","amount":"-28.8","held_change":"28.8","spent_change":"0","count":1},
            {"type":"captured","amount":"0","held_change":"-20","spent_change":"20","count":3}],
            "closing":"971.2","held_closing":"8.8","spent":"20","spending":{"by":"subtree",
            "lines":[{"key":"acme:nlp","amount":"14"},{"key":"acme","amount":"5"}],"other":"1",
            "total":"20"},"as_of":"2026-11-15T06:30:00.000Z","position":42}"#;
        let statement: Statement = serde_json::from_str(body).expect("a statement");
        expect![[r#"
            TYPE      AVAILABLE   HELD  SPENT  COUNT
            opening         0      0
            granted      1000      0        0      2
            held          -28.8   28.8      0      1
            captured        0    -20       20      3
            closing       971.2    8.8     20

            statement of:
            account  acme
            from     2026-11-01T00:00:00Z
            to       2026-12-01T00:00:00Z

            spent by subtree:
            GROUP     SPENT
            acme:nlp     14
            acme          5
            other         1
            total        20"#]]
        .assert_eq(&statement.sheet().text(false));
    }
}
