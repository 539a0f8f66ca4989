//! Queries about the past: entries, statements, forecasts, rankings.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use bursar_api::accounts::balance::{
    EntriesQuery, Entry, Forecast, Statement, StatementLine, StatementQuery,
};
use bursar_api::accounts::top::{Top, TopBy, TopEntry, TopKind, TopQuery};
use bursar_api::amount::Sum;
use bursar_api::list::List;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::command::{AccountKind, Context};
use bursar_core::ledger::id::Name;
use bursar_core::time::Timestamp;
use bursar_history::query::EntriesOf;

use super::visible;
use crate::app::App;
use crate::http::convert::instant;
use crate::http::extract::{Params, Path};
use crate::http::handlers::jobs::top::top_jobs;
use crate::http::list::{page_size, whole_list};
use crate::http::respond::{Answer, json};
use crate::operations::Operation;
use crate::render::time;
use crate::request::{Caller, Failure};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// The most accounts that a ranking for a key with a scope visits.
const MAX_RANKED: u32 = 100_000;

/// An account that the caller may read, its number, and the position of the ledger.
pub(super) async fn known(
    app: &App,
    caller: &Caller,
    id: String,
    operation: Operation,
) -> Result<(Name, u32, Timestamp, u64), Failure> {
    let path = visible(caller, id)?;
    let wanted = path.clone();
    let seen = app.read(move |ledger| ledger.find_account(&wanted)).await?;
    let number = seen.value.ok_or_else(|| Failure::not_found("account", &path))?;
    caller.principal.require(operation)?;
    Ok((path, number.0, seen.at, seen.position))
}

/// Movements of an account's own credits, newest first.
#[utoipa::path(get, path = "/v1/accounts/{id}/entries", tag = "accounts",
    operation_id = "list_entries",
    params(("id" = String, Path, description = "The account's path"), EntriesQuery),
    responses((status = 200, description = "A page of movements", body = List<Entry>)))]
pub(in crate::http) async fn entries(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Params(query): Params<EntriesQuery>,
) -> Answer {
    let size = page_size(query.limit)?;
    let cursor = match query.cursor.as_deref().map(str::parse) {
        Some(Ok(cursor)) => Some(cursor),
        Some(Err(_)) => {
            return Err(Failure::invalid("cursor", "pass the next_cursor of the page before"));
        }
        None => None,
    };
    let (_, number, at, position) = known(&app, &caller, id, Operation::ListEntries).await?;
    let limit = u32::try_from(size).unwrap_or(100);
    let ask = app.history.ask(position, move |history| {
        let always = (Timestamp::MIN, Timestamp::MAX);
        history.entries(EntriesOf::Account(number), always, cursor, limit)
    });
    let (page, position) = ask.await?;
    let next_cursor = page.next.map(|cursor| cursor.to_string());
    let data = page.data.into_iter().map(entry).collect();
    let has_more = next_cursor.is_some();
    let (as_of, position) = (Some(time(at)), Some(position));
    Ok(json(StatusCode::OK, &List { data, has_more, next_cursor, as_of, position }))
}

fn entry(entry: bursar_history::Entry) -> Entry {
    Entry {
        id: format!("entry_{:012}", entry.entry),
        at: time(entry.at),
        kind: entry.kind.name().to_owned(),
        amount: Sum::from_micros(entry.amount),
        grant: entry.grant,
        hold: entry.hold,
        job: entry.job,
        balance_after: Sum::from_micros(entry.available_after),
    }
}

/// Opening balance, movements by type and closing balance. They always add up.
#[utoipa::path(get, path = "/v1/accounts/{id}/statement", tag = "accounts",
    operation_id = "get_statement",
    params(("id" = String, Path, description = "The account's path"), StatementQuery),
    responses((status = 200, description = "The statement", body = Statement)))]
pub(in crate::http) async fn statement(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Params(query): Params<StatementQuery>,
) -> Answer {
    if query.to < query.from {
        return Err(Failure::invalid("to", "must not be earlier than from"));
    }
    let (from, to) = (instant(query.from), instant(query.to));
    let (account, number, at, position) = known(&app, &caller, id, Operation::GetStatement).await?;
    // `to` is exclusive; history's statements include their last instant.
    let ask = app
        .history
        .ask(position, move |history| history.statement(number, from, to.plus_millis(-1)));
    let (statement, position) = ask.await?;
    let movements = statement.movements.iter().map(|(kind, count, sum)| StatementLine {
        kind: kind.name().to_owned(),
        amount: Sum::from_micros(kind.effect().0 * sum),
        count: *count,
    });
    let shown = Statement {
        account: account.to_string(),
        from: query.from,
        to: query.to,
        opening: Sum::from_micros(statement.opening.available),
        movements: movements.collect(),
        closing: Sum::from_micros(statement.closing.available),
        as_of: time(at),
        position,
    };
    Ok(json(StatusCode::OK, &shown))
}

/// How long the credits last at the rate of the last day, and what will expire unspent.
#[utoipa::path(get, path = "/v1/accounts/{id}/forecast", tag = "accounts",
    operation_id = "get_forecast",
    params(("id" = String, Path, description = "The account's path")),
    responses((status = 200, description = "The forecast", body = Forecast)))]
pub(in crate::http) async fn forecast(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer {
    let (account, number, at, position) = known(&app, &caller, id, Operation::GetForecast).await?;
    let window = (at.plus_millis(-DAY_MS), at);
    let ask = app.history.ask(position, move |history| history.usage(number, window));
    let (usage, _) = ask.await?;
    let wanted = account.clone();
    let seen = app.read(move |ledger: &Ledger| {
        let number = ledger.find_account(&wanted)?;
        Some(ledger.balance(number, &Context::default()))
    });
    let seen = seen.await?;
    let balance = seen.value.ok_or_else(|| Failure::not_found("account", &account))?;
    let burned = usage.spent.max(0);
    let runway =
        (burned > 0).then(|| balance.spendable.max(0) * i128::from(DAY_MS / 1000) / burned);
    let expiring = balance.expiring.iter().map(|e| (e.expires_at, e.amount));
    let shown = Forecast {
        account: account.to_string(),
        burn_per_hour: Sum::from_micros(burned / 24),
        runway_seconds: runway.and_then(|runway| u64::try_from(runway).ok()),
        at_risk: Sum::from_micros(at_risk(expiring, seen.at, burned)),
        spendable: Sum::from_micros(balance.spendable),
        as_of: time(seen.at),
        position: seen.position,
    };
    Ok(json(StatusCode::OK, &shown))
}

/// The credits that will expire unspent if `burned` is spent per day, soonest first.
fn at_risk(
    expiring: impl Iterator<Item = (Timestamp, i128)>,
    now: Timestamp,
    burned: i128,
) -> i128 {
    let mut spent: i128 = 0;
    let mut lost = 0;
    for (expires_at, amount) in expiring {
        let until = i128::from(expires_at.millis_since(now));
        let affordable = (burned * until / i128::from(DAY_MS) - spent).max(0);
        let used = amount.min(affordable);
        spent += used;
        lost += amount - used;
    }
    lost
}

/// Parses a window such as `24h` into milliseconds.
fn window(text: &str) -> Option<i64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: i64 = number.parse().ok().filter(|n| (1..=99_999).contains(n))?;
    let unit = match unit {
        "s" => 1000,
        "m" => 60_000,
        "h" => HOUR_MS,
        "d" => DAY_MS,
        _ => return None,
    };
    number.checked_mul(unit)
}

/// Ranks accounts or jobs in the key's scope. Windows consist of whole hours.
#[utoipa::path(get, path = "/v1/top", tag = "accounts", operation_id = "get_top", params(TopQuery),
    responses((status = 200, description = "The ranking, largest first", body = Top)))]
pub(in crate::http) async fn top(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(query): Params<TopQuery>,
) -> Answer {
    use bursar_history::query;
    caller.principal.require(Operation::GetTop)?;
    whole_list(query.limit, query.cursor.as_deref())?;
    let text = query.window.as_deref().unwrap_or("24h");
    let reason = "write a number and one of s, m, h, d, such as 24h";
    let length = window(text).ok_or_else(|| Failure::invalid("window", reason))?;
    let k = match query.k.unwrap_or(10) {
        k @ 1..=100 => k,
        _ => return Err(Failure::invalid("k", "must be between 1 and 100")),
    };
    let kind = match query.kind.unwrap_or(TopKind::User) {
        TopKind::User => Some(AccountKind::User),
        TopKind::Project => Some(AccountKind::Project),
        TopKind::Team => Some(AccountKind::Team),
        TopKind::Org => Some(AccountKind::Org),
        TopKind::Job => None,
    };
    let by = query.by.unwrap_or(TopBy::Spent);
    let counted = match by {
        TopBy::Spent => query::TopBy::Spent,
        TopBy::Available => query::TopBy::Available,
        TopBy::Held => query::TopBy::Held,
        TopBy::GpuSeconds => query::TopBy::GpuMs,
    };
    let seen = app.read(|_| ()).await?;
    let period = (seen.at.plus_millis(-length), seen.at);
    if kind.is_none() {
        let (as_of, position) = (time(seen.at), seen.position);
        let data = top_jobs(&app, &caller.principal, by, period.0, k as usize).await?;
        return Ok(json(
            StatusCode::OK,
            &Top { data, has_more: false, next_cursor: None, as_of, position },
        ));
    }
    // A key with a scope ranks only visible accounts: all are fetched and the others left out.
    let most = if caller.principal.scope.is_some() { MAX_RANKED } else { k };
    let ask = app.history.ask(seen.position, move |history| match kind {
        Some(kind) => history.top(kind, counted, period, most),
        None => Ok(Vec::new()),
    });
    let (ranked, position) = ask.await?;
    let own = ranked.into_iter().filter(|ranked| caller.principal.sees(&ranked.account));
    let data = own.take(k as usize).map(|ranked| TopEntry {
        id: ranked.account,
        value: match by {
            TopBy::GpuSeconds => Sum::from_micros(ranked.value * 1000),
            TopBy::Spent | TopBy::Available | TopBy::Held => Sum::from_micros(ranked.value),
        },
    });
    let (data, as_of) = (data.collect(), time(seen.at));
    Ok(json(StatusCode::OK, &Top { data, has_more: false, next_cursor: None, as_of, position }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_a_number_and_a_unit() {
        assert_eq!(window("24h"), Some(DAY_MS));
        assert_eq!(window("90s"), Some(90_000));
        for wrong in ["", "h", "0h", "24", "24w", "-1h", "1.5h", "é"] {
            assert_eq!(window(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn credits_spent_before_they_expire_are_not_at_risk() {
        let now = Timestamp::from_millis(0);
        let day = |days: i64, amount: i128| (Timestamp::from_millis(days * DAY_MS), amount);
        let risk = |burned| at_risk([day(1, 10), day(2, 30)].into_iter(), now, burned);
        assert_eq!(risk(0), 40);
        assert_eq!(risk(10), 20);
        assert_eq!(risk(15), 10, "ten of the first and twenty of the second are spent in time");
        assert_eq!(risk(100), 0);
    }
}
