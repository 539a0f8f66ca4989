//! How long credits last, what a month will cost, and what will expire unspent.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use bursar_api::Time;
use bursar_api::accounts::forecast::{ExpiringUnspent, Forecast, ForecastQuery};
use bursar_api::amount::Sum;
use bursar_core::cell::Cell;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::command::{BudgetPeriod, Context};
use bursar_core::name::AccountPath;
use bursar_core::time::{DAY_MS, Timestamp};
use bursar_history::BurnRate;
use bursar_history::query::SpendBy;

use super::history::{known, window};
use crate::app::App;
use crate::http::extract::{Params, Path};
use crate::http::respond::{Answer, json};
use crate::operations::Operation;
use crate::render::{grant_kind, time};
use crate::request::{Caller, Failure};

const HOUR_MS: i64 = 3_600_000;
/// The longest window.
const MAX_WINDOW_MS: i64 = 366 * DAY_MS;

/// How long the credits last at the rate of a window up to now, and what will expire unspent.
#[utoipa::path(get, path = "/v1/accounts/{id}/forecast", tag = "accounts",
    operation_id = "get_forecast",
    params(("id" = String, Path, description = "The account's path"), ForecastQuery),
    responses((status = 200, description = "The forecast", body = Forecast)))]
pub(in crate::http) async fn forecast(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Params(query): Params<ForecastQuery>,
) -> Answer {
    let text = query.window.unwrap_or_else(|| "24h".to_owned());
    let length = window(&text).filter(|length| *length <= MAX_WINDOW_MS).ok_or_else(|| {
        let reason = "write a number and one of s, m, h, d, such as 24h; at most 366d";
        Failure::invalid("window", reason)
    })?;
    let (account, number, at, position) = known(&app, &caller, id, Operation::GetForecast).await?;
    // The end is exclusive, and the present counts.
    let end = at.plus_millis(1);
    let from = whole_hour(at.plus_millis(-length));
    let (month, month_end) = month_of(at);
    let ask = app.history.ask(position, move |history| {
        let spent = |from| {
            let spent = history.spending(number, &SpendBy::None, (&[from], end), 1);
            spent.map(|report| report.total.total)
        };
        Ok((spent(from)?, spent(month)?))
    });
    let ((spent, month_spent), _) = ask.await?;
    let wanted = account.clone();
    let seen = app.read(move |ledger: &Ledger| {
        let number = ledger.find_account(&wanted)?;
        Some(ledger.balance(number, &Context::default()))
    });
    let seen = seen.await?;
    let balance = seen.value.ok_or_else(|| Failure::not_found("account", &account))?;
    let running = running_per_hour(&app, &account).await?;
    let running_runway = BurnRate::new(running, HOUR_MS).time_for(balance.spendable);
    let rate = BurnRate::new(spent, at.millis_since(from));
    let runway = rate.time_for(balance.spendable);
    let (unspent, at_risk) = rate.unspent(&balance.expiring, seen.at);
    let expiring =
        balance.expiring.iter().zip(&unspent).map(|(expiring, at_risk)| ExpiringUnspent {
            expires_at: time(expiring.expires_at),
            amount: Sum::from_micros(expiring.amount),
            kind: grant_kind(expiring.kind),
            at_risk: Sum::from_micros(*at_risk),
        });
    let month_projected = rate.projected(month_spent, month_end.millis_since(at));
    let shown = Forecast {
        account: account.to_string(),
        window: text,
        measured_from: time(from),
        burn_per_hour: Sum::from_micros(rate.over(HOUR_MS)),
        runway_seconds: runway.and_then(|millis| u64::try_from(millis / 1000).ok()),
        runs_out_at: runway.and_then(|millis| later(seen.at, millis)),
        running_per_hour: Sum::from_micros(running),
        running_runway_seconds: running_runway.and_then(|ms| u64::try_from(ms / 1000).ok()),
        month_spent: Sum::from_micros(month_spent),
        month_projected: Sum::from_micros(month_projected),
        month_end: time(month_end),
        at_risk: Sum::from_micros(at_risk),
        expiring: expiring.collect(),
        spendable: Sum::from_micros(balance.spendable),
        as_of: time(seen.at),
        position: seen.position,
    };
    Ok(json(StatusCode::OK, &shown))
}

/// What the attempts of an account and all below it cost per hour now, in micro-credits.
async fn running_per_hour(app: &App, account: &AccountPath) -> Result<i128, Failure> {
    let mut sum = 0;
    for service in app.cells.iter() {
        let account = account.clone();
        let look = move |cell: &Cell| cell.spending_per_hour(&account);
        sum += i128::from(service.gateway.read(look).await?.value);
    }
    Ok(sum)
}

/// The start of the hour of an instant. Sums of whole hours are cheap on a busy server.
fn whole_hour(at: Timestamp) -> Timestamp {
    Timestamp::from_millis(at.millis().div_euclid(HOUR_MS).saturating_mul(HOUR_MS))
}

/// The start of the calendar month of an instant and of the next one, in UTC.
fn month_of(at: Timestamp) -> (Timestamp, Timestamp) {
    let (start, end) = BudgetPeriod::Month.days_of(at).unwrap_or((i64::MIN, i64::MAX));
    let midnight = |day: i64| Timestamp::from_millis(day.saturating_mul(DAY_MS));
    (midnight(start), midnight(end))
}

/// An instant that lies so many milliseconds later, if it can be written.
fn later(at: Timestamp, millis: i128) -> Option<Time> {
    let millis = i128::from(at.millis()).checked_add(millis)?;
    let at = Timestamp::from_millis(i64::try_from(millis).ok()?);
    (at <= Timestamp::MAX).then(|| time(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_too_late_to_be_written_is_left_out() {
        assert_eq!(later(Timestamp::from_millis(0), i128::MAX), None);
        assert_eq!(later(Timestamp::from_millis(5), 5), Some(time(Timestamp::from_millis(10))));
    }

    #[test]
    fn a_month_contains_its_first_and_last_instant() {
        let (start, end) = month_of(Timestamp::from_millis(31 * DAY_MS));
        assert_eq!((start.millis(), end.millis()), (31 * DAY_MS, 59 * DAY_MS));
        assert_eq!(month_of(end.plus_millis(-1)), (start, end));
    }
}
