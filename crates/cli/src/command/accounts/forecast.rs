//! `bursar forecast`.

use std::time::Duration;

use bursar_client::accounts::balances;
use bursar_client::api::accounts::forecast::{ExpiringUnspent, Forecast, ForecastQuery};
use clap::Args;

use crate::arguments::{duration, in_one_unit};
use crate::exit::Failure;
use crate::render::sheet::{Cell, Column, Row, Sheet, Tone, View, numbers, words};
use crate::session::Session;

#[derive(Args)]
#[command(after_help = "Examples:\n  bursar forecast acme:nlp\n  \
    bursar forecast acme:nlp --window 1h\n  bursar forecast acme --window 30d -o json")]
pub(crate) struct ForecastArguments {
    /// The account; else BURSAR_ACCOUNT, else the one that the key is for.
    #[arg(env = "BURSAR_ACCOUNT")]
    account: Option<String>,
    /// The time over which spending is measured, such as 1h or 7d; one day if not given. It begins
    /// with a whole hour.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    window: Option<Duration>,
}

pub(crate) async fn run(session: &Session, arguments: ForecastArguments) -> Result<(), Failure> {
    let account = session.account_or_own(arguments.account).await?;
    let query = ForecastQuery { window: arguments.window.map(in_one_unit) };
    session.read(balances::forecast(&account, &query)).await
}

/// Seconds as days, hours and minutes.
fn span(seconds: u64) -> String {
    format!("{}d {:02}h {:02}m", seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60)
}

impl View for Forecast {
    fn sheet(&self) -> Sheet {
        let runway = self.runway_seconds.map(span);
        let runway = runway.unwrap_or_else(|| "no spending in this window".to_owned());
        let tone = if self.at_risk.micros() > 0 { Tone::Bad } else { Tone::Plain };
        let sheet = Sheet::record([
            ("account", Cell::new(&self.account)),
            ("spendable", Cell::new(self.spendable)),
            ("measured_from", Cell::time(self.measured_from)),
            ("burn_per_hour", Cell::new(self.burn_per_hour)),
            ("runway", Cell::new(runway)),
            ("runs_out_at", Cell::maybe_time(self.runs_out_at)),
            ("running_per_hour", Cell::new(self.running_per_hour)),
            ("running_runway", Cell::maybe(self.running_runway_seconds.map(span))),
            ("month_spent", Cell::new(self.month_spent)),
            ("month_projected", Cell::new(self.month_projected)),
            ("month_end", Cell::time(self.month_end)),
            ("at_risk", Cell::new(self.at_risk).with_tone(tone)),
            ("as_of", Cell::time(self.as_of)),
        ]);
        if self.expiring.is_empty() {
            return sheet;
        }
        sheet.with_section("expiring", Sheet::list(&self.expiring))
    }
}

impl Row for ExpiringUnspent {
    const COLUMNS: &'static [Column] =
        &[words("expires_at"), numbers("amount"), numbers("at_risk"), words("kind")];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::time(self.expires_at),
            Cell::new(self.amount),
            Cell::new(self.at_risk),
            Cell::word(&self.kind),
        ]
    }
}
