//! Idempotent calls that a cell carries out.
//!
//! The cell stores the idempotency key in the record of the effect, and the answer before the
//! caller receives it. So a repeat gets the first answer, also after a crash anywhere in between.
//!
//! The keys of a tenant share a namespace although their scopes differ. The scope of the key that was
//! answered is stored with the answer: a key whose scope does not cover it is answered anew, with what
//! it may see, and nothing is carried out again.

use axum::body::{Body, to_bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bursar_api::Code;
use bursar_core::cell::command::{self, RequestKey};
use bursar_core::cell::jobs::idempotency::DoneRequest;
use bursar_core::cell::nodes::scope::covers;
use bursar_core::cell::{Cell, Command, Origin};
use bursar_core::ledger::Envelope;
use bursar_core::ledger::id::Name;
use serde_json::Value;

use super::respond::{Answer, at_record};
use crate::app::App;
use crate::auth::Principal;
use crate::change::{OLD_PLATFORM, PLATFORM, fingerprint, key_hash};
use crate::machines::cells::CellService;
use crate::request::{Caller, Failure, reused};

/// The largest body that is stored.
const MAX_KEPT: usize = 1 << 20;

/// The namespace of idempotency keys of calls that concern nodes and regions: the tenant of the API key.
pub(super) fn reach(principal: &Principal) -> &str {
    principal.tenant().unwrap_or(PLATFORM)
}

/// The state of a call.
pub(super) enum CallState<'a> {
    /// It was answered before, with this answer.
    Answered(Response),
    /// It has no answer yet.
    Open(IdempotentCall<'a>),
}

/// Where a cell wrote the record of a call.
pub(super) struct RecordPlace {
    machine: String,
    position: u64,
}

impl RecordPlace {
    /// A record of a cell.
    pub(super) fn of(cell: &CellService, position: u64) -> RecordPlace {
        RecordPlace { machine: format!("cell-{}", cell.region), position }
    }
}

/// A call without an answer.
pub(super) struct IdempotentCall<'a> {
    app: &'a App,
    caller: &'a Caller,
    /// The namespace of its key.
    namespace: String,
    request: Option<RequestKey>,
    /// Whether it was carried out before without an answer that this caller may have.
    pub(super) done: bool,
    /// Whether it was answered to a key whose scope this caller's does not cover.
    pub(super) of_others: bool,
}

/// Stands for the scope of a key of the platform.
const ALL_ACCOUNTS: &str = "*";

/// Whether a caller may have an answer that was given to a key of this scope. Where the scope was not
/// noted, it may have been that of the whole namespace.
fn may_have(principal: &Principal, scope: Option<&str>) -> bool {
    let given_to = match scope {
        Some(ALL_ACCOUNTS) => None,
        Some(scope) => Some(scope),
        None => principal.tenant(),
    };
    covers(principal.scope.as_deref(), given_to)
}

impl<'a> IdempotentCall<'a> {
    /// Looks up a call under its idempotency key, if it has one.
    pub(super) async fn begin(
        app: &'a App,
        caller: &'a Caller,
        scope: &str,
        body: &Value,
    ) -> Result<CallState<'a>, Failure> {
        let fingerprint = || fingerprint(caller.method.as_str(), &caller.path, body);
        let request = caller.idempotency_key.as_deref();
        let request =
            request.map(|key| RequestKey { key: key_hash(scope, key), fingerprint: fingerprint() });
        let (namespace, done, of_others) = (scope.to_owned(), false, false);
        let mut call = IdempotentCall { app, caller, namespace, request, done, of_others };
        let Some(mut request) = request else { return Ok(CallState::Open(call)) };
        app.require_unused_key(scope, &call.envelope(request)).await?;
        let mut known = call.known(request).await?.1;
        if known.is_none() && scope == PLATFORM {
            // An answer that an earlier release stored is returned again.
            let key = caller.idempotency_key.as_deref().unwrap_or_default();
            let old = RequestKey { key: key_hash(OLD_PLATFORM, key), ..request };
            let kept = call.known(old).await?.1.filter(|known| known.request == old);
            if kept.is_some() && !app.has_tenant_platform().await? {
                (known, request, call.request) = (kept, old, Some(old));
            }
        }
        match known {
            Some(known) if known.request != request => Err(reused()),
            Some(DoneRequest { answer: Some(answer), .. })
                if may_have(&caller.principal, answer.scope.as_deref()) =>
            {
                Ok(CallState::Answered(response(&answer, true)))
            }
            // A refusal cannot be answered anew: what it was about may have changed.
            Some(DoneRequest { answer: Some(answer), .. }) if answer.code >= 400 => Err(reused()),
            known => {
                call.done = known.is_some();
                call.of_others = known.is_some_and(|known| known.answer.is_some());
                Ok(CallState::Open(call))
            }
        }
    }

    fn actor(&self) -> Name {
        self.caller.principal.id.clone().into()
    }

    /// The origin of the cell's command. It has the idempotency key, so that the cell applies it
    /// once.
    pub(super) fn origin(&self) -> Origin {
        Origin::Shell { actor: self.actor(), request: self.request }
    }

    /// The envelope under which the ledger notes that the key was used.
    fn envelope(&self, request: RequestKey) -> Envelope {
        let RequestKey { key, fingerprint } = request;
        let (actor, key) = (self.actor(), Some(key));
        Envelope { actor, fingerprint, key, ..Envelope::default() }
    }

    /// The cell that has the request, or else any cell.
    async fn known(
        &self,
        request: RequestKey,
    ) -> Result<(&'a CellService, Option<DoneRequest>), Failure> {
        let mut cells = self.app.cells.iter().peekable();
        let none = || Failure::new(Code::Unavailable, "there is no region");
        let first = *cells.peek().ok_or_else(none)?;
        for cell in cells {
            let look = move |all: &Cell| all.done_request(request.key).cloned();
            if let Some(known) = cell.gateway.read(look).await?.value {
                return Ok((cell, Some(known)));
            }
        }
        Ok((first, None))
    }

    /// Stores the answer if its status is one that is stored, and returns it with the place of the
    /// record, if this call made it.
    pub(super) async fn finish(self, answer: Answer, place: Option<RecordPlace>) -> Answer {
        let answer = self.kept(answer).await?;
        let place = place.as_ref().map(|place| (place.machine.as_str(), place.position));
        Ok(at_record(answer, place))
    }

    async fn kept(self, answer: Answer) -> Answer {
        let answer = answer.unwrap_or_else(IntoResponse::into_response);
        let status = answer.status();
        let kept = status.is_success() || status == StatusCode::CONFLICT;
        let Some(request) = self.request.filter(|_| kept) else { return Ok(answer) };
        if self.of_others {
            // What is stored stays: it answers the keys that may have it.
            return Ok(replayed(answer));
        }
        let bytes = to_bytes(answer.into_body(), MAX_KEPT).await;
        let too_large = |error: axum::Error| Failure::new(Code::Unavailable, error.to_string());
        let bytes = bytes.map_err(too_large)?;
        let body = std::str::from_utf8(&bytes).ok().filter(|body| !body.is_empty());
        let scope = self.caller.principal.scope.as_deref().unwrap_or(ALL_ACCOUNTS);
        let answer = command::StoredAnswer {
            code: status.as_u16(),
            body: body.map(Into::into),
            scope: Some(scope.into()),
        };
        let (cell, _) = self.known(request).await?;
        let keep = Command::KeepAnswer(answer.clone());
        cell.gateway.post(self.origin(), keep).answer().await?.value?;
        self.app.note_key(&self.namespace, self.envelope(request)).await?;
        // A concurrent call under the same key may have been first.
        let kept = self.known(request).await?.1.and_then(|known| known.answer);
        Ok(response(&kept.map_or(answer, |kept| *kept), self.done))
    }
}

fn response(answer: &command::StoredAnswer, is_replayed: bool) -> Response {
    let status = StatusCode::from_u16(answer.code).unwrap_or(StatusCode::OK);
    let body = answer.body.as_deref().unwrap_or_default().to_owned();
    let kind = match (answer.body.is_some(), status.is_success()) {
        (false, _) => None,
        (true, true) => Some("application/json"),
        (true, false) => Some("application/problem+json"),
    };
    let mut response = (status, Body::from(body)).into_response();
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_TYPE);
    if let Some(kind) = kind {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    if is_replayed { replayed(response) } else { response }
}

fn replayed(mut response: Response) -> Response {
    response.headers_mut().insert("idempotent-replayed", HeaderValue::from_static("true"));
    response
}
