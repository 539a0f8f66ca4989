//! Runs a change and renders its response.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bursar_core::ledger::id::Name;
use bursar_core::ledger::refusal::Resource;
use bursar_core::name::{AccountPath, JobName, NAME_FORM, is_valid_name};
use futures_util::future::Either;
use serde::Serialize;

use crate::app::App;
use crate::change::{Change, ChangePlan, Decision, Done, Uncounted};
use crate::ids::is_of_job;
use crate::request::{Caller, Failure};

/// Most bodies are smaller than this.
pub(super) const DEFAULT_BODY: usize = 640;

/// The result of a handler.
pub(super) type Answer = Result<Response, Failure>;

/// The position in the journal that the answer is based on.
pub(super) const POSITION: HeaderName = HeaderName::from_static("bursar-position");
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Runs one change of the ledger. A change that needs nothing else is posted at once, so that the
/// future that waits for the answer is small.
pub(super) fn change(
    app: &App,
    caller: Caller,
    print: u128,
    plan: ChangePlan,
) -> impl Future<Output = Answer> + Send + use<'_> {
    let mut change = plan.requested_by(caller, print);
    let posted = match change.must_recall(app) {
        false if !change.must_count() => Either::Left(change.post(app)),
        must_recall => Either::Right(Box::pin(async move {
            if !must_recall {
                return decide(app, change).await;
            }
            match change.recalled(app).await? {
                Ok(change) => decide(app, change).await,
                Err(done) => Ok(Decision::Done(Ok(done))),
            }
        })),
    };
    async move {
        let decision = match posted {
            Either::Left(posted) => posted.answer().await?.value,
            Either::Right(recalling) => recalling.await?,
        };
        let done = match decision {
            Decision::Done(done) => done?,
            Decision::LookAgain(change) => Box::pin(look_again(app, *change)).await?,
        };
        Ok(respond(done))
    }
}

/// Decides a change of which everything is known that the archive has.
async fn decide(app: &App, change: Change) -> Result<Decision, Failure> {
    if !change.must_count() {
        return Ok(change.post(app).answer().await?.value);
    }
    let change = match change.post_uncounted(app).answer().await?.value {
        Uncounted::Decided(decision) => return Ok(decision),
        Uncounted::Returned(change) => change,
    };
    let place = app.counting.enter(change.tenant(), 1).await?;
    Ok(change.post_counted(app, place).answer().await?.value)
}

/// Decides the change. While something that it needs was forgotten since the last look-up, looks it up and decides
/// again.
async fn look_again(app: &App, change: Change) -> Result<Done, Failure> {
    let mut change = change;
    loop {
        change = match known(app, change).await? {
            Ok(change) => change,
            Err(done) => return Ok(done),
        };
        match decide(app, change).await? {
            Decision::Done(done) => return done,
            Decision::LookAgain(again) => change = *again,
        }
    }
}

/// The change with what the archive has for it, or the answer to the earlier request.
pub(super) async fn known(app: &App, mut change: Change) -> Result<Result<Change, Done>, Failure> {
    if change.must_recall(app) { change.recalled(app).await } else { Ok(Ok(change)) }
}

/// The response to a finished change.
pub(super) fn respond(done: Done) -> Response {
    let status = StatusCode::from_u16(done.status).unwrap_or(StatusCode::OK);
    let mut response = match done.body {
        Some(body) => {
            let mut bytes = Vec::with_capacity(DEFAULT_BODY);
            body.write(&mut bytes);
            json_bytes(status, bytes)
        }
        None => status.into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(POSITION, HeaderValue::from(done.position));
    if done.replayed {
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    response
}

/// Notes where the record of a change is, of a machine other than the ledger: `cell-eu:45`.
pub(super) fn at_record(mut response: Response, record: Option<(&str, u64)>) -> Response {
    let value = record.map(|(machine, position)| format!("{machine}:{position}"));
    if let Some(value) = value.and_then(|text| HeaderValue::from_str(&text).ok()) {
        response.headers_mut().insert(POSITION, value);
    }
    response
}

/// A JSON body.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let mut bytes = Vec::with_capacity(DEFAULT_BODY);
    serde_json::to_writer(&mut bytes, body)
        .expect("the bodies have only plain fields and string keys");
    json_bytes(status, bytes)
}

/// A response with serialized JSON.
pub(super) fn json_bytes(status: StatusCode, bytes: Vec<u8>) -> Response {
    let mut response = Response::new(bytes.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The id of a new resource: the caller's, or a generated one.
pub(super) fn new_id(
    app: &App,
    resource: Resource,
    id: Option<String>,
    prefix: &str,
) -> Result<(Name, (Resource, Name, bool)), Failure> {
    let chosen = id.is_some();
    let id = match id {
        Some(id) if !is_valid_name(&id) => {
            return Err(Failure::invalid("id", NAME_FORM));
        }
        Some(id) if resource == Resource::Hold && is_of_job(&id) => {
            let reason = "ids that begin like this belong to the holds of a job; choose another";
            return Err(Failure::invalid("id", reason));
        }
        Some(id) => Name::from(id),
        None => app.ids.make(prefix, app.clock.now()),
    };
    Ok((id.clone(), (resource, id, chosen)))
}

/// A name from the path under which a resource is set. It must be valid.
pub(super) fn new_name(name: String) -> Result<Name, Failure> {
    if is_valid_name(&name) { Ok(name.into()) } else { Err(Failure::invalid("name", NAME_FORM)) }
}

/// An account path from a body.
pub(super) fn account_field(path: String, field: &str) -> Result<AccountPath, Failure> {
    if AccountPath::is_valid(&path) {
        return Ok(path.into());
    }
    let reason = "must be one to eight segments of a-z 0-9 . _ - joined by colons";
    Err(Failure::invalid(field, reason))
}

/// An account path from the URL. A path that cannot exist is not found.
pub(super) fn account_path(path: String) -> Result<AccountPath, Failure> {
    if AccountPath::is_valid(&path) {
        Ok(path.into())
    } else {
        Err(Failure::not_found("account", &path))
    }
}

/// The id of a job or of an array from the URL.
pub(super) fn job_named(id: String) -> Result<Name, Failure> {
    if JobName::is_valid(&id) { Ok(id.into()) } else { Err(Failure::not_found("job", &id)) }
}

/// An id from the URL. An id that cannot exist is not found.
pub(super) fn named(what: &str, id: String) -> Result<Name, Failure> {
    if is_valid_name(&id) { Ok(id.into()) } else { Err(Failure::not_found(what, &id)) }
}
