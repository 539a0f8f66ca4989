//! The answer of a batch: the result of each operation, in order.

use axum::http::{HeaderValue, StatusCode};
use bursar_api::credits::batch::OperationResult;
use bursar_engine::EngineError;
use serde_json::Value;

use super::turns::MAX_TURN_CHANGES;
use crate::change::Done;
use crate::http::respond::{Answer, DEFAULT_BODY, json_bytes};
use crate::render::AnswerBody;
use crate::request::Failure;

/// The result of one operation.
pub(super) struct OperationOutcome {
    pub(super) status: u16,
    pub(super) body: AnswerBody,
}

pub(super) fn outcome(done: Result<Done, Failure>) -> OperationOutcome {
    match done {
        Ok(done) => {
            let body = done.body.unwrap_or(AnswerBody::Other(Value::Null));
            OperationOutcome { status: done.status, body }
        }
        Err(failure) => {
            let OperationResult { status, body } = failed(failure);
            OperationOutcome { status, body: AnswerBody::Other(body) }
        }
    }
}

pub(super) fn failed(failure: Failure) -> OperationResult {
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

/// Renders the answer. It can be megabytes for a long batch, so it is rendered where it delays no
/// other request.
pub(super) async fn rendered(results: Vec<OperationOutcome>, replayed: bool) -> Answer {
    if results.len() <= MAX_TURN_CHANGES {
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
