//! What queries about the past share, and rankings.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use bursar_api::accounts::top::{Top, TopBy, TopEntry, TopKind, TopQuery};
use bursar_api::amount::Sum;
use bursar_core::ledger::command::AccountKind;
use bursar_core::name::AccountPath;
use bursar_core::time::Timestamp;

use super::visible;
use crate::app::App;
use crate::http::extract::Params;
use crate::http::handlers::jobs::top::top_jobs;
use crate::http::list::whole_list;
use crate::http::respond::{Answer, json};
use crate::operations::Operation;
use crate::render::time;
use crate::request::{Caller, Failure};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// An account that the caller may read, its number, and the position of the ledger.
pub(super) async fn known(
    app: &App,
    caller: &Caller,
    id: String,
    operation: Operation,
) -> Result<(AccountPath, u32, Timestamp, u64), Failure> {
    let path = visible(caller, id)?;
    let wanted = path.clone();
    let seen = app.read(move |ledger| ledger.find_account(&wanted)).await?;
    let number = seen.value.ok_or_else(|| Failure::not_found("account", &path))?;
    caller.principal.require(operation)?;
    Ok((path, number.0, seen.at, seen.position))
}

/// The longest window.
const MAX_WINDOW_MS: i64 = 99_999 * DAY_MS;

/// Parses a window such as `24h` into milliseconds.
pub(super) fn window(text: &str) -> Option<i64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: i64 = number.parse().ok().filter(|n| (1..=999_999_999).contains(n))?;
    let unit = match unit {
        "s" => 1000,
        "m" => 60_000,
        "h" => HOUR_MS,
        "d" => DAY_MS,
        _ => return None,
    };
    number.checked_mul(unit).filter(|length| *length <= MAX_WINDOW_MS)
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
    let reason = "write a number and one of s, m, h, d, such as 24h; at most 99999d";
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
    let scope = caller.principal.scope.clone();
    let ask = app.history.ask(seen.position, move |history| match (kind, scope) {
        (Some(kind), Some(scope)) => history.top_below(&scope, kind, counted, period, k),
        (Some(kind), None) => history.top(kind, counted, period, k),
        (None, _) => Ok(Vec::new()),
    });
    let (ranked, position) = ask.await?;
    let data = ranked.into_iter().map(|ranked| TopEntry {
        id: ranked.account,
        value: match by {
            TopBy::GpuSeconds => Sum::from_thousandths(ranked.value),
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
        // 1d3h46m41s has no larger unit.
        assert_eq!(window("100001s"), Some(100_001_000));
        assert_eq!(window("99999d"), Some(99_999 * DAY_MS));
        for wrong in ["100000d", "9999999999s", "", "h", "0h", "24", "24w", "-1h", "1.5h", "é"] {
            assert_eq!(window(wrong), None, "{wrong}");
        }
    }
}
