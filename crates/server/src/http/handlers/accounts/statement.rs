//! Entries and statements.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use bursar_api::accounts::entry::{EntriesQuery, EntriesView, Entry};
use bursar_api::accounts::spend::SpendBy;
use bursar_api::accounts::statement::{
    Spending, SpendingLine, Statement, StatementBy, StatementLine, StatementQuery,
};
use bursar_api::amount::Sum;
use bursar_api::list::List;
use bursar_core::ledger::refusal::Resource;
use bursar_core::name::AccountPath;
use bursar_core::time::Timestamp;
use bursar_history::query::{EntriesOf, EntryFilter, Interval, MAX_SUBTREE, SpendReport};
use bursar_history::{EntryType, HistoryError, Page};

use super::history::known;
use super::spend::stored_group;
use crate::app::App;
use crate::auth::tenant_of;
use crate::http::convert::instant;
use crate::http::extract::{Params, Path};
use crate::http::handlers::credits::movements::period;
use crate::http::list::{page_size, past_cursor};
use crate::http::respond::{Answer, json};
use crate::operations::Operation;
use crate::render::time;
use crate::request::{Caller, Failure};

/// The most days of a statement by day.
const MAX_DAYS: usize = 1000;

/// Movements of an account's credits, or of credits that it spent, newest first.
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
    let limit = u32::try_from(page_size(query.limit)?).unwrap_or(100);
    let cursor = past_cursor(query.cursor.as_deref())?;
    let between = period(query.from, query.to)?;
    let kinds = kinds(query.kind.as_deref())?;
    if query.spender.as_deref().is_some_and(|spender| !AccountPath::is_valid(spender)) {
        return Err(Failure::invalid(
            "spender",
            "must be the path of an account, such as acme:nlp",
        ));
    }
    let (account, number, at, position) = known(&app, &caller, id, Operation::ListEntries).await?;
    let of = match query.view.unwrap_or_default() {
        EntriesView::Own => EntriesOf::Account(number),
        EntriesView::Spent => EntriesOf::Spender(number),
        EntriesView::All => EntriesOf::Either(number),
        EntriesView::Subtree => EntriesOf::Subtree(number),
    };
    let (job, tenant) = (query.job, tenant_of(&account).to_owned());
    let (spender, grant) = (query.spender, query.grant);
    let ask = app.history.ask(position, move |history| {
        if matches!(of, EntriesOf::Subtree(_)) && history.subtree(number)?.len() > MAX_SUBTREE {
            return Ok(None);
        }
        let mut filter = EntryFilter { kinds, spender, job: None, grant };
        if let Some(job) = job {
            let tenant = history.account_number(&tenant)?;
            let number = tenant.map(|tenant| history.job_number(tenant, &job)).transpose()?;
            let Some(number) = number.flatten() else {
                return Ok(Some(Page { data: Vec::new(), next: None }));
            };
            filter.job = Some(number);
        }
        history.filtered_entries(of, &filter, between, cursor, limit).map(Some)
    });
    let (page, position) = ask.await?;
    let page = page.ok_or_else(|| {
        let reason = format!(
            "there are more than {MAX_SUBTREE} accounts below {account}; name one further down, or use \
             another view with `spender`"
        );
        Failure::invalid("view", reason)
    })?;
    let next_cursor = page.next.map(|cursor| cursor.to_string());
    let data = page.data.into_iter().map(entry).collect();
    let has_more = next_cursor.is_some();
    let (as_of, position) = (Some(time(at)), Some(position));
    Ok(json(StatusCode::OK, &List { data, has_more, next_cursor, as_of, position }))
}

/// The types that a list separated by commas names.
fn kinds(list: Option<&str>) -> Result<Vec<EntryType>, Failure> {
    let unknown = |name: &str| {
        let known: Vec<&str> = EntryType::ALL.iter().map(|kind| kind.name()).collect();
        let reason = format!("there is no type `{name}`; the types are {}", known.join(", "));
        Failure::invalid("type", reason)
    };
    let names = list.into_iter().flat_map(|list| list.split(','));
    names.map(|name| EntryType::named(name).ok_or_else(|| unknown(name))).collect()
}

fn entry(entry: bursar_history::Entry) -> Entry {
    let kind = entry.kind;
    let changes = kind.changes(entry.amount);
    // The parts of a refund have the name of the whole and a number.
    let movement = entry.movement.as_deref();
    let movement = movement.map(|name| name.split('/').next().unwrap_or(name).to_owned());
    let made_as = |resource| movement.clone().filter(|_| kind.made_by() == Some(resource));
    Entry {
        id: format!("entry_{:012}", entry.entry),
        at: time(entry.at),
        kind: kind.name().to_owned(),
        amount: Sum::from_micros(entry.amount),
        available_change: Sum::from_micros(changes.available),
        held_change: Sum::from_micros(changes.held),
        spent_change: Sum::from_micros(changes.spent),
        account: entry.account,
        spender: entry.spender,
        grant: entry.grant,
        hold: entry.hold,
        job: entry.job,
        refund: made_as(Resource::Refund),
        transfer: made_as(Resource::Transfer),
        collection: made_as(Resource::Collection),
        reason: entry.reason,
        reference: entry.reference,
        balance_after: Sum::from_micros(entry.available_after),
    }
}

/// Opening balance, movements by type, closing balance and spending. They always add up.
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
    let k = match query.k.unwrap_or(100) {
        k @ 1..=100 => k as usize,
        _ => return Err(Failure::invalid("k", "must be between 1 and 100")),
    };
    let (from, to) = (instant(query.from), instant(query.to));
    let by = query.by.unwrap_or_default();
    let (group, starts) = match &by {
        StatementBy::Group(by) => (stored_group(by.clone()), vec![from]),
        StatementBy::Day => {
            let too_many = || Failure::invalid("by", "at most 1000 days: choose a shorter period");
            let days = Interval::Day.starts((from, to), MAX_DAYS).ok_or_else(too_many)?;
            (stored_group(SpendBy::None), days)
        }
    };
    let (account, number, at, position) = known(&app, &caller, id, Operation::GetStatement).await?;
    let ask = app.history.ask(position, move |history| {
        // `to` is exclusive; history's statements include their last instant.
        let statement = history.statement(number, from, to.plus_millis(-1))?;
        let starts = if from < to { starts } else { Vec::new() };
        let report = history.spending(number, &group, (&starts, to), k)?;
        Ok::<_, HistoryError>((statement, report, starts))
    });
    let ((statement, report, starts), position) = ask.await?;
    let movements = statement.movements.iter().map(|(kind, count, sum)| {
        let changes = kind.changes(*sum);
        StatementLine {
            kind: kind.name().to_owned(),
            amount: Sum::from_micros(changes.available),
            held_change: Sum::from_micros(changes.held),
            spent_change: Sum::from_micros(changes.spent),
            count: *count,
        }
    });
    let shown = Statement {
        account: account.to_string(),
        from: query.from,
        to: query.to,
        opening: Sum::from_micros(statement.opening.available),
        held_opening: Sum::from_micros(statement.opening.held),
        movements: movements.collect(),
        closing: Sum::from_micros(statement.closing.available),
        held_closing: Sum::from_micros(statement.closing.held),
        spent: Sum::from_micros(statement.spent()),
        spending: spending(by, &report, &starts),
        as_of: time(at),
        position,
    };
    Ok(json(StatusCode::OK, &shown))
}

fn spending(by: StatementBy, report: &SpendReport, starts: &[Timestamp]) -> Spending {
    let line =
        |key: Option<String>, amount: i128| SpendingLine { key, amount: Sum::from_micros(amount) };
    let (lines, other) = match by {
        StatementBy::Day => {
            let days = starts.iter().zip(&report.total.amounts).filter(|(_, amount)| **amount != 0);
            let day = |at: &Timestamp| at.to_string().get(..10).map(str::to_owned);
            (days.map(|(at, amount)| line(day(at), *amount)).collect(), 0)
        }
        StatementBy::Group(SpendBy::None) => (Vec::new(), report.total.total),
        StatementBy::Group(_) => {
            let lines = report.lines.iter().map(|found| line(found.key.clone(), found.total));
            (lines.collect(), report.other.total)
        }
    };
    let total = Sum::from_micros(report.total.total);
    Spending { by, lines, other: Sum::from_micros(other), total }
}
