//! Lists of charges, refunds and transfers, from history.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use bursar_api::Time;
use bursar_api::amount::Sum;
use bursar_api::credits::charge::{Charge, ChargeFilter};
use bursar_api::credits::refund::{Refund, RefundFilter};
use bursar_api::credits::transfer::{Transfer, TransferFilter};
use bursar_api::list::List;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::holds::hold::Hold;
use bursar_core::ledger::id::{AccountNo, Name};
use bursar_core::ledger::refusal::Resource;
use bursar_core::name::AccountPath;
use bursar_core::time::Timestamp;
use bursar_engine::Seen;
use bursar_history::query::{ListPart, PastMovement, RefundsOf};
use bursar_history::{History, HistoryError, Page, Sqlite};
use serde::Serialize;

use crate::app::App;
use crate::auth::Principal;
use crate::change::ambiguous;
use crate::http::convert::instant;
use crate::http::extract::{Params, Path};
use crate::http::list::{page_size, past_cursor};
use crate::http::respond::{Answer, json, named};
use crate::operations::Operation;
use crate::render::{self, time};
use crate::request::{Caller, Failure};

/// Stands for an account outside the scope of the key.
const OTHER: &str = "other";

/// The part of a list that a request asks for.
fn part(
    (from, to): (Option<Time>, Option<Time>),
    limit: Option<u32>,
    cursor: Option<&str>,
) -> Result<ListPart, Failure> {
    let after = past_cursor(cursor)?;
    let limit = u32::try_from(page_size(limit)?).unwrap_or(100);
    Ok(ListPart { period: period(from, to)?, after, limit })
}

/// The period between two optional instants, the second excluded, as history has it: both included.
pub(in crate::http) fn period(
    from: Option<Time>,
    to: Option<Time>,
) -> Result<(Timestamp, Timestamp), Failure> {
    if from.zip(to).is_some_and(|(from, to)| to < from) {
        return Err(Failure::invalid("to", "must not be earlier than from"));
    }
    let last = to.map_or(Timestamp::MAX, |to| instant(to).plus_millis(-1));
    Ok((from.map_or(Timestamp::MIN, instant), last))
}

/// Asks history for a page of a list of one account and all below it, or of the key's scope, and
/// shows it.
pub(super) async fn list<T: Send + 'static, S: Serialize + Send + 'static>(
    app: &App,
    caller: &Caller,
    (account, operation): (Option<String>, Operation),
    ask: impl FnOnce(&History<Sqlite>, Option<u32>) -> Result<Page<T>, HistoryError> + Send + 'static,
    show: impl Fn(&Ledger, &T) -> S + Send + 'static,
) -> Answer {
    let scope = caller.principal.scope.as_ref().map(ToString::to_string);
    let account = app.listed_account(caller, account.or(scope)).await?;
    caller.principal.require(operation)?;
    let wanted = account.clone();
    let look = move |ledger: &Ledger| wanted.and_then(|path| ledger.find_account(&path));
    let seen = app.read(look).await?;
    let (number, at) = (seen.value, seen.at);
    // No number means all accounts, so an account without one must not come this far.
    if let (Some(path), None) = (&account, number) {
        return Err(Failure::not_found("account", path));
    }
    let ask = app
        .history
        .ask(seen.position, move |history| ask(history, number.map(|AccountNo(number)| number)));
    let (page, position) = ask.await?;
    let next_cursor = page.next.map(|cursor| cursor.to_string());
    let rows = page.data;
    let shown = app.read(move |ledger| rows.iter().map(|row| show(ledger, row)).collect());
    let data: Vec<S> = shown.await?.value;
    let (has_more, as_of, position) = (next_cursor.is_some(), Some(time(at)), Some(position));
    Ok(json(StatusCode::OK, &List { data, has_more, next_cursor, as_of, position }))
}

/// Charges in the key's scope, newest first.
#[utoipa::path(get, path = "/v1/charges", tag = "credits", operation_id = "list_charges",
    params(ChargeFilter),
    responses((status = 200, description = "A page of charges", body = List<Charge>)))]
pub(in crate::http) async fn charges(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(filter): Params<ChargeFilter>,
) -> Answer {
    let part = part((filter.from, filter.to), filter.limit, filter.cursor.as_deref())?;
    let ask = move |history: &History<Sqlite>, account| history.charges(account, part);
    list(&app, &caller, (filter.account, Operation::ListCharges), ask, |ledger, made: &Hold| {
        let mut charge = render::charge(ledger, made);
        charge.refunded = Some(Sum::from_micros(made.refunded.into()));
        charge
    })
    .await
}

/// Refunds in the key's scope, newest first.
#[utoipa::path(get, path = "/v1/refunds", tag = "credits", operation_id = "list_refunds",
    params(RefundFilter),
    responses((status = 200, description = "A page of refunds", body = List<Refund>)))]
pub(in crate::http) async fn refunds(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(filter): Params<RefundFilter>,
) -> Answer {
    let part = part((filter.from, filter.to), filter.limit, filter.cursor.as_deref())?;
    let of = match (filter.charge, filter.hold, filter.job) {
        (None, None, None) => None,
        (Some(charge), None, None) => Some(RefundsOf::Charge(charge)),
        (None, Some(hold), None) => Some(RefundsOf::Hold(hold)),
        (None, None, Some(job)) => Some(RefundsOf::Job(job)),
        _ => return Err(Failure::invalid("charge", "name at most one of charge, hold and job")),
    };
    let ask = move |history: &History<Sqlite>, account| history.refunds(account, of.as_ref(), part);
    list(&app, &caller, (filter.account, Operation::ListRefunds), ask, render::past_refund).await
}

/// Transfers in the key's scope, newest first.
#[utoipa::path(get, path = "/v1/transfers", tag = "credits", operation_id = "list_transfers",
    params(TransferFilter),
    responses((status = 200, description = "A page of transfers", body = List<Transfer>)))]
pub(in crate::http) async fn transfers(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(filter): Params<TransferFilter>,
) -> Answer {
    let part = part((filter.from, filter.to), filter.limit, filter.cursor.as_deref())?;
    let ask = move |history: &History<Sqlite>, account| history.transfers(account, part);
    let principal = caller.principal.clone();
    let show = move |ledger: &Ledger, made: &PastMovement| {
        seen_by(&principal, render::past_transfer(ledger, made))
    };
    list(&app, &caller, (filter.account, Operation::ListTransfers), ask, show).await
}

/// A transfer without what lies outside the scope of a key: the other account and its grants.
fn seen_by(principal: &Principal, mut transfer: Transfer) -> Transfer {
    if !principal.sees(&transfer.from) {
        OTHER.clone_into(&mut transfer.from);
        transfer.lots.clear();
        transfer.lots_truncated = true;
    }
    if !principal.sees(&transfer.to) {
        OTHER.clone_into(&mut transfer.to);
    }
    transfer
}

/// A refund.
#[utoipa::path(get, path = "/v1/refunds/{id}", tag = "credits", operation_id = "get_refund",
    params(("id" = String, Path, description = "The refund's id")),
    responses((status = 200, description = "The refund", body = Refund)))]
pub(in crate::http) async fn refund(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer {
    let id = named("refund", id)?;
    let asked = (Resource::Refund, "refund", Operation::GetRefund);
    let seen = one(&app, &caller, asked, &id, render::past_refund).await?;
    let mut refund = seen.value;
    refund.as_of = Some(time(seen.at));
    refund.position = Some(seen.position);
    Ok(json(StatusCode::OK, &refund))
}

/// A transfer.
#[utoipa::path(get, path = "/v1/transfers/{id}", tag = "credits", operation_id = "get_transfer",
    params(("id" = String, Path, description = "The transfer's id")),
    responses((status = 200, description = "The transfer", body = Transfer)))]
pub(in crate::http) async fn transfer(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer {
    let id = named("transfer", id)?;
    let asked = (Resource::Transfer, "transfer", Operation::GetTransfer);
    let seen = one(&app, &caller, asked, &id, render::past_transfer).await?;
    let mut transfer = seen_by(&caller.principal, seen.value);
    transfer.as_of = Some(time(seen.at));
    transfer.position = Some(seen.position);
    Ok(json(StatusCode::OK, &transfer))
}

/// The only refund or transfer with this id that is visible to the caller.
async fn one<T: Send + 'static>(
    app: &App,
    caller: &Caller,
    (resource, noun, operation): (Resource, &'static str, Operation),
    id: &Name,
    show: impl Fn(&Ledger, &PastMovement) -> T + Send + 'static,
) -> Result<Seen<T>, Failure> {
    let missing = || Failure::not_found(noun, id);
    let (own, asked) = (caller.principal.tenant().map(AccountPath::from), caller.tenant.clone());
    if own.is_some() && asked.is_some() && own != asked {
        return Err(missing());
    }
    let tenant = own.or(asked);
    let tenants = move |ledger: &Ledger| match tenant {
        Some(tenant) => ledger.find_account(&tenant).into_iter().collect(),
        None => ledger.tenants().collect::<Vec<AccountNo>>(),
    };
    let seen = app.read(tenants).await?;
    let (tenants, wanted) = (seen.value, id.clone());
    let ask = app.history.ask(seen.position, move |history| {
        let made = |tenant: AccountNo| history.movement(tenant.0, resource, &wanted).transpose();
        tenants.into_iter().filter_map(made).collect::<Result<Vec<PastMovement>, HistoryError>>()
    });
    let (mut found, position) = ask.await?;
    found.retain(|made| {
        let accounts = [Some(&made.account), made.target.as_ref()];
        accounts.into_iter().flatten().any(|path| caller.principal.sees(path))
    });
    if found.len() > 1 {
        let accounts = found.iter().map(|made| AccountPath::from(made.account.as_str()));
        let accounts: Vec<AccountPath> = accounts.collect();
        return Err(ambiguous(id, accounts.iter()));
    }
    let made = found.pop().ok_or_else(missing)?;
    caller.principal.require(operation)?;
    let shown = app.read(move |ledger| show(ledger, &made)).await?;
    Ok(Seen { value: shown.value, at: seen.at, position })
}
