//! The audit trail and its proofs.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use bursar_api::Code;
use bursar_api::list::List;
use bursar_api::system::audit::{
    AuditQuery, AuditRecord, Checkpoint, CheckpointQuery, Proof, ProofQuery,
};
use bursar_core::ledger::Ledger;
use bursar_core::ledger::id::JobNo;
use bursar_core::ledger::refusal::Resource;
use bursar_history::query::{AuditEntry, AuditFilter, Cursor};
use bursar_history::{History, HistoryError, Sqlite};

use super::trail::{self, TrailMachine, WantedRecords};
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
        about: Vec::new(),
        request_id: None,
    }
}

/// A job that the caller can see.
async fn job_of(app: &App, caller: &Caller, id: String) -> Result<JobNo, Failure> {
    let id = job_named(id)?;
    let live = match find(app, caller, Resource::Job, &id).await {
        Ok(account) => {
            let wanted = id.clone();
            let look = move |ledger: &Ledger| {
                let tenant = ledger.find_account(tenant_of(&account))?;
                ledger.find_job_or_array(tenant, &wanted)
            };
            app.ledger.peek(look).await?
        }
        Err(failure) if failure.problem.code == Code::NotFound => None,
        Err(failure) => return Err(failure),
    };
    match live {
        Some(number) => Ok(number),
        None => Ok(past_jobs::only_forgotten(app, caller, &id).await?.number),
    }
}

/// The most pages of history that one answer visits to find the records of an actor.
const MAX_PAGES: usize = 20;
/// The most records of one such page.
const MAX_PAGE: u32 = 100;

/// What a list must have besides its filter in history.
struct ListConditions {
    limit: u32,
    /// Only records after this position.
    after: u64,
    actor: Option<String>,
    commands: Option<BTreeSet<String>>,
}

/// The most commands of one filter.
const MAX_COMMANDS: usize = 20;

/// The commands of a filter.
fn commands(text: Option<&str>) -> Result<Option<BTreeSet<String>>, Failure> {
    let Some(text) = text else { return Ok(None) };
    let named: BTreeSet<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    if named.len() > MAX_COMMANDS || named.contains("") {
        return Err(Failure::invalid("command", "must be 1 to 20 names, separated by commas"));
    }
    Ok(Some(named))
}

impl ListConditions {
    fn is_meant(&self, entry: &AuditEntry) -> bool {
        let is_named = |commands: &BTreeSet<String>| {
            entry.command.is_some_and(|command| commands.contains(command.name()))
        };
        (self.actor.is_none() || entry.actor == self.actor)
            && self.commands.as_ref().is_none_or(is_named)
    }

    /// Reads a page, newest first. Once older records were left out, no later page has any.
    fn read(
        &self,
        history: &History<Sqlite>,
        filter: AuditFilter,
        mut cursor: Option<Cursor>,
    ) -> Result<(Vec<AuditEntry>, Option<Cursor>), HistoryError> {
        let (mut found, limit) = (Vec::new(), self.limit as usize);
        // Among the records of others, many are visited for one.
        let is_filtered = self.actor.is_some() || self.commands.is_some();
        let size = if is_filtered { MAX_PAGE } else { self.limit };
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
                found.extend(self.is_meant(&entry).then_some(entry));
            }
            if page.next.is_none() || found.len() == limit {
                return Ok((found, page.next));
            }
        }
        Ok((found, cursor))
    }
}

/// Commands with their actor and events, newest first: of the ledger, of a cell or of the directory.
///
/// A key with a scope sees the records of its scope, or of the named account within it. Of a cell and of
/// the directory it sees those that are about its scope alone.
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
    let commands = commands(query.command.as_deref())?;
    let machine = TrailMachine::named(&app, query.machine.as_deref())?;
    let job = match query.job {
        Some(job) => Some(job_of(&app, &caller, job).await?),
        None => None,
    };
    if let Some(machine) = machine {
        let wanted = WantedRecords {
            principal: caller.principal.clone(),
            account,
            job: job.map(|job| job.in_cell(app.shard)),
            actor: query.actor,
            commands,
            position: query.position,
            after: query.after.unwrap_or(0),
            limit: size,
        };
        return Ok(json(StatusCode::OK, &trail::page(&app, machine, wanted, cursor).await?));
    }
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
    let asked = ListConditions {
        limit: u32::try_from(size).unwrap_or(100),
        after: query.after.unwrap_or(0).max(query.position.map_or(0, |at| at.saturating_sub(1))),
        actor: query.actor,
        commands,
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

/// A signed checkpoint: the root of the whole journal of a machine.
///
/// Of another machine than the ledger it needs a key of the platform.
#[utoipa::path(get, path = "/v1/audit/checkpoint", tag = "audit", operation_id = "get_checkpoint",
    params(CheckpointQuery),
    responses((status = 200, description = "The checkpoint", body = Checkpoint)))]
pub(in crate::http) async fn get_checkpoint(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(query): Params<CheckpointQuery>,
) -> Answer {
    caller.principal.require(Operation::GetCheckpoint)?;
    let machine = TrailMachine::named(&app, query.machine.as_deref())?;
    if machine.is_some() && !caller.principal.is_of_platform() {
        let detail = "the journals of cells and of the directory belong to the platform; use a key \
                      whose scope is \"*\", or the checkpoint of the ledger";
        return Err(Failure::forbidden(detail));
    }
    let proven = prove(&app, machine.as_ref(), None).await?;
    Ok(json(StatusCode::OK, &proven.checkpoint))
}

/// A proof that a record is in the journal of a machine, against a fresh checkpoint.
#[utoipa::path(get, path = "/v1/audit/proof", tag = "audit", operation_id = "get_proof",
    params(ProofQuery), responses((status = 200, description = "The proof", body = Proof)))]
pub(in crate::http) async fn get_proof(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(query): Params<ProofQuery>,
) -> Answer {
    caller.principal.require(Operation::GetProof)?;
    let (position, machine) = (query.position, query.machine.as_deref());
    let machine = TrailMachine::named(&app, machine)?;
    let missing = || Failure::not_found("position", &position.to_string());
    if let Some(machine) = machine.as_ref().filter(|_| position > 0)
        && machine.is_secret(&app, position).await?
    {
        let detail = "this record holds a secret of the platform, which a proof would show; verify the \
                      store on its own machine with `bursar audit verify --data DIR`";
        return Err(Failure::forbidden(detail));
    }
    let proven = prove(&app, machine.as_ref(), Some(position)).await?;
    let (frame, path) = proven.inclusion.ok_or_else(missing)?;
    let proof = Proof { position, frame, path, checkpoint: proven.checkpoint };
    Ok(json(StatusCode::OK, &proof))
}

async fn prove(
    app: &App,
    machine: Option<&TrailMachine>,
    position: Option<u64>,
) -> Result<ProvenCheckpoint, Failure> {
    let key = app.signing.clone();
    match machine {
        None => {
            let seen = app.read(|_| ()).await?;
            app.history.prove(key, (seen.position, seen.at), position).await
        }
        Some(machine) => {
            let (name, journal) = (machine.name.as_str(), &machine.journal);
            app.history.prove_of((name, journal), key, app.clock.now(), position).await
        }
    }
}
