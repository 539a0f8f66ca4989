//! The operations of a batch: read, checked and made into changes.

use std::borrow::Cow;

use axum::http::Method;
use bursar_api::credits::batch::Operation as BatchItem;
use bursar_api::json::flat::Flat;
use bursar_api::json::flat_batch::FlatOperation;
use bursar_api::json::{self, convert};
use bursar_core::ledger::command::Command;
use bursar_core::ledger::id::Name;
use bursar_core::ledger::refusal::Resource;
use bursar_core::name::AccountPath;
use compact_str::format_compact;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::app::App;
use crate::change::{Change, ChangePlan, fingerprint, fingerprint_of};
use crate::http::extract::is_idempotency_key;
use crate::http::handlers::accounts::{self, budgets};
use crate::http::handlers::credits::{charges, grants, holds};
use crate::http::handlers::jobs;
use crate::operations::{InBatch, Operation};
use crate::request::{Caller, Failure};

/// An operation without its body.
#[derive(Copy, Clone)]
pub(super) struct OperationFacts<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) idempotency_key: Option<&'a str>,
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
pub(super) enum Body<'a> {
    Tree(Value),
    /// With the bytes that it was parsed from.
    Flat(&'a Flat<'a>, &'a [u8]),
}

impl Body<'_> {
    pub(super) fn none() -> Body<'static> {
        Body::Tree(Value::Object(Map::new()))
    }

    pub(super) fn fingerprint(&self, operation: OperationFacts<'_>) -> u128 {
        match self {
            Body::Tree(tree) => fingerprint(operation.method, operation.path, tree),
            Body::Flat(flat, bytes) => {
                let mut canonical = Vec::with_capacity(bytes.len() + 16);
                flat.canonical(&mut canonical);
                fingerprint_of(operation.method, operation.path, &canonical)
            }
        }
    }

    pub(super) fn tree(self) -> Result<Value, Failure> {
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
pub(super) fn plan(
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

pub(in crate::http) fn decoded(segment: &str) -> Cow<'_, str> {
    if !segment.contains('%') {
        return Cow::Borrowed(segment);
    }
    // In a path these characters stand for themselves, unlike in a query.
    let escaped = segment.replace('+', "%2B").replace('&', "%26").replace('=', "%3D");
    let mut pairs = form_urlencoded::parse(escaped.as_bytes());
    pairs.next().map(|(name, _)| name.into_owned().into()).unwrap_or_default()
}

/// The caller of one operation: its own idempotency key, or one derived from the batch's.
pub(super) fn caller_of(
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
pub(in crate::http::handlers::credits) fn derived_key(key: &Name, place: usize) -> Name {
    // A key from a client cannot contain a space, so derived keys never collide with one.
    format_compact!("{key} {place}")
}

/// The resources that the batch creates so far: kind, id, account.
pub(super) type Promises = Vec<(Resource, Name, AccountPath)>;

pub(super) fn promise(command: &Command, promises: &mut Promises) {
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

pub(super) fn prepare(
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
pub(super) fn cost_of(operation: OperationFacts<'_>, body: Option<&Value>) -> u32 {
    match body.filter(|_| operation.path == "/v1/jobs") {
        Some(body) => jobs::count(body),
        None => 1,
    }
}
