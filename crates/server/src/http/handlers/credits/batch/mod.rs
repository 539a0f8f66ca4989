//! Many changes of the ledger in one request, independent or atomic.

mod atomic;
pub(in crate::http) mod dry_run;
mod key;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::IntoResponse;
use bursar_api::credits::batch::{
    Batch, BatchResults, MAX_OPERATIONS, Operation as BatchItem, OperationResult,
};
use bursar_api::json::flat::Flat;
use bursar_api::json::flat_batch::{FlatBatch, FlatOperation};
use bursar_api::json::{self, convert};
use bursar_core::ledger::Ledger;
use bursar_core::ledger::command::Command;
use bursar_core::ledger::id::Name;
use bursar_core::ledger::refusal::Resource;
use bursar_core::name::AccountPath;
use bursar_engine::{EngineError, Transaction, attempt};
use compact_str::format_compact;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{charges, grants, holds};
use crate::app::App;
use crate::change::{
    Change, ChangePlan, Decision, Done, MAX_LOOKS, Probe, fingerprint, fingerprint_of, urgency_of,
};
use crate::http::extract::{Arrived, is_idempotency_key};
use crate::http::handlers::accounts::{self, budgets};
use crate::http::handlers::jobs;
use crate::http::respond::{Answer, DEFAULT_BODY, json_bytes, known};
use crate::operations::{InBatch, Operation};
use crate::render::Shown;
use crate::request::{Caller, Failure};
use key::{BatchKey, KeyTrouble};

/// An operation without its body.
#[derive(Copy, Clone)]
struct OperationFacts<'a> {
    method: &'a str,
    path: &'a str,
    idempotency_key: Option<&'a str>,
}

impl<'a> From<&'a BatchItem> for OperationFacts<'a> {
    fn from(operation: &'a BatchItem) -> OperationFacts<'a> {
        let BatchItem { method, path, body: _, idempotency_key } = operation;
        OperationFacts { method, path, idempotency_key: idempotency_key.as_deref() }
    }
}

impl<'a> From<&FlatOperation<'a>> for OperationFacts<'a> {
    fn from(operation: &FlatOperation<'a>) -> OperationFacts<'a> {
        let FlatOperation { method, path, idempotency_key, .. } = *operation;
        OperationFacts { method, path, idempotency_key }
    }
}

/// The body of an operation, from the general parser or the fast one.
enum Body<'a> {
    Tree(Value),
    /// With the bytes that it was parsed from.
    Flat(&'a Flat<'a>, &'a [u8]),
}

impl Body<'_> {
    fn none() -> Body<'static> {
        Body::Tree(Value::Object(Map::new()))
    }

    fn fingerprint(&self, operation: OperationFacts<'_>) -> u128 {
        match self {
            Body::Tree(tree) => fingerprint(operation.method, operation.path, tree),
            Body::Flat(flat, bytes) => {
                let mut canonical = Vec::with_capacity(bytes.len() + 16);
                flat.canonical(&mut canonical);
                fingerprint_of(operation.method, operation.path, &canonical)
            }
        }
    }

    fn tree(self) -> Result<Value, Failure> {
        match self {
            Body::Tree(tree) => Ok(tree),
            Body::Flat(_, bytes) => Ok(json::parse(bytes)?),
        }
    }

    fn typed<T: DeserializeOwned>(self) -> Result<T, Failure> {
        if let Body::Flat(flat, _) = self
            && let Some(value) = flat.convert()
        {
            return Ok(value);
        }
        // The general parser reports the error.
        Ok(convert(self.tree()?)?)
    }
}

/// The change that an operation requests.
fn plan(
    app: &App,
    caller: &Caller,
    operation: OperationFacts<'_>,
    body: Body<'_>,
) -> Result<ChangePlan, Failure> {
    let OperationFacts { method, path, .. } = operation;
    let not_a_part = || {
        let reason = format!("{method} {path} is not a change of a ledger resource");
        Failure::invalid("path", reason)
    };
    let found = Operation::find(method, path);
    let part = found.filter(|(operation, _)| operation.row().batch == InBatch::Part);
    let (operation, params) = part.ok_or_else(not_a_part)?;
    let param = |name| decoded(params.get(name).unwrap_or_default()).into_owned();
    let id = || param("id");
    match operation {
        Operation::PlaceHold => holds::plan_place(app, body.typed()?),
        Operation::CaptureHold => holds::plan_capture(id(), &body.typed()?),
        Operation::SettleHold => holds::plan_settle(id(), &body.typed()?),
        Operation::CreateCharge => charges::plan_charge(app, body.typed()?),
        Operation::ExtendHold => holds::plan_extend(id(), &body.typed()?),
        Operation::ReleaseHold => holds::plan_release(id(), &body.typed()?),
        Operation::OpenAccount => accounts::plan_open(app, body.tree()?),
        Operation::ChangeAccount => accounts::plan_change(app, id(), body.tree()?),
        Operation::FreezeAccount => accounts::plan_freeze(id(), true, body.tree()?),
        Operation::UnfreezeAccount => accounts::plan_freeze(id(), false, body.tree()?),
        Operation::Collect => accounts::plan_collect(app, id(), body.tree()?),
        Operation::SetBudget => budgets::plan_set(id(), param("name"), body.tree()?),
        Operation::RemoveBudget => budgets::plan_remove(id(), param("name"), body.tree()?),
        Operation::IssueGrant => grants::plan_issue(app, body.tree()?),
        Operation::RevokeGrant => grants::plan_revoke(id(), body.tree()?),
        Operation::SubmitJob => jobs::plan_submit(app, body.tree()?),
        Operation::CancelJob => jobs::plan_cancel(app, id(), body.tree()?),
        Operation::CreateRefund => charges::plan_refund(app, body.tree()?),
        Operation::CreateTransfer => charges::plan_transfer(app, caller, body.tree()?),
        _ => Err(not_a_part()),
    }
}

fn decoded(segment: &str) -> Cow<'_, str> {
    if !segment.contains('%') {
        return Cow::Borrowed(segment);
    }
    // In a path these characters stand for themselves, unlike in a query.
    let escaped = segment.replace('+', "%2B").replace('&', "%26").replace('=', "%3D");
    let mut pairs = form_urlencoded::parse(escaped.as_bytes());
    pairs.next().map(|(name, _)| name.into_owned().into()).unwrap_or_default()
}

/// The caller of one operation: its own idempotency key, or one derived from the batch's.
fn caller_of(
    caller: &Caller,
    place: usize,
    operation: OperationFacts<'_>,
) -> Result<Caller, Failure> {
    let method = Method::from_bytes(operation.method.as_bytes())
        .map_err(|_| Failure::invalid("method", "must be an HTTP method"))?;
    let idempotency_key = match (operation.idempotency_key, &caller.idempotency_key) {
        (Some(key), _) if !is_idempotency_key(key) => {
            let reason = "must be 1 to 255 visible characters";
            return Err(Failure::invalid("idempotency_key", reason));
        }
        (Some(key), _) => Some(key.into()),
        (None, Some(key)) => Some(derived_key(key, place)),
        (None, None) => None,
    };
    let (principal, tenant) = (caller.principal.clone(), caller.tenant.clone());
    let (path, request, dry_run) = (operation.path.to_owned(), caller.request, caller.dry_run);
    Ok(Caller { principal, method, path, idempotency_key, tenant, request, dry_run })
}

/// The key of one part of a request, derived from the key of the request.
pub(super) fn derived_key(key: &Name, place: usize) -> Name {
    // A key from a client cannot contain a space, so derived keys never collide with one.
    format_compact!("{key} {place}")
}

/// The resources that the batch creates so far: kind, id, account.
type Promises = Vec<(Resource, Name, AccountPath)>;

fn promise(command: &Command, promises: &mut Promises) {
    let made = match command {
        Command::IssueGrant(command) => (Resource::Grant, command.id.as_str(), &command.account),
        Command::PlaceHold(command) => (Resource::Hold, command.id.as_str(), &command.account),
        Command::Charge(command) => (Resource::Charge, command.id.as_str(), &command.account),
        Command::SubmitJob(command) => (Resource::Job, command.id.as_str(), &command.account),
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
        | Command::RestoreHold { .. }
        | Command::Forget(_)
        | Command::OpenRegion { .. }
        | Command::SetQuota { .. }
        | Command::RemoveQuota { .. }
        | Command::CancelJob { .. }
        | Command::ReportUsage { .. }
        | Command::Receive { .. }
        | Command::KeepBatch { .. } => return,
    };
    promises.push((made.0, made.1.into(), made.2.clone()));
}

fn prepare(
    app: &App,
    caller: &Caller,
    place: usize,
    operation: OperationFacts<'_>,
    body: Body<'_>,
    fingerprint: Option<u128>,
) -> Result<Change, Failure> {
    let own = caller_of(caller, place, operation)?;
    // A created resource has the operation's own fingerprint, whatever batch it comes in. A derived
    // key stands for the whole batch.
    let whole = fingerprint.filter(|_| operation.idempotency_key.is_none());
    let own_print = body.fingerprint(operation);
    Ok(plan(app, &own, operation, body)?.requested_by(own, own_print).in_batch(whole))
}

/// The number of operations that one counts for: an array counts its jobs.
fn cost_of(operation: OperationFacts<'_>, body: Option<&Value>) -> u32 {
    match body.filter(|_| operation.path == "/v1/jobs") {
        Some(body) => jobs::count(body),
        None => 1,
    }
}

/// The most jobs that one atomic batch may submit, including those of arrays.
const MAX_ATOMIC_JOBS: u32 = 1000;

/// An operation that can be decided, or its failure.
pub(super) type Requested = Result<Change, Failure>;

/// All operations of a batch from the fast parser. `None` if one of them needs the general parser,
/// or the batch is atomic.
fn short(app: &App, caller: &Caller, body: &[u8]) -> Option<(Vec<Requested>, Option<u128>)> {
    let batch = FlatBatch::read(body)?;
    if batch.is_atomic() || !(1..=MAX_OPERATIONS).contains(&batch.operations().len()) {
        return None;
    }
    let fingerprint = match &caller.idempotency_key {
        None => None,
        Some(_) => {
            let mut canonical = Vec::with_capacity(body.len() + 16);
            batch.canonical(&mut canonical)?;
            Some(fingerprint_of("POST", "/v1/batch", &canonical))
        }
    };
    let mut all = Vec::with_capacity(batch.operations().len());
    for (place, operation) in batch.operations().enumerate() {
        let flat;
        let body = match operation.body() {
            None => Body::none(),
            Some(bytes) => {
                flat = Flat::read(bytes)?;
                Body::Flat(&flat, bytes)
            }
        };
        all.push(prepare(app, caller, place, operation.into(), body, fingerprint));
    }
    Some((all, fingerprint))
}

/// The result of one operation.
struct OperationOutcome {
    status: u16,
    body: Shown,
}

fn outcome(done: Result<Done, Failure>) -> OperationOutcome {
    match done {
        Ok(done) => {
            let body = done.body.unwrap_or(Shown::Other(Value::Null));
            OperationOutcome { status: done.status, body }
        }
        Err(failure) => {
            let OperationResult { status, body } = failed(failure);
            OperationOutcome { status, body: Shown::Other(body) }
        }
    }
}

fn failed(failure: Failure) -> OperationResult {
    let problem = failure.into_problem();
    let body = serde_json::to_value(&problem).expect("a problem has only plain fields");
    OperationResult { status: problem.status, body }
}

/// All results in order, as a [`BatchResults`].
fn results_body(results: &[OperationOutcome]) -> Vec<u8> {
    let mut out = Vec::with_capacity(results.len() * DEFAULT_BODY);
    out.extend_from_slice(b"{\"results\":[");
    for (place, OperationOutcome { status, body }) in results.iter().enumerate() {
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

/// The number of operations decided in one turn: enough to share its cost, few enough that no other
/// request waits long.
const AT_ONCE: usize = 64;
/// The most bytes that a turn writes before other requests have theirs.
const MAX_TURN_BYTES: usize = 64 << 10;

/// A change to decide, or its earlier result.
type LookedUpChange = Result<Change, Result<Done, Failure>>;

/// Looks up what a change needs.
async fn recall_one(app: &App, change: Change) -> LookedUpChange {
    match known(app, change).await {
        Ok(Ok(change)) => Ok(change),
        Ok(Err(done)) => Err(Ok(done)),
        Err(failure) => Err(Err(failure)),
    }
}

/// The same for all of them.
async fn recall_all(app: &App, changes: Vec<Requested>) -> Vec<LookedUpChange> {
    let mut ready = Vec::with_capacity(changes.len());
    for change in changes {
        ready.push(match change {
            Ok(change) => recall_one(app, change).await,
            Err(failure) => Err(Err(failure)),
        });
    }
    ready
}

/// Decides one operation. If it panics, it fails alone.
fn decide_one(
    ledger: &mut dyn Transaction<Ledger>,
    known: LookedUpChange,
    key: Option<&BatchKey>,
    changed: &mut BTreeSet<AccountPath>,
) -> Decision {
    let change = match known {
        Ok(change) => change,
        Err(known) => return Decision::Done(known),
    };
    let probe = key.and_then(|_| change.probe());
    let decided = attempt(ledger, |ledger| change.decide(ledger));
    let done = match decided {
        Ok(Decision::Done(done)) => done,
        Ok(again @ Decision::LookAgain(_)) => return again,
        Err(error) => Err(error.into()),
    };
    // Stored answers use up the key: changes, and rejections that are replayed.
    let is_kept = done.as_ref().map_or_else(|no| matches!(no.problem.status, 402 | 409), |_| true);
    if let (Some(key), Some(probe), true) = (key, probe, is_kept) {
        changed.extend(probe.namespace(ledger.machine(), &key.caller));
    }
    Decision::Done(done)
}

/// Decides operations in their order. None is decided if the key of the batch was used for another
/// request.
async fn decide_all(
    app: &App,
    tenant: Option<&str>,
    changes: Vec<Requested>,
    key: Option<BatchKey>,
) -> Result<Vec<Result<Done, Failure>>, Failure> {
    let mut left = recall_all(app, changes).await;
    // All keys are checked before the first operation.
    let mut checks = key.is_some();
    let mut key = key;
    if let Some(key) = &mut key {
        let tenants = key.tenants(&probes_of(&left));
        key.look_up(app, tenants, true).await?;
    }
    let (mut all, mut looks) = (Vec::with_capacity(left.len()), 0);
    loop {
        let count = left.len();
        let probes = if checks { probes_of(&left) } else { Vec::new() };
        match decide_some(app, tenant, left, key.clone(), probes).await? {
            Ok(Turned::Done(decided)) => {
                all.extend(decided);
                return Ok(all);
            }
            Ok(Turned::Partly(decided, change, rest)) => {
                all.extend(decided);
                checks = false;
                let rest = std::iter::once(Ok(*change)).chain(rest);
                left = recall_again(app, rest.collect()).await;
            }
            Ok(Turned::Refused(trouble, rest)) => match (trouble, &mut key) {
                (KeyTrouble::Unknown(tenants), Some(key)) if looks < MAX_LOOKS => {
                    looks += 1;
                    key.look_up(app, tenants, false).await?;
                    left = recall_again(app, rest).await;
                }
                (trouble, _) => return Err(trouble.failure()),
            },
            Err(failure) => {
                all.extend((0..count).map(|_| Err(failure.clone())));
                return Ok(all);
            }
        }
    }
}

fn probes_of(changes: &[LookedUpChange]) -> Vec<Probe> {
    changes.iter().filter_map(|known| known.as_ref().ok().and_then(Change::probe)).collect()
}

/// Looks up again what may have been forgotten since.
async fn recall_again(app: &App, changes: Vec<LookedUpChange>) -> Vec<LookedUpChange> {
    let mut left = Vec::with_capacity(changes.len());
    for known in changes {
        left.push(match known {
            Ok(change) => recall_one(app, change.looking_again()).await,
            Err(known) => Err(known),
        });
    }
    left
}

/// The outcome of several changes.
enum Turned {
    /// All are decided.
    Done(Vec<Result<Done, Failure>>),
    /// Some are decided; the next one must be looked up again.
    Partly(Vec<Result<Done, Failure>>, Box<Change>, Vec<LookedUpChange>),
    /// None is decided.
    Refused(KeyTrouble, Vec<LookedUpChange>),
}

/// Decides changes up to the first that must be looked up again. If it fails, no outcome is known.
async fn decide_some(
    app: &App,
    tenant: Option<&str>,
    ready: Vec<LookedUpChange>,
    key: Option<BatchKey>,
    mut probes: Vec<Probe>,
) -> Result<Result<Turned, Failure>, Failure> {
    let counts = ready.iter().any(|known| known.as_ref().is_ok_and(Change::must_count))
        && app.ledger.peek(Ledger::counts_in_steps).await?;
    // Operations are counted and decided one after the other, so they need one place.
    let place = if counts { Some(app.counting.enter(tenant, 1).await?) } else { None };
    let open = ready.iter().filter_map(|known| known.as_ref().ok());
    let ledger = app.ledger.with_urgency(urgency_of(open.map(Change::meters)));
    let count = ready.len();
    let (mut left, mut decided) = (ready.into_iter(), Vec::with_capacity(count));
    let posted = ledger.attend_in_turns(move |ledger| {
        let _kept_to_the_end = &place;
        let probes = std::mem::take(&mut probes);
        let (machine, now) = (ledger.machine(), ledger.now());
        if let Some(Err(trouble)) =
            key.as_ref().map(|key| key.require_unused(machine, now, &probes))
        {
            return Some(Turned::Refused(trouble, left.by_ref().collect()));
        }
        let (begun, mut changed, mut again) = (ledger.written(), BTreeSet::new(), None);
        for _ in 0..AT_ONCE {
            let next = left.as_slice().first().and_then(|known| known.as_ref().ok());
            if next.is_some_and(|change| !change.prepare(ledger)) {
                break;
            }
            let Some(known) = left.next() else { break };
            match decide_one(ledger, known, key.as_ref(), &mut changed) {
                Decision::Done(done) => decided.push(done),
                Decision::LookAgain(change) => {
                    again = Some((change, left.by_ref().collect()));
                    break;
                }
            }
            let written = ledger.written();
            if written < begun || written - begun >= MAX_TURN_BYTES {
                break;
            }
        }
        if let Some(key) = &key {
            key.note(ledger, changed);
        }
        left.as_slice().is_empty().then(|| {
            let decided = std::mem::take(&mut decided);
            match again {
                None => Turned::Done(decided),
                Some((change, rest)) => Turned::Partly(decided, change, rest),
            }
        })
    });
    Ok(posted.answer().await.map(|seen| seen.value))
}

/// Runs changes of ledger resources in order.
///
/// Without `atomic` each operation is independent. With it, all apply or none, in one tenant and one
/// journal record.
#[utoipa::path(post, path = "/v1/batch", tag = "operations", operation_id = "run_batch",
    request_body = Batch,
    responses((status = 200, description = "The results, in order", body = BatchResults)))]
pub(in crate::http) async fn run(
    State(app): State<Arc<App>>,
    caller: Caller,
    Arrived(body): Arrived,
) -> Answer {
    if let Some((all, fingerprint)) = short(&app, &caller, &body) {
        caller.principal.require(Operation::RunBatch)?;
        app.limits.take_operations(&caller.principal, all.len() as u64)?;
        return separate(&app, &caller, all, fingerprint).await;
    }
    let body = json::parse(&body)?;
    let fingerprint =
        caller.idempotency_key.as_ref().map(|_| fingerprint("POST", "/v1/batch", &body));
    let batch: Batch = convert(body)?;
    caller.principal.require(Operation::RunBatch)?;
    if !(1..=MAX_OPERATIONS).contains(&batch.operations.len()) {
        return Err(Failure::invalid("operations", "must have 1 to 1000 operations"));
    }
    let costs = batch.operations.iter().map(|one| cost_of(one.into(), one.body.as_ref()));
    let cost: u64 = costs.map(u64::from).sum();
    app.limits.take_operations(&caller.principal, cost)?;
    if batch.atomic {
        if cost > batch.operations.len() as u64 && cost > u64::from(MAX_ATOMIC_JOBS) {
            let reason = "an atomic batch submits at most 1000 jobs, those of arrays included; \
                          submit fewer, or without atomic";
            return Err(Failure::invalid("operations", reason));
        }
        return atomic::run(&app, &caller, &batch.operations, fingerprint).await;
    }
    let changes = batch.operations.into_iter().enumerate().map(|(place, mut operation)| {
        let body = operation.body.take().map_or_else(Body::none, Body::Tree);
        prepare(&app, &caller, place, (&operation).into(), body, fingerprint)
    });
    separate(&app, &caller, changes.collect(), fingerprint).await
}

/// Decides independent operations, under the key of the whole request if it has one.
pub(super) async fn separate(
    app: &App,
    caller: &Caller,
    changes: Vec<Requested>,
    fingerprint: Option<u128>,
) -> Answer {
    let decided =
        decide_all(app, caller.principal.tenant(), changes, BatchKey::of(caller, fingerprint))
            .await?;
    let mut results = Vec::with_capacity(decided.len());
    let mut all_replayed = true;
    for done in decided {
        all_replayed &= done.as_ref().map_or_else(|no| no.replayed, |yes| yes.replayed);
        results.push(outcome(done));
    }
    rendered(results, all_replayed).await
}

/// Decides independent operations of a dry run. The answer is the first refusal.
pub(super) async fn rehearsed(app: &App, caller: &Caller, changes: Vec<Requested>) -> Answer {
    let decided = decide_all(app, caller.principal.tenant(), changes, None).await?;
    for done in decided {
        done?;
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Renders the answer. It can be megabytes for a long batch, so it is rendered where it delays no
/// other request.
async fn rendered(results: Vec<OperationOutcome>, replayed: bool) -> Answer {
    if results.len() <= AT_ONCE {
        return Ok(finished(results, replayed));
    }
    let rendering = tokio::task::spawn_blocking(move || finished(results, replayed));
    rendering.await.map_err(|_| EngineError::Internal.into())
}

fn finished(results: Vec<OperationOutcome>, replayed: bool) -> axum::response::Response {
    let mut response = json_bytes(StatusCode::OK, results_body(&results));
    if replayed {
        response.headers_mut().insert("idempotent-replayed", HeaderValue::from_static("true"));
    }
    response
}
