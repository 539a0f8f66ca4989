//! `bursar balance`, `bursar statement`, `bursar forecast`.

use bursar_client::accounts::balances;
use bursar_client::api::Time;
use bursar_client::api::accounts::balance::{
    Balance, BalanceQuery, Expiring, Forecast, Statement, StatementLine, StatementQuery,
};
use clap::Args;

use crate::arguments::{instant, month};
use crate::exit::{Exit, Failure};
use crate::render::sheet::{Cell, Column, Row, Sheet, Tone, View, numbers, words};
use crate::session::{Session, WatchArguments};

#[derive(Args)]
#[command(after_help = "Examples:\n  bursar balance acme:nlp\n  \
    bursar balance acme:nlp --gpu-type H100 --watch\n  bursar balance acme --at 2027-01-01")]
pub(crate) struct BalanceArguments {
    /// The account.
    account: String,
    /// The instant. A past one gives the balance at that time; a future one assumes no more spending.
    #[arg(long, value_name = "WHEN", value_parser = instant)]
    at: Option<Time>,
    /// Show what is spendable for this GPU type.
    #[arg(long, value_name = "TYPE")]
    gpu_type: Option<String>,
    /// Show what is spendable in this region.
    #[arg(long)]
    region: Option<String>,
    /// Show what is spendable in this priority class.
    #[arg(long)]
    class: Option<String>,
    #[command(flatten)]
    watch: WatchArguments,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  bursar statement acme --month 2026-11\n  \
    bursar statement acme --from 2026-11-01 --to 2026-11-08 -o csv")]
pub(crate) struct StatementArguments {
    /// The account.
    account: String,
    /// A whole month in UTC, such as 2026-11.
    #[arg(long, value_parser = month, conflicts_with_all = ["from", "to"])]
    month: Option<(Time, Time)>,
    /// The first instant of the period.
    #[arg(long, value_name = "WHEN", value_parser = instant, requires = "to")]
    from: Option<Time>,
    /// The first instant after the period.
    #[arg(long, value_name = "WHEN", value_parser = instant, requires = "from")]
    to: Option<Time>,
}

#[derive(Args)]
#[command(after_help = "Example:\n  bursar forecast acme:nlp")]
pub(crate) struct ForecastArguments {
    /// The account.
    account: String,
}

pub(crate) async fn balance(session: &Session, arguments: BalanceArguments) -> Result<(), Failure> {
    let query = BalanceQuery {
        at: arguments.at,
        gpu_type: arguments.gpu_type,
        region: arguments.region,
        class: arguments.class,
        min_position: None,
        stale_ok: None,
    };
    session.watch(balances::at(&arguments.account, &query), &arguments.watch).await
}

pub(crate) async fn statement(
    session: &Session,
    arguments: StatementArguments,
) -> Result<(), Failure> {
    let (from, to) = match (arguments.month, arguments.from, arguments.to) {
        (Some(month), _, _) => month,
        (None, Some(from), Some(to)) => (from, to),
        (None, _, _) => {
            return Err(Failure::because(Exit::Usage, "the period is needed")
                .with_next("give --month 2026-11, or --from and --to"));
        }
    };
    session.read(balances::statement(&arguments.account, &StatementQuery { from, to })).await
}

pub(crate) async fn forecast(
    session: &Session,
    arguments: ForecastArguments,
) -> Result<(), Failure> {
    session.read(balances::forecast(&arguments.account)).await
}

impl View for Balance {
    fn sheet(&self) -> Sheet {
        let tone = if self.spendable.micros() > 0 { Tone::Good } else { Tone::Bad };
        let sheet = Sheet::record([
            ("account", Cell::new(&self.account)),
            ("spendable", Cell::new(self.spendable).with_tone(tone)),
            ("available", Cell::new(self.available)),
            ("held", Cell::new(self.held)),
            ("purchase", Cell::new(self.by_kind.purchase)),
            ("grant", Cell::new(self.by_kind.grant)),
            ("promotion", Cell::new(self.by_kind.promotion)),
            ("compensation", Cell::new(self.by_kind.compensation)),
            ("uncollected", Cell::new(self.uncollected)),
            ("as_of", Cell::time(self.as_of)),
            ("position", Cell::new(self.position)),
        ]);
        sheet.with_section("expiring", Sheet::list(&self.expiring))
    }
}

impl Row for Expiring {
    const COLUMNS: &'static [Column] = &[words("expires_at"), numbers("amount"), words("kind")];

    fn cells(&self) -> Vec<Cell> {
        vec![Cell::time(self.expires_at), Cell::new(self.amount), Cell::word(&self.kind)]
    }
}

impl View for Statement {
    fn sheet(&self) -> Sheet {
        let end = |kind: &str, amount| StatementLine { kind: kind.into(), amount, count: 0 };
        let mut lines = vec![end("opening", self.opening)];
        lines.extend(self.movements.iter().cloned());
        lines.push(end("closing", self.closing));
        Sheet::list(&lines)
    }
}

impl Row for StatementLine {
    const COLUMNS: &'static [Column] = &[words("type"), numbers("amount"), numbers("count")];

    fn cells(&self) -> Vec<Cell> {
        let count = Some(self.count).filter(|count| *count > 0);
        vec![Cell::new(&self.kind), Cell::new(self.amount), Cell::maybe(count)]
    }
}

impl View for Forecast {
    fn sheet(&self) -> Sheet {
        let runway =
            self.runway_seconds.map_or("no spending in the last day".to_owned(), |seconds| {
                format!(
                    "{}d {:02}h {:02}m",
                    seconds / 86_400,
                    seconds / 3600 % 24,
                    seconds / 60 % 60
                )
            });
        Sheet::record([
            ("account", Cell::new(&self.account)),
            ("spendable", Cell::new(self.spendable)),
            ("burn_per_hour", Cell::new(self.burn_per_hour)),
            ("runway", Cell::new(runway)),
            ("at_risk", Cell::new(self.at_risk)),
            ("as_of", Cell::time(self.as_of)),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn a_balance_shows_what_expires_below_it() {
        let body = r#"{"account":"acme","available":"120.5","held":"28.8","by_kind":
            {"purchase":"100","grant":"0","promotion":"20.5","compensation":"0"},
            "spendable":"120.5","expiring":[{"expires_at":"2026-12-01T00:00:00.000Z",
            "amount":"20.5","kind":"promotion"}],"uncollected":"0",
            "as_of":"2026-11-15T06:30:00.000Z","position":42}"#;
        let balance: Balance = serde_json::from_str(body).expect("a balance");
        expect![[r#"
            account       acme
            spendable     120.5
            available     120.5
            held          28.8
            purchase      100
            grant         0
            promotion     20.5
            compensation  0
            uncollected   0
            as of         2026-11-15T06:30:00Z
            position      42

            expiring:
            EXPIRES AT            AMOUNT  KIND
            2026-12-01T00:00:00Z    20.5  promotion"#]]
        .assert_eq(&balance.sheet().text(false));
    }

    #[test]
    fn a_statement_adds_up_from_opening_to_closing() {
        let body = r#"{"account":"acme","from":"2026-11-01T00:00:00.000Z",
            "to":"2026-12-01T00:00:00.000Z","opening":"0","movements":[
            {"type":"granted","amount":"1000","count":2},
            {"type":"held","amount":"-28.8","count":1}],"closing":"971.2",
            "as_of":"2026-11-15T06:30:00.000Z","position":42}"#;
        let statement: Statement = serde_json::from_str(body).expect("a statement");
        expect![[r#"
            TYPE     AMOUNT  COUNT
            opening     0
            granted  1000        2
            held      -28.8      1
            closing   971.2"#]]
        .assert_eq(&statement.sheet().text(false));
    }
}
