//! Holds.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use bursar_api::credits::hold::{
    Capture, Extend, Hold, HoldFilter, HoldState, Lot, PlaceHold, Release, Settle,
};
use bursar_api::list::{List, Page};
use bursar_core::ledger::command::{self, Cause, Command, Usage};
use bursar_core::ledger::holds::forget::resource_of;
use bursar_core::ledger::holds::hold::HoldKind;
use bursar_core::ledger::id::{HoldNo, Name};
use bursar_core::ledger::refusal::{Refusal, Resource};
use bursar_core::ledger::{self, Ledger};
use bursar_core::name::{AccountPath, HoldId};
use bursar_engine::Seen;
use bursar_history::{History, Sqlite};

use super::movements;
use crate::app::App;
use crate::auth::permissions::Authority;
use crate::change::{
    ArchiveRecords, ChangePlan, LookUps, MAX_LOOKS, Target, hold_in, may_have_forgotten,
};
use crate::http::convert::{context, credits, millis, on_expiry, text};
use crate::http::extract::{Params, ParsedBody, Path};
use crate::http::list::{page, page_size, past_cursor, read_cursor};
use crate::http::respond::{Answer, account_field, change, json, named, new_id};
use crate::operations::Operation;
use crate::render::{self, AnswerShape, hold_state, time};
use crate::request::{Caller, Failure};

const DEFAULT_TTL_SECONDS: u64 = 3600;

pub(super) fn plan_place(app: &App, place: PlaceHold) -> Result<ChangePlan, Failure> {
    let account = account_field(place.account, "account")?;
    let (id, creates) = new_id(app, Resource::Hold, place.id, "hold")?;
    let command = command::PlaceHold {
        id: id.into(),
        account: account.clone(),
        amount: credits(place.amount, "amount")?,
        ttl_ms: Some(millis(place.ttl_seconds.unwrap_or(DEFAULT_TTL_SECONDS))),
        context: context(place.context)?,
        on_expiry: on_expiry(place.on_expiry),
        rate: None,
        gpu_ms: 0,
        reference: text(place.reference, "reference", 1024)?,
    };
    Ok(ChangePlan {
        operation: Operation::PlaceHold,
        authority: Authority::Role,
        target: Target::Account(account),
        creates: Some(creates),
        counts: None,
        array: None,
        build: Box::new(move |_| Command::PlaceHold(command)),
        shape: AnswerShape::Hold { closing: false },
    })
}

/// Plans a change of an existing hold.
fn plan(
    operation: Operation,
    hold: &HoldId,
    closing: bool,
    build: impl FnOnce(AccountPath) -> Command + Send + 'static,
) -> ChangePlan {
    ChangePlan {
        operation,
        authority: Authority::Role,
        target: Target::Named(Resource::Hold, hold.clone().into()),
        creates: None,
        counts: None,
        array: None,
        build: Box::new(build),
        shape: AnswerShape::Hold { closing },
    }
}

pub(super) fn plan_capture(id: String, capture: &Capture) -> Result<ChangePlan, Failure> {
    let hold = HoldId::from(named("hold", id)?);
    let usage = Usage::Total(credits(capture.total, "total")?);
    let seq = capture.seq;
    Ok(plan(Operation::CaptureHold, &hold.clone(), false, move |tenant| Command::CaptureHold {
        tenant,
        hold,
        usage,
        seq,
    }))
}

pub(super) fn plan_extend(id: String, extend: &Extend) -> Result<ChangePlan, Failure> {
    let hold = HoldId::from(named("hold", id)?);
    let amount = extend.amount.map(|amount| credits(amount, "amount")).transpose()?;
    let ttl_ms = extend.ttl_seconds.map(millis);
    Ok(plan(Operation::ExtendHold, &hold.clone(), false, move |tenant| Command::ExtendHold {
        tenant,
        hold,
        amount,
        gpu_ms: 0,
        ttl_ms,
    }))
}

pub(super) fn plan_settle(id: String, settle: &Settle) -> Result<ChangePlan, Failure> {
    let hold = HoldId::from(named("hold", id)?);
    let usage = Usage::Total(credits(settle.total, "total")?);
    Ok(plan(Operation::SettleHold, &hold.clone(), true, move |tenant| Command::SettleHold {
        tenant,
        hold,
        usage,
        cause: Cause::Holder,
    }))
}

pub(super) fn plan_release(id: String, Release {}: &Release) -> Result<ChangePlan, Failure> {
    let hold = HoldId::from(named("hold", id)?);
    Ok(plan(Operation::ReleaseHold, &hold.clone(), true, move |tenant| Command::ReleaseHold {
        tenant,
        hold,
        cause: Cause::Holder,
    }))
}

/// Reserves credits, all or nothing.
#[utoipa::path(post, path = "/v1/holds", tag = "credits", operation_id = "place_hold",
    request_body = PlaceHold, responses(
        (status = 201, description = "The hold was placed", body = Hold),
        (status = 200, description = "The same request had placed it before", body = Hold)))]
pub(in crate::http) async fn place(
    State(app): State<Arc<App>>,
    caller: Caller,
    sent: ParsedBody<PlaceHold>,
) -> Answer {
    let plan = plan_place(&app, sent.value)?;
    change(&app, caller, sent.fingerprint, plan).await
}

/// Spends the usage so far. The total is cumulative: repeats and reordering change nothing.
#[utoipa::path(post, path = "/v1/holds/{id}/capture", tag = "credits", operation_id = "capture_hold",
    params(("id" = String, Path, description = "The hold's id")), request_body = Capture,
    responses((status = 200, description = "The hold as it is now", body = Hold)))]
pub(in crate::http) async fn capture(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    sent: ParsedBody<Capture>,
) -> Answer {
    let plan = plan_capture(id, &sent.value)?;
    change(&app, caller, sent.fingerprint, plan).await
}

/// Extends a hold: a larger amount, a longer TTL, or both.
#[utoipa::path(post, path = "/v1/holds/{id}/extend", tag = "credits", operation_id = "extend_hold",
    params(("id" = String, Path, description = "The hold's id")), request_body = Extend,
    responses((status = 200, description = "The hold as it is now", body = Hold)))]
pub(in crate::http) async fn extend(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    sent: ParsedBody<Extend>,
) -> Answer {
    let plan = plan_extend(id, &sent.value)?;
    change(&app, caller, sent.fingerprint, plan).await
}

/// Spends the final usage and returns the rest.
#[utoipa::path(post, path = "/v1/holds/{id}/settle", tag = "credits", operation_id = "settle_hold",
    params(("id" = String, Path, description = "The hold's id")), request_body = Settle,
    responses((status = 200, description = "The hold, settled", body = Hold)))]
pub(in crate::http) async fn settle(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    sent: ParsedBody<Settle>,
) -> Answer {
    let plan = plan_settle(id, &sent.value)?;
    change(&app, caller, sent.fingerprint, plan).await
}

/// Releases a hold: credits that were not captured return to their grants.
#[utoipa::path(post, path = "/v1/holds/{id}/release", tag = "credits", operation_id = "release_hold",
    params(("id" = String, Path, description = "The hold's id")), request_body = Release,
    responses((status = 200, description = "The hold, released", body = Hold)))]
pub(in crate::http) async fn release(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    sent: ParsedBody<Release>,
) -> Answer {
    let plan = plan_release(id, &sent.value)?;
    change(&app, caller, sent.fingerprint, plan).await
}

/// A hold.
#[utoipa::path(get, path = "/v1/holds/{id}", tag = "credits", operation_id = "get_hold",
    params(("id" = String, Path, description = "The hold's id")),
    responses((status = 200, description = "The hold", body = Hold)))]
pub(in crate::http) async fn get(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer {
    let id = named("hold", id)?;
    let seen =
        look(&app, &caller, HoldKind::Hold, &id, Operation::GetHold, render::archived_hold).await?;
    let mut hold = seen.value;
    hold.as_of = Some(time(seen.at));
    hold.position = Some(seen.position);
    Ok(json(StatusCode::OK, &hold))
}

/// Reads a hold or charge from the ledger, or from the archive if the ledger has forgotten it.
pub(in crate::http) async fn look<T: Send + 'static>(
    app: &App,
    caller: &Caller,
    kind: HoldKind,
    id: &Name,
    operation: Operation,
    show: impl Fn(&Ledger, &ledger::holds::hold::Hold) -> T + Clone + Send + 'static,
) -> Result<Seen<T>, Failure> {
    let named = (resource_of(kind), id.clone());
    for looks in 0..=MAX_LOOKS {
        let look_ups = LookUps::of_target(caller, named.clone());
        let looked = match look_ups.at_once(app) {
            Some(looked) if looks == 0 => looked,
            Some(_) | None => match look_ups.look_up(app).await {
                // The ledger says whether that matters.
                Err(_) if looks == 0 => ArchiveRecords::default(),
                looked => looked?,
            },
        };
        let (asker, wanted, show) = (caller.clone(), id.clone(), show.clone());
        let read = move |ledger: &Ledger| {
            let found = hold_in(ledger, &asker, (kind, &wanted), &looked.records);
            let named = (resource_of(kind), &wanted);
            let is_outdated = may_have_forgotten(ledger, &asker, named, looked.position);
            (!is_outdated).then(|| found.map(|hold| show(ledger, hold)))
        };
        let seen = app.read(read).await?;
        if let Some(found) = seen.value {
            let value = found?;
            caller.principal.require(operation)?;
            return Ok(Seen { value, at: seen.at, position: seen.position });
        }
    }
    let (what, name) = named;
    Err(Failure::from(Refusal::Forgotten { what, name }))
}

/// All lots of a hold, in the order they were drawn.
#[utoipa::path(get, path = "/v1/holds/{id}/lots", tag = "credits", operation_id = "list_hold_lots",
    params(("id" = String, Path, description = "The hold's id"), Page),
    responses((status = 200, description = "A page of lots", body = List<Lot>)))]
pub(in crate::http) async fn lots(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Params(asked): Params<Page>,
) -> Answer {
    let id = named("hold", id)?;
    let size = page_size(asked.limit)?;
    let first = read_cursor(asked.cursor.as_deref())?.map_or(0, |place| place.saturating_add(1));
    let first = usize::try_from(first).unwrap_or(usize::MAX);
    let show = move |ledger: &Ledger, hold: &ledger::holds::hold::Hold| -> Vec<(u128, Lot)> {
        let all = ledger.hold_lots(hold, u32::MAX).enumerate().skip(first).take(size + 1);
        all.map(|(place, lot)| (place as u128, render::lot(ledger, lot))).collect()
    };
    let seen = look(&app, &caller, HoldKind::Hold, &id, Operation::ListHoldLots, show).await?;
    let (as_of, position) = (Some(time(seen.at)), Some(seen.position));
    let list = List { as_of, position, ..page(seen.value, size) };
    Ok(json(StatusCode::OK, &list))
}

/// The most numbers that one read of the ledger visits.
const MAX_STEP_HOLDS: u32 = 20_000;

/// Holds in the key's scope, newest first.
#[utoipa::path(get, path = "/v1/holds", tag = "credits", operation_id = "list_holds",
    params(HoldFilter),
    responses((status = 200, description = "A page of holds", body = List<Hold>)))]
pub(in crate::http) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(filter): Params<HoldFilter>,
) -> Answer {
    if filter.state == Some(HoldState::Open) {
        return open_holds(&app, caller, filter).await;
    }
    // Closed ones leave memory. History has all.
    let (limit, after) = (page_size(filter.limit)?, past_cursor(filter.cursor.as_deref())?);
    let limit = u32::try_from(limit).unwrap_or(100);
    let (state, of_one) = (filter.state, filter.account.is_some());
    let ask = move |history: &History<Sqlite>, account: Option<u32>| {
        history.holds(account, (after, limit), |hold| {
            state.is_none_or(|state| state == hold_state(hold.state))
                && (!of_one || account == Some(hold.account.0))
        })
    };
    let asked = (filter.account, Operation::ListHolds);
    movements::list(&app, &caller, asked, ask, render::archived_hold).await
}

/// Open holds, from the ledger.
async fn open_holds(app: &App, caller: Caller, filter: HoldFilter) -> Answer {
    let size = page_size(filter.limit)?;
    let before = read_cursor(filter.cursor.as_deref())?.unwrap_or(u128::MAX);
    let account = app.listed_account(&caller, filter.account).await?;
    caller.principal.require(Operation::ListHolds)?;
    let wanted = Wanted { principal: caller.principal, account, before };
    // Numbers are not ordered by time, so all holds are visited and the newest kept.
    let mut found: Vec<(u128, Hold)> = Vec::new();
    let mut first = 0;
    loop {
        let wanted = wanted.clone();
        let read =
            move |ledger: &Ledger| (wanted.among(ledger, first, size + 1), ledger.hold_places());
        let seen = app.read(read).await?;
        let (more, places) = seen.value;
        found.extend(more);
        found.sort_by_key(|(place, _)| std::cmp::Reverse(*place));
        found.truncate(size + 1);
        first = first.saturating_add(MAX_STEP_HOLDS);
        if first >= places {
            let (as_of, position) = (Some(time(seen.at)), Some(seen.position));
            return Ok(json(StatusCode::OK, &List { as_of, position, ..page(found, size) }));
        }
    }
}

#[derive(Clone)]
struct Wanted {
    principal: crate::auth::Principal,
    account: Option<AccountPath>,
    before: u128,
}

impl Wanted {
    /// The newest open holds among those with numbers from `first` on.
    fn among(&self, ledger: &Ledger, first: u32, most: usize) -> Vec<(u128, Hold)> {
        let mut places: Vec<(u128, HoldNo)> = Vec::new();
        for (number, hold) in ledger.holds_from(first, MAX_STEP_HOLDS) {
            let path = ledger.account(hold.account).path.as_str();
            let since = u128::try_from(hold.placed_at.millis().max(0)).unwrap_or(0);
            let place = (since << 32) | u128::from(number.0);
            let wanted = hold.kind == HoldKind::Hold
                && place < self.before
                && self.account.as_deref().is_none_or(|account| account == path)
                && hold_state(hold.state) == HoldState::Open
                && self.principal.sees(path);
            if wanted {
                places.push((place, number));
            }
        }
        places.sort_by_key(|(place, _)| std::cmp::Reverse(*place));
        places.truncate(most);
        let shown = places.into_iter();
        shown.filter_map(|(place, number)| Some((place, render::hold(ledger, number)?))).collect()
    }
}
