//! Many changes of the ledger in one request, independent or atomic.

mod atomic;
pub(in crate::http) mod dry_run;
mod key;
mod operations;
mod results;
mod turns;

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use bursar_api::credits::batch::{Batch, BatchResults, MAX_OPERATIONS};
use bursar_api::json::flat::Flat;
use bursar_api::json::flat_batch::FlatBatch;
use bursar_api::json::{self, convert};

use crate::app::App;
use crate::change::{Change, fingerprint, fingerprint_of};
use crate::http::extract::RawBody;
use crate::http::respond::Answer;
use crate::operations::Operation;
use crate::request::{Caller, Failure};
use key::BatchKey;
pub(super) use operations::derived_key;
use operations::{Body, cost_of, prepare};
use results::{outcome, rendered};
use turns::decide_all;

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
    RawBody(body): RawBody,
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
