//! The audit trail and its proofs.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use bursar_api::Code;
use bursar_api::list::List;
use bursar_api::system::audit::{AuditQuery, AuditRecord, Checkpoint, Proof, ProofQuery};
use bursar_core::ledger::Ledger;
use bursar_core::ledger::id::JobNo;
use bursar_core::ledger::refusal::Resource;
use bursar_history::query::{AuditEntry, AuditFilter};

use crate::app::App;
use crate::auth::tenant_of;
use crate::change::find;
use crate::followers::checkpoint::ProvenCheckpoint;
use crate::followers::past_jobs;
use crate::http::extract::Params;
use crate::http::list::page_size;
use crate::http::respond::{Answer, job_named, json};
use crate::operations::Operation;
use crate::render::time;
use crate::request::{Caller, Failure};

fn record(entry: AuditEntry) -> AuditRecord {
    AuditRecord {
        position: entry.position,
        item: entry.item,
        at: time(entry.at),
        actor: entry.actor,
        command: entry.command.map(|command| command.name().to_owned()),
        refusal: entry.refusal.map(|refusal| refusal.name().to_owned()),
        events: entry.events,
    }
}

/// A job that the caller can see.
async fn job_of(app: &App, caller: &Caller, id: String) -> Result<JobNo, Failure> {
    let id = job_named(id)?;
    let account = match find(app, caller, Resource::Job, &id).await {
        Ok(account) => account,
        Err(failure) if failure.problem.code == Code::NotFound => {
            return Ok(past_jobs::only_forgotten(app, caller, &id).await?.number);
        }
        Err(failure) => return Err(failure),
    };
    let missing = Failure::not_found("job", &id);
    let look = move |ledger: &Ledger| {
        ledger
            .find_account(tenant_of(&account))
            .and_then(|tenant| ledger.find_job_or_array(tenant, &id))
    };
    app.ledger.peek(look).await?.ok_or(missing)
}

/// Commands with their actor and events, newest first.
///
/// A key with a scope sees the records of its scope, or of the named account within it.
#[utoipa::path(get, path = "/v1/audit", tag = "audit", operation_id = "list_audit",
    params(AuditQuery),
    responses((status = 200, description = "A page of records", body = List<AuditRecord>)))]
pub(in crate::http) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(query): Params<AuditQuery>,
) -> Answer {
    let size = page_size(query.limit)?;
    let cursor = match query.cursor.as_deref().map(str::parse) {
        Some(Ok(cursor)) => Some(cursor),
        Some(Err(_)) => {
            return Err(Failure::invalid("cursor", "pass the next_cursor of the page before"));
        }
        None => None,
    };
    let scope = caller.principal.scope.as_ref().map(ToString::to_string);
    let account = app.listed_account(&caller, query.account.or(scope)).await?;
    caller.principal.require(Operation::ListAudit)?;
    let job = match query.job {
        Some(job) => Some(job_of(&app, &caller, job).await?),
        None => None,
    };
    let seen = app.read(move |ledger| account.and_then(|path| ledger.find_account(&path))).await?;
    let filter = match (job, seen.value) {
        (Some(job), _) => AuditFilter::Job(job),
        (None, Some(account)) => AuditFilter::Account(account.0),
        (None, None) => AuditFilter::Everything,
    };
    let limit = u32::try_from(size).unwrap_or(100);
    let ask = app.history.ask(seen.position, move |history| history.audit(filter, cursor, limit));
    let (page, position) = ask.await?;
    let after = query.after.unwrap_or(0);
    let count = page.data.len();
    let data: Vec<AuditRecord> =
        page.data.into_iter().filter(|entry| entry.position > after).map(record).collect();
    // Newest first: once older records were left out, no later page has any.
    let next_cursor = page.next.filter(|_| data.len() == count).map(|cursor| cursor.to_string());
    let (as_of, position) = (Some(time(seen.at)), Some(position));
    let has_more = next_cursor.is_some();
    Ok(json(StatusCode::OK, &List { data, has_more, next_cursor, as_of, position }))
}

/// A signed checkpoint: the root of the whole journal.
#[utoipa::path(get, path = "/v1/audit/checkpoint", tag = "audit", operation_id = "get_checkpoint",
    responses((status = 200, description = "The checkpoint", body = Checkpoint)))]
pub(in crate::http) async fn get_checkpoint(State(app): State<Arc<App>>, caller: Caller) -> Answer {
    caller.principal.require(Operation::GetCheckpoint)?;
    let proven = prove(&app, None).await?;
    Ok(json(StatusCode::OK, &proven.checkpoint))
}

/// A proof that a record is in the journal, against a fresh checkpoint.
#[utoipa::path(get, path = "/v1/audit/proof", tag = "audit", operation_id = "get_proof",
    params(ProofQuery), responses((status = 200, description = "The proof", body = Proof)))]
pub(in crate::http) async fn get_proof(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(query): Params<ProofQuery>,
) -> Answer {
    caller.principal.require(Operation::GetProof)?;
    let position = query.position;
    let proven = prove(&app, Some(position)).await?;
    let (frame, path) =
        proven.inclusion.ok_or_else(|| Failure::not_found("position", &position.to_string()))?;
    let proof = Proof { position, frame, path, checkpoint: proven.checkpoint };
    Ok(json(StatusCode::OK, &proof))
}

async fn prove(app: &App, position: Option<u64>) -> Result<ProvenCheckpoint, Failure> {
    let seen = app.read(|_| ()).await?;
    app.history.prove(app.signing.clone(), (seen.position, seen.at), position).await
}
