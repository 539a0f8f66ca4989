//! Many changes of the ledger in one request, each on its own or all or nothing.

mod atomic;

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, Method, StatusCode};
use bursar_api::Code;
use bursar_api::batch::{Batch, BatchResults, MAX_OPERATIONS, Operation, OperationResult};
use bursar_api::json::convert;
use bursar_core::ledger::command::Command;
use bursar_core::ledger::id::Name;
use bursar_core::ledger::refusal::Resource;
use serde_json::{Map, Value};
use smallvec::SmallVec;

use super::change::{Answer, USUAL_BODY, json_bytes};
use super::extract::{Caller, Tree, is_idempotency_key};
use super::{accounts, budgets, charges, grants, holds, jobs};
use crate::app::App;
use crate::operation::{Done, Order, Plan, fingerprint};
use crate::problem::Failure;
use crate::render::Shown;

/// The change that an operation asks for.
fn plan(app: &App, caller: &Caller, operation: &Operation, body: Value) -> Result<Plan, Failure> {
    let path = operation.path.as_str();
    let segments: SmallVec<[Cow<'_, str>; 6]> = path.split('/').skip(1).map(decoded).collect();
    let segments: SmallVec<[&str; 6]> = segments.iter().map(AsRef::as_ref).collect();
    let own = |text: &str| text.to_owned();
    match (operation.method.as_str(), segments.as_slice()) {
        ("POST", ["v1", "accounts"]) => accounts::plan_open(app, body),
        ("PATCH", ["v1", "accounts", id]) => accounts::plan_change(app, own(id), body),
        ("POST", ["v1", "accounts", id, "freeze"]) => accounts::plan_freeze(own(id), true, body),
        ("POST", ["v1", "accounts", id, "unfreeze"]) => accounts::plan_freeze(own(id), false, body),
        ("POST", ["v1", "accounts", id, "collect"]) => accounts::plan_collect(app, own(id), body),
        ("PUT", ["v1", "accounts", id, "budgets", name]) => {
            budgets::plan_set(own(id), own(name), body)
        }
        ("DELETE", ["v1", "accounts", id, "budgets", name]) => {
            budgets::plan_remove(own(id), own(name), body)
        }
        ("POST", ["v1", "grants"]) => grants::plan_issue(app, body),
        ("POST", ["v1", "grants", id, "revoke"]) => grants::plan_revoke(own(id), body),
        ("POST", ["v1", "holds"]) => holds::plan_place(app, convert(body)?),
        ("POST", ["v1", "holds", id, "capture"]) => holds::plan_capture(own(id), &convert(body)?),
        ("POST", ["v1", "holds", id, "extend"]) => holds::plan_extend(own(id), &convert(body)?),
        ("POST", ["v1", "holds", id, "settle"]) => holds::plan_settle(own(id), &convert(body)?),
        ("POST", ["v1", "holds", id, "release"]) => holds::plan_release(own(id), &convert(body)?),
        ("POST", ["v1", "jobs"]) => jobs::plan_submit(app, body),
        ("POST", ["v1", "jobs", id, "cancel"]) => jobs::plan_cancel(own(id), body),
        ("POST", ["v1", "charges"]) => charges::plan_charge(app, convert(body)?),
        ("POST", ["v1", "refunds"]) => charges::plan_refund(app, body),
        ("POST", ["v1", "transfers"]) => charges::plan_transfer(app, caller, body),
        (method, _) => {
            let reason = format!("{method} {path} is not a change of a ledger resource");
            Err(Failure::invalid("path", reason))
        }
    }
}

fn decoded(segment: &str) -> Cow<'_, str> {
    if !segment.contains('%') {
        return Cow::Borrowed(segment);
    }
    // These are themselves in a path, unlike in a query.
    let escaped = segment.replace('+', "%2B").replace('&', "%26").replace('=', "%3D");
    let mut pairs = form_urlencoded::parse(escaped.as_bytes());
    pairs.next().map(|(name, _)| name.into_owned().into()).unwrap_or_default()
}

/// The caller of one operation: its own idempotency key, or one made from the batch's.
fn caller_of(caller: &Caller, place: usize, operation: &Operation) -> Result<Caller, Failure> {
    let method = Method::from_bytes(operation.method.as_bytes())
        .map_err(|_| Failure::invalid("method", "must be an HTTP method"))?;
    let idempotency_key = match (&operation.idempotency_key, &caller.idempotency_key) {
        (Some(key), _) if !is_idempotency_key(key) => {
            let reason = "must be 1 to 255 visible characters";
            return Err(Failure::invalid("idempotency_key", reason));
        }
        (Some(key), _) => Some(key.clone()),
        // A space cannot be in a key that a client sends, so these never meet.
        (None, Some(key)) => Some(format!("{key} {place}")),
        (None, None) => None,
    };
    let path = operation.path.clone();
    Ok(Caller { method, path, idempotency_key, ..caller.clone() })
}

/// Things that the batch has promised to create so far: resource, id, account.
type Promises = Vec<(Resource, Name, Name)>;

fn promise(command: &Command, promises: &mut Promises) {
    let made = match command {
        Command::IssueGrant(command) => (Resource::Grant, &command.id, &command.account),
        Command::PlaceHold(command) => (Resource::Hold, &command.id, &command.account),
        Command::Charge(command) => (Resource::Charge, &command.id, &command.account),
        Command::SubmitJob(command) => (Resource::Job, &command.id, &command.account),
        Command::SetPolicy(_)
        | Command::OpenAccount { .. }
        | Command::ChangeAccount { .. }
        | Command::FreezeAccount { .. }
        | Command::UnfreezeAccount { .. }
        | Command::RevokeGrant { .. }
        | Command::CaptureHold { .. }
        | Command::ExtendHold { .. }
        | Command::SettleHold { .. }
        | Command::ReleaseHold { .. }
        | Command::Refund(_)
        | Command::Transfer(_)
        | Command::CollectUncollected { .. }
        | Command::SetBudget { .. }
        | Command::RemoveBudget { .. }
        | Command::ReviveHold { .. }
        | Command::OpenRegion { .. }
        | Command::SetQuota { .. }
        | Command::RemoveQuota { .. }
        | Command::CancelJob { .. }
        | Command::ReportUsage { .. }
        | Command::Receive { .. }
        | Command::KeepBatch { .. } => return,
    };
    promises.push((made.0, made.1.clone(), made.2.clone()));
}

fn prepare(
    app: &App,
    caller: &Caller,
    place: usize,
    operation: &Operation,
    body: Option<Value>,
    print: Option<u128>,
) -> Result<Order, Failure> {
    let own = caller_of(caller, place, operation)?;
    let body = body.unwrap_or_else(|| Value::Object(Map::new()));
    // Under the batch's own key an operation stands for the whole batch.
    let alone = || fingerprint(&operation.method, &operation.path, &body);
    let print = print.filter(|_| operation.idempotency_key.is_none()).unwrap_or_else(alone);
    Ok(plan(app, &own, operation, body)?.ordered_by(own, print))
}

/// What one operation came to.
pub(super) struct Outcome {
    status: u16,
    body: Shown,
}

pub(super) fn outcome(done: Result<Done, Failure>) -> Outcome {
    match done {
        Ok(done) => {
            let body = done.body.unwrap_or(Shown::Other(Value::Null));
            Outcome { status: done.status, body }
        }
        Err(failure) => {
            let OperationResult { status, body } = failed(failure);
            Outcome { status, body: Shown::Other(body) }
        }
    }
}

fn failed(failure: Failure) -> OperationResult {
    let problem = failure.into_problem();
    let body = serde_json::to_value(&problem).expect("a problem has only plain fields");
    OperationResult { status: problem.status, body }
}

/// What all came to, in order, as a [`BatchResults`].
pub(super) fn results_body(results: &[Outcome]) -> Vec<u8> {
    let mut out = Vec::with_capacity(results.len() * USUAL_BODY);
    out.extend_from_slice(b"{\"results\":[");
    for (place, Outcome { status, body }) in results.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"status\":");
        out.extend_from_slice(status.to_string().as_bytes());
        out.extend_from_slice(b",\"body\":");
        body.write(&mut out);
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
    out
}

/// Orders that are decided in one go: enough to share its cost, few enough that nobody waits long
/// behind it.
const AT_ONCE: usize = 64;

/// Decides orders one after the other, in their order.
pub(super) async fn decide_all(
    app: &App,
    orders: Vec<Result<Order, Failure>>,
) -> Vec<Result<Done, Failure>> {
    let mut ready = Vec::with_capacity(orders.len());
    for order in orders {
        ready.push(match order {
            Ok(order) => match order.recall(app) {
                Some(recall) => recall.await.map(|()| order),
                None => Ok(order),
            },
            Err(failure) => Err(failure),
        });
    }
    // Posted without waiting for each other's answers: the mailbox keeps the order.
    let mut posted = Vec::new();
    let mut left = ready.into_iter().peekable();
    while left.peek().is_some() {
        let some: Vec<Result<Order, Failure>> = left.by_ref().take(AT_ONCE).collect();
        let count = some.len();
        let decided = app.ledger.attend(move |ledger| {
            let decide =
                |order: Result<Order, Failure>| order.and_then(|order| order.decide(ledger));
            some.into_iter().map(decide).collect::<Vec<_>>()
        });
        posted.push((count, decided));
    }
    let mut all = Vec::new();
    for (count, decided) in posted {
        match decided.answer().await {
            Ok(seen) => all.extend(seen.value),
            Err(failure) => all.extend((0..count).map(|_| Err(failure.clone()))),
        }
    }
    all
}

/// Runs changes of ledger resources in order.
///
/// Without `atomic` each stands on its own. With it, all happen or none, in one tenant and one
/// journal record.
#[utoipa::path(post, path = "/v1/batch", tag = "operations", operation_id = "run_batch",
    request_body = Batch,
    responses((status = 200, description = "What each came to, in order", body = BatchResults)))]
pub(super) async fn run(State(app): State<Arc<App>>, caller: Caller, Tree(body): Tree) -> Answer {
    let print = caller.idempotency_key.as_ref().map(|_| fingerprint("POST", "/v1/batch", &body));
    let batch: Batch = convert(body)?;
    caller.principal.require("run_batch").or_else(|failure| {
        // Whoever may change anything may do so in a batch; each operation is checked by itself.
        let may = ["issue_grant", "set_budget", "freeze_account"];
        may.iter().find_map(|name| caller.principal.require(name).ok()).ok_or(failure)
    })?;
    if !(1..=MAX_OPERATIONS).contains(&batch.operations.len()) {
        return Err(Failure::invalid("operations", "must have 1 to 1000 operations"));
    }
    if batch.atomic {
        atomic::run(&app, &caller, &batch.operations, print).await
    } else {
        separate(&app, &caller, batch.operations, print).await
    }
}

async fn separate(
    app: &App,
    caller: &Caller,
    mut operations: Vec<Operation>,
    print: Option<u128>,
) -> Answer {
    let orders = operations.iter_mut().enumerate().map(|(place, operation)| {
        let body = operation.body.take();
        prepare(app, caller, place, operation, body, print)
    });
    let decided = decide_all(app, orders.collect()).await;
    let mut results = Vec::with_capacity(decided.len());
    let mut all_replayed = true;
    for (operation, done) in operations.iter().zip(decided) {
        let derived = operation.idempotency_key.is_none() && caller.idempotency_key.is_some();
        match &done {
            Ok(done) => all_replayed &= done.replayed,
            Err(failure) if derived && failure.problem.code == Code::IdempotencyKeyReused => {
                return Err(done.expect_err("it was just looked at"));
            }
            Err(failure) => all_replayed &= failure.replayed,
        }
        results.push(outcome(done));
    }
    Ok(finished(results, all_replayed))
}

fn finished(results: Vec<Outcome>, replayed: bool) -> axum::response::Response {
    let mut response = json_bytes(StatusCode::OK, results_body(&results));
    if replayed {
        response.headers_mut().insert("idempotent-replayed", HeaderValue::from_static("true"));
    }
    response
}
