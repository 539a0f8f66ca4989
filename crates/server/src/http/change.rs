//! Runs a change and turns what came of it into a response.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bursar_core::ledger::id::{Name, is_valid_name, is_valid_path};
use bursar_core::ledger::refusal::Resource;
use serde::Serialize;

use super::extract::Caller;
use crate::app::App;
use crate::operation::{Done, Plan};
use crate::problem::Failure;

/// What a handler gives.
pub(super) type Answer = Result<Response, Failure>;

/// Runs one change of the ledger.
pub(super) async fn change(app: &App, caller: &Caller, print: u128, plan: Plan) -> Answer {
    let order = plan.ordered_by(caller, print);
    order.recall(app, caller).await?;
    Ok(respond(order.post(app).answer().await?.value?))
}

/// The response to a finished change.
pub(super) fn respond(done: Done) -> Response {
    let status = StatusCode::from_u16(done.status).unwrap_or(StatusCode::OK);
    let mut response = match done.body {
        Some(body) => json(status, &body),
        None => status.into_response(),
    };
    let headers = response.headers_mut();
    headers.insert("bursar-position", HeaderValue::from(done.position));
    if done.replayed {
        headers.insert("idempotent-replayed", HeaderValue::from_static("true"));
    }
    response
}

/// A JSON body.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let bytes =
        serde_json::to_vec(body).expect("the bodies have only plain fields and string keys");
    let mut response = (status, bytes).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The id of something new: the caller's, or one that the server makes.
pub(super) fn new_id(
    app: &App,
    resource: Resource,
    id: Option<String>,
    prefix: &str,
) -> Result<(Name, (Resource, Name, bool)), Failure> {
    let chosen = id.is_some();
    let id = match id {
        Some(id) if !is_valid_name(&id) => {
            let reason = "must be 1 to 64 of the characters A-Z a-z 0-9 . _ : -";
            return Err(Failure::invalid("id", reason));
        }
        Some(id) => Name::from(id),
        None => app.ids.make(prefix, app.clock.now()),
    };
    Ok((id.clone(), (resource, id, chosen)))
}

/// An account path out of a body.
pub(super) fn account_field(path: String, field: &str) -> Result<Name, Failure> {
    if is_valid_path(&path) {
        return Ok(path.into());
    }
    let reason = "must be one to eight segments of a-z 0-9 . _ - joined by colons";
    Err(Failure::invalid(field, reason))
}

/// An account path out of the address: one that cannot exist is not found.
pub(super) fn account_path(path: String) -> Result<Name, Failure> {
    if is_valid_path(&path) { Ok(path.into()) } else { Err(Failure::not_found("account", &path)) }
}

/// An id out of the address: one that cannot exist is not found.
pub(super) fn named(what: &str, id: String) -> Result<Name, Failure> {
    if is_valid_name(&id) { Ok(id.into()) } else { Err(Failure::not_found(what, &id)) }
}
