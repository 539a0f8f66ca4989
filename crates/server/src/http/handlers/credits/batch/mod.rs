//! Many changes of the ledger in one request, independent or atomic.

mod atomic;
pub(in crate::http) mod dry_run;
mod key;
mod operations;
mod results;
mod turns;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use bursar_api::credits::batch::{Batch, BatchResults, MAX_OPERATIONS};
use bursar_api::json::flat::Flat;
use bursar_api::json::flat_batch::FlatBatch;
use bursar_api::json::{self, convert};
use bursar_engine::EngineError;

use crate::app::App;
use crate::auth::Principal;
use crate::change::{Change, fingerprint, fingerprint_of};
use crate::http::extract::RawBody;
use crate::http::respond::Answer;
use crate::http::shards::HomesOfParts;
use crate::operations::Operation;
use crate::request::{Caller, Failure};
use key::BatchKey;
pub(in crate::http) use operations::decoded;
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

fn cost_of_all(batch: &Batch) -> u64 {
    let costs = batch.operations.iter().map(|one| cost_of(one.into(), one.body.as_ref()));
    costs.map(u64::from).sum()
}

/// Refuses a batch that its caller may not run now, and counts its operations.
pub(in crate::http) fn admit(
    app: &App,
    principal: &Principal,
    batch: &Batch,
) -> Result<(), Failure> {
    principal.require(Operation::RunBatch)?;
    if !(1..=MAX_OPERATIONS).contains(&batch.operations.len()) {
        return Err(Failure::invalid("operations", "must have 1 to 1000 operations"));
    }
    app.limits.take_operations(principal, cost_of_all(batch))
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
    homes: HomesOfParts,
    RawBody(body): RawBody,
) -> Answer {
    if !homes.are_several()
        && let Some((all, fingerprint)) = short(&app, &caller, &body)
    {
        caller.principal.require(Operation::RunBatch)?;
        if !homes.are_counted() {
            app.limits.take_operations(&caller.principal, all.len() as u64)?;
        }
        return separate(&app, &caller, all, fingerprint).await;
    }
    let body = json::parse(&body)?;
    let fingerprint =
        caller.idempotency_key.as_ref().map(|_| fingerprint("POST", "/v1/batch", &body));
    let batch: Batch = convert(body)?;
    if !homes.are_counted() {
        admit(&app, &caller.principal, &batch)?;
    }
    if batch.atomic {
        let cost = cost_of_all(&batch);
        if let Some(failure) = homes.failure() {
            return Err(failure);
        }
        if homes.are_several() {
            let reason = "an atomic batch changes accounts of one ledger shard, and these belong to several: \
                          send one batch for each org";
            return Err(Failure::invalid("operations", reason));
        }
        if cost > batch.operations.len() as u64 && cost > u64::from(MAX_ATOMIC_JOBS) {
            let reason = "an atomic batch submits at most 1000 jobs, those of arrays included; \
                          submit fewer, or without atomic";
            return Err(Failure::invalid("operations", reason));
        }
        return atomic::run(&app, &caller, &batch.operations, fingerprint).await;
    }
    if !homes.are_several() {
        let changes = batch.operations.into_iter().enumerate().map(|(place, mut operation)| {
            let body = operation.body.take().map_or_else(Body::none, Body::Tree);
            prepare(&app, &caller, place, (&operation).into(), body, fingerprint)
        });
        return separate(&app, &caller, changes.collect(), fingerprint).await;
    }
    let shards: Vec<App> = app.every_shard().collect();
    let mut changes = Vec::with_capacity(batch.operations.len());
    for (place, mut operation) in batch.operations.into_iter().enumerate() {
        let home = match homes.of(place) {
            Ok(home) => home,
            Err(failure) => {
                changes.push((0, Err(failure)));
                continue;
            }
        };
        let own = shards.get(usize::from(home)).unwrap_or(&app);
        let body = operation.body.take().map_or_else(Body::none, Body::Tree);
        let change = prepare(own, &caller, place, (&operation).into(), body, fingerprint);
        changes.push((home, change));
    }
    separate_in_shards(&shards, &caller, changes, fingerprint).await
}

/// Decides independent changes of several shards, each in its own, and renders their answers in order. Those of one shard
/// are decided before those of the next.
pub(super) async fn separate_in_shards(
    shards: &[App],
    caller: &Caller,
    changes: Vec<(u16, Requested)>,
    fingerprint: Option<u128>,
) -> Answer {
    let mut results = BTreeMap::new();
    let mut all_replayed = true;
    let mut left: BTreeMap<u16, Vec<(usize, Requested)>> = BTreeMap::new();
    for (place, (home, change)) in changes.into_iter().enumerate() {
        left.entry(home).or_default().push((place, change));
    }
    for (home, own) in left {
        let app = shards.get(usize::from(home)).ok_or(EngineError::Unavailable(String::new()))?;
        let (places, own): (Vec<usize>, Vec<Requested>) = own.into_iter().unzip();
        match decide_all(app, None, own, BatchKey::of(caller, fingerprint)).await {
            Ok(decided) => {
                for (place, done) in places.into_iter().zip(decided) {
                    all_replayed &= done.as_ref().map_or_else(|no| no.replayed, |yes| yes.replayed);
                    results.insert(place, outcome(done));
                }
            }
            // Nothing was decided yet.
            Err(failure) if results.is_empty() => return Err(failure),
            Err(failure) => {
                all_replayed = false;
                let failed = |place| (place, outcome(Err(failure.clone())));
                results.extend(places.into_iter().map(failed));
            }
        }
    }
    rendered(results.into_values().collect(), all_replayed).await
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
