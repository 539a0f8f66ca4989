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
use bursar_history::query::{AuditEntry, AuditFilter, Cursor};
use bursar_history::{History, HistoryError, Sqlite};

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

/// The most pages of history that one answer visits to find the records of an actor.
const MAX_PAGES: usize = 20;
/// The most records of one such page.
const MAX_PAGE: u32 = 100;

/// What a list must have besides its filter in history.
struct Asked {
    limit: u32,
    /// Only records after this position.
    after: u64,
    actor: Option<String>,
}

impl Asked {
    /// Reads a page, newest first. Once older records were left out, no later page has any.
    fn read(
        &self,
        history: &History<Sqlite>,
        filter: AuditFilter,
        mut cursor: Option<Cursor>,
    ) -> Result<(Vec<AuditEntry>, Option<Cursor>), HistoryError> {
        let (mut found, limit) = (Vec::new(), self.limit as usize);
        // Among the records of others, many are visited for one.
        let size = if self.actor.is_some() { MAX_PAGE } else { self.limit };
        for _ in 0..MAX_PAGES {
            let page = history.audit(filter, cursor, size)?;
            for entry in page.data {
                if entry.position <= self.after {
                    return Ok((found, None));
                }
                if found.len() == limit {
                    return Ok((found, cursor));
                }
                cursor = Some(entry.cursor());
                let is_meant = self.actor.is_none() || entry.actor == self.actor;
                found.extend(is_meant.then_some(entry));
            }
            if page.next.is_none() || found.len() == limit {
                return Ok((found, page.next));
            }
        }
        Ok((found, cursor))
    }
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
    let wanted = account.clone();
    let look = move |ledger: &Ledger| wanted.and_then(|path| ledger.find_account(&path));
    let seen = app.read(look).await?;
    let filter = match (job, seen.value, &account) {
        (Some(job), _, _) => AuditFilter::Job(job),
        (None, Some(account), _) => AuditFilter::Account(account.0),
        // No number means all accounts, so an account without one must not come this far.
        (None, None, Some(path)) => return Err(Failure::not_found("account", path)),
        (None, None, None) => AuditFilter::Everything,
    };
    let asked = Asked {
        limit: u32::try_from(size).unwrap_or(100),
        after: query.after.unwrap_or(0).max(query.position.map_or(0, |at| at.saturating_sub(1))),
        actor: query.actor,
    };
    let cursor = match query.position {
        // From the end of the record on. A cursor of an earlier page is within it.
        Some(at) => cursor.or_else(|| Some(Cursor::before_record(at))),
        None => cursor,
    };
    let ask = app.history.ask(seen.position, move |history| asked.read(history, filter, cursor));
    let ((data, next), position) = ask.await?;
    let data: Vec<AuditRecord> = data.into_iter().map(record).collect();
    let next_cursor = next.map(|cursor| cursor.to_string());
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
