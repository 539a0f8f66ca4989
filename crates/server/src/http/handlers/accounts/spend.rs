//! What an account can spend, what it spent, and its amounts over time.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use bursar_api::Time;
use bursar_api::accounts::effective::{Effective, EffectiveQuery, FreeCredits, PathBudget};
use bursar_api::accounts::spend::{
    AccountMetric, AccountSeries, AccountSeriesQuery, AmountPoint, Interval, Spend, SpendBy,
    SpendQuery, SpendSeries,
};
use bursar_api::amount::Sum;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::accounts::effective;
use bursar_core::time::{DAY_MS, Timestamp};
use bursar_history::query;

use super::balance::{context, expiring};
use super::history::known;
use super::visible;
use crate::app::App;
use crate::http::convert::instant;
use crate::http::extract::{Params, Path};
use crate::http::respond::{Answer, json};
use crate::operations::Operation;
use crate::render::{self, by_kind, time};
use crate::request::{Caller, Failure};

/// The default period.
const DEFAULT_PERIOD_MS: i64 = 30 * DAY_MS;
/// The most periods of a report.
const MAX_PERIODS: usize = 1000;
/// The most points of all series of a report together.
const MAX_POINTS: usize = 25_000;

/// What an account can spend now: its own credits and those above it, and the budgets that limit it.
#[utoipa::path(get, path = "/v1/accounts/{id}/effective", tag = "accounts",
    operation_id = "get_effective",
    params(("id" = String, Path, description = "The account's path"), EffectiveQuery),
    responses((status = 200, description = "What the account can spend", body = Effective)))]
pub(in crate::http) async fn effective(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Params(query): Params<EffectiveQuery>,
) -> Answer {
    let asked = context(&query.gpu_type, &query.region, &query.class)?;
    let path = visible(&caller, id)?;
    let wanted = path.clone();
    let now = app.clock.now();
    let read = move |ledger: &Ledger| {
        let number = ledger.find_account(&wanted)?;
        let found = ledger.effective(number, &asked, now);
        Some((number.0, shown(ledger, &wanted, found, now)))
    };
    let seen = app.read(read).await?;
    let (number, mut shown) = seen.value.ok_or_else(|| Failure::not_found("account", &path))?;
    caller.principal.require(Operation::GetEffective)?;
    let ask = app.history.ask(seen.position, move |history| history.spender_totals(number));
    let (totals, _) = ask.await?;
    shown.held_by_me = Sum::from_micros(totals.held);
    shown.spent_by_me = Sum::from_micros(totals.spent);
    shown.as_of = time(seen.at);
    shown.position = seen.position;
    Ok(json(StatusCode::OK, &shown))
}

fn shown(ledger: &Ledger, path: &str, found: effective::Effective, now: Timestamp) -> Effective {
    let credits = |credits: effective::FreeCredits| FreeCredits {
        account: ledger.account(credits.account).path.to_string(),
        available: Sum::from_micros(credits.available),
        by_kind: by_kind(credits.by_kind),
        expiring: expiring(credits.expiring),
    };
    let uncollected = ledger.account(found.own.account).uncollected();
    let budgets = found.budgets.into_iter().map(|on_path| {
        let budget = render::budget(ledger, on_path.account, &on_path.budget, now);
        PathBudget {
            account: budget.account,
            name: budget.name,
            unit: budget.unit,
            mode: budget.mode,
            limit: budget.limit,
            used: budget.used,
            remaining: budget.remaining,
            period_end: budget.period_end,
            binds: on_path.binds,
        }
    });
    Effective {
        account: path.to_owned(),
        spendable: Sum::from_micros(found.spendable),
        largest_hold: Sum::from_micros(found.largest_hold),
        own: credits(found.own),
        inherited: found.inherited.into_iter().map(credits).collect(),
        held_by_me: Sum::default(),
        spent_by_me: Sum::default(),
        uncollected: Sum::from_micros(uncollected),
        budgets: budgets.collect(),
        as_of: time(now),
        position: 0,
    }
}

/// The period between two optional instants: 30 days up to `end` if neither is given.
fn period(
    from: Option<Time>,
    to: Option<Time>,
    end: Timestamp,
) -> Result<(Timestamp, Timestamp), Failure> {
    let to = to.map_or(end, instant);
    let from = from.map_or(to.plus_millis(-DEFAULT_PERIOD_MS), instant);
    if to < from {
        return Err(Failure::invalid("to", "must not be earlier than from"));
    }
    Ok((from, to))
}

/// What an account and all below it spent, by period and group.
#[utoipa::path(get, path = "/v1/accounts/{id}/spend", tag = "accounts",
    operation_id = "get_spend",
    params(("id" = String, Path, description = "The account's path"), SpendQuery),
    responses((status = 200, description = "The spending", body = Spend)))]
pub(in crate::http) async fn spend(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Params(query): Params<SpendQuery>,
) -> Answer {
    let k = match query.k.unwrap_or(10) {
        k @ 1..=100 => k as usize,
        _ => return Err(Failure::invalid("k", "must be between 1 and 100")),
    };
    let (account, number, at, position) = known(&app, &caller, id, Operation::GetSpend).await?;
    // The end is exclusive, and the present counts.
    let (from, to) = query::whole_hours(period(query.from, query.to, at.plus_millis(1))?);
    let interval = query.interval.unwrap_or_default();
    let too_many = || {
        let reason = "at most 1000 periods, and 25000 points in all: ask for longer ones, a \
                      shorter time or a smaller k";
        Failure::invalid("interval", reason)
    };
    let starts = stored_interval(interval).starts((from, to), MAX_PERIODS).ok_or_else(too_many)?;
    if starts.len() * (k + 2) > MAX_POINTS {
        return Err(too_many());
    }
    let by = query.by.unwrap_or_default();
    let grouped = stored_group(by.clone());
    let ask = app.history.ask(position, move |history| {
        let report = history.spend(number, &grouped, (&starts, to), k)?;
        Ok((report, starts))
    });
    let ((report, starts), position) = ask.await?;
    let points = |line: &query::SpendLine| {
        let of = |(at, amount): (&Timestamp, &i128)| AmountPoint {
            at: time(*at),
            amount: Sum::from_micros(*amount),
        };
        starts.iter().zip(&line.amounts).map(of).collect::<Vec<_>>()
    };
    let series = report.lines.iter().map(|line| SpendSeries {
        key: line.key.clone(),
        total: Sum::from_micros(line.total),
        points: points(line),
    });
    let shown = Spend {
        account: account.to_string(),
        from: time(from),
        to: time(to),
        interval,
        by,
        series: series.collect(),
        other: Sum::from_micros(report.other.total),
        other_points: points(&report.other),
        total: Sum::from_micros(report.total.total),
        points: points(&report.total),
        as_of: time(at),
        position,
    };
    Ok(json(StatusCode::OK, &shown))
}

fn stored_interval(interval: Interval) -> query::Interval {
    match interval {
        Interval::Hour => query::Interval::Hour,
        Interval::Day => query::Interval::Day,
        Interval::Week => query::Interval::Week,
        Interval::Month => query::Interval::Month,
    }
}

pub(super) fn stored_group(by: SpendBy) -> query::SpendBy {
    match by {
        SpendBy::None => query::SpendBy::None,
        SpendBy::Account => query::SpendBy::Account,
        SpendBy::Subtree => query::SpendBy::Subtree,
        SpendBy::GpuType => query::SpendBy::GpuType,
        SpendBy::Class => query::SpendBy::Class,
        SpendBy::Region => query::SpendBy::Region,
        SpendBy::Job => query::SpendBy::Job,
        SpendBy::Label(name) => query::SpendBy::Label(name),
    }
}

/// An amount of an account's own credits at evenly spaced instants.
#[utoipa::path(get, path = "/v1/accounts/{id}/series", tag = "accounts",
    operation_id = "get_account_series",
    params(("id" = String, Path, description = "The account's path"), AccountSeriesQuery),
    responses((status = 200, description = "The points", body = AccountSeries)))]
pub(in crate::http) async fn series(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Params(query): Params<AccountSeriesQuery>,
) -> Answer {
    let count = match query.points.unwrap_or(200) {
        count @ 2..=500 => count,
        _ => return Err(Failure::invalid("points", "must be between 2 and 500")),
    };
    let operation = Operation::GetAccountSeries;
    let (account, number, at, position) = known(&app, &caller, id, operation).await?;
    // Nothing is known of the future.
    let to = query.to.filter(|to| instant(*to) < at);
    let (from, to) = period(query.from, to, at)?;
    let instants = spaced((from, to), count);
    let metric = match query.metric {
        AccountMetric::Available => query::Metric::Available,
        AccountMetric::Held => query::Metric::Held,
        AccountMetric::Spent => query::Metric::Spent,
        AccountMetric::Expired => query::Metric::Expired,
    };
    let ask = app
        .history
        .ask(position, move |history| Ok((history.series(number, metric, &instants)?, instants)));
    let ((amounts, instants), position) = ask.await?;
    let points = instants.into_iter().zip(amounts);
    let points =
        points.map(|(at, amount)| AmountPoint { at: time(at), amount: Sum::from_micros(amount) });
    let shown = AccountSeries {
        account: account.to_string(),
        metric: query.metric,
        points: points.collect(),
        as_of: time(at),
        position,
    };
    Ok(json(StatusCode::OK, &shown))
}

/// Evenly spaced instants, the first and the last included. Fewer if they are equal.
fn spaced((from, to): (Timestamp, Timestamp), count: u32) -> Vec<Timestamp> {
    let length = i128::from(to.millis_since(from));
    let last = i128::from(count.saturating_sub(1).max(1));
    let at = |step: u32| {
        let part = length * i128::from(step) / last;
        from.plus_millis(i64::try_from(part).unwrap_or(i64::MAX))
    };
    let mut instants: Vec<Timestamp> = (0..count).map(at).collect();
    instants.dedup();
    instants
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_evenly_spaced_and_distinct() {
        let at = Timestamp::from_millis;
        assert_eq!(spaced((at(0), at(100)), 5), [0, 25, 50, 75, 100].map(at));
        assert_eq!(spaced((at(7), at(7)), 200), [at(7)]);
        assert_eq!(spaced((at(0), at(2)), 200), [0, 1, 2].map(at));
        let long = spaced((Timestamp::MIN, Timestamp::MAX), 2);
        assert_eq!(long, [Timestamp::MIN, Timestamp::MAX]);
    }
}
