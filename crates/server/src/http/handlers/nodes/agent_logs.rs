//! The output of jobs and the final messages of agents. A node reports only on its own attempts;
//! anything about others is dropped.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bursar_api::Code;
use bursar_api::json::convert;
use bursar_api::nodes::node::{Heartbeat, LogChunk, LogKept};
use bursar_core::cell::{AttemptId, Cell, JobId, NodeKey};
use bursar_core::ledger::Ledger;
use bursar_core::ledger::id::CellNo;

use super::agents::check_binding;
use super::names::{Resolve, owned};
use crate::app::App;
use crate::auth::tenant_of;
use crate::http::extract::{Path, Tree};
use crate::http::respond::{Answer, json, named};
use crate::ids::attempt::{AttemptIds, read_stored, stored};
use crate::logs::{FULL_RETRY_SECONDS, LogError, MAX_PIECE_BYTES, NodeTag, Output, TenantTag};
use crate::machines::cells::CellService;
use crate::operations::Operation;
use crate::request::{Caller, Failure};

/// Attempts of a cell by the ids that an agent uses.
pub(in crate::http) type KnownAttempts = BTreeMap<String, AttemptId>;

/// Resolves ids to attempts of a cell. An agent knows attempts that were started before the store
/// had a secret under their stored ids and continues to use them.
pub(super) async fn known_attempts<'a>(
    app: &App,
    cell: &CellService,
    node: &NodeKey,
    ids: impl IntoIterator<Item = &'a str>,
) -> Result<KnownAttempts, Failure> {
    let ids: Vec<String> = ids.into_iter().map(str::to_owned).collect();
    let (names, number, node) = (app.attempt_ids, cell.number, node.clone());
    let look =
        move |all: &Cell| known_in(all, names, (number, &node), ids.iter().map(String::as_str));
    Ok(cell.gateway.read(look).await?.value)
}

/// Like [`known_attempts`], on a given state of the cell.
pub(super) fn known_in<'a>(
    all: &Cell,
    names: AttemptIds,
    (number, node): (CellNo, &NodeKey),
    ids: impl IntoIterator<Item = &'a str>,
) -> KnownAttempts {
    let own = |(at, attempt): (u16, AttemptId)| (at == number.0).then_some(attempt);
    let earlier = |id| {
        let attempt = read_stored(id).and_then(own)?;
        all.holds_since_before(names.since(), attempt, node).then_some(attempt)
    };
    let ids = ids.into_iter().filter_map(|id| {
        let attempt = names.read(id).and_then(own).or_else(|| earlier(id))?;
        Some((id.to_owned(), attempt))
    });
    ids.collect()
}

/// A node's part in an attempt.
#[derive(Copy, Clone, Debug)]
pub(in crate::http) struct Part {
    /// The rank of the node in the attempt.
    rank: u32,
    /// The tenant of the job.
    tenant: TenantTag,
}

/// The rank of a node, by its full name, among the present and past nodes of an attempt.
pub(super) fn rank_in(
    ledger: &Ledger,
    cell: CellNo,
    attempt: AttemptId,
    node: &str,
) -> Option<u32> {
    let mut attempts = ledger.job(ledger.job_of_cells(attempt.job)?)?.attempts.iter();
    let known =
        attempts.find(|known| known.cell == Some(cell) && known.number == attempt.number)?;
    let rank = known.nodes.iter().position(|on| on.node == node)?;
    u32::try_from(rank).ok()
}

/// Of these attempts, those in which a node has or had a part.
pub(in crate::http) async fn parts(
    app: &App,
    cell: &CellService,
    node: &NodeKey,
    attempts: Vec<AttemptId>,
) -> Result<BTreeMap<AttemptId, Part>, Failure> {
    if attempts.is_empty() {
        return Ok(BTreeMap::new());
    }
    let (own, asked) = (node.clone(), attempts.clone());
    let look = move |all: &Cell| parts_in(all, &own, asked);
    let mut parts = cell.gateway.read(look).await?.value;
    add_ended_parts(app, cell, node, attempts, &mut parts).await?;
    Ok(parts)
}

/// The parts of a node in attempts that have not ended: the cell has them.
pub(super) fn parts_in(
    all: &Cell,
    node: &NodeKey,
    attempts: Vec<AttemptId>,
) -> BTreeMap<AttemptId, Part> {
    let parts = attempts.into_iter().filter_map(|id| {
        let tenant = TenantTag::of(tenant_of(&all.job_spec(id.job)?.account));
        Some((id, Part { rank: all.rank_of(id, node)?, tenant }))
    });
    parts.collect()
}

/// Adds the parts of a node in attempts that have ended: the ledger has them.
pub(super) async fn add_ended_parts(
    app: &App,
    cell: &CellService,
    node: &NodeKey,
    attempts: Vec<AttemptId>,
    parts: &mut BTreeMap<AttemptId, Part>,
) -> Result<(), Failure> {
    let rest: Vec<AttemptId> =
        attempts.into_iter().filter(|attempt| !parts.contains_key(attempt)).collect();
    if !rest.is_empty() {
        let (number, full) = (cell.number, node.full());
        let jobs: Vec<JobId> = rest.iter().map(|attempt| attempt.job).collect();
        let look = move |ledger: &Ledger| {
            let parts = rest.iter().filter_map(|id| {
                let id = *id;
                let account = ledger.job(ledger.job_of_cells(id.job)?)?.order.account;
                let tenant = TenantTag::of(tenant_of(&ledger.account(account).path));
                Some((id, Part { rank: rank_in(ledger, number, id, &full)?, tenant }))
            });
            parts.collect::<Vec<_>>()
        };
        parts.extend(app.read_jobs(jobs.into_iter(), look).await?.into_iter().flatten());
    }
    Ok(())
}

/// The attempts of a report that come with output or a message.
pub(super) fn attempts_with_output(known: &KnownAttempts, beat: &Heartbeat) -> Vec<AttemptId> {
    let said = beat.attempts.iter();
    let said = said.filter(|said| said.message.is_some() || said.log_tail.is_some());
    said.filter_map(|said| known.get(&said.id).copied()).collect()
}

/// Stores the output and messages of a report. Losing them loses no credits.
pub(super) fn store_output(
    app: &App,
    cell: &CellService,
    node: &NodeKey,
    (beat, known): (&Heartbeat, &KnownAttempts),
    parts: &BTreeMap<AttemptId, Part>,
) {
    let node = NodeTag::of(&cell.region, node);
    for said in &beat.attempts {
        let attempt = known.get(&said.id).copied();
        let Some((attempt, part)) = attempt.and_then(|id| Some((id, *parts.get(&id)?))) else {
            continue;
        };
        let Part { rank, tenant } = part;
        let stored = stored(cell.number.0, attempt);
        let noted = match said.message.as_deref() {
            Some(text) => app.logs.note(node, tenant, &stored, text),
            None => Ok(()),
        };
        let kept = match said.log_tail.as_deref() {
            Some(tail) => app.logs.tail(Output { attempt: stored, rank, node, tenant }, tail),
            None => Ok(()),
        };
        if let Err(error) = noted.and(kept) {
            tracing::warn!(%error, attempt = %said.id, "output or a message of an agent was not stored");
        }
    }
}

/// Stores output of an attempt.
#[utoipa::path(post, path = "/v1/nodes/{id}/logs", tag = "nodes", operation_id = "send_node_log",
    params(("id" = String, Path, description = "The node's name")), request_body = LogChunk,
    responses((status = 200, description = "The offset of the next part", body = LogKept)))]
pub(in crate::http) async fn logs(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Tree(body): Tree,
) -> Answer {
    let chunk: LogChunk = convert(body)?;
    caller.principal.require(Operation::SendNodeLog)?;
    let id = named("node", id)?;
    let found = owned(&app, &caller, &id, Resolve::OwnFirst).await?;
    let (cell, node) = (found.cell, found.key);
    check_binding(&caller, &cell.region, &id)?;
    let data = BASE64.decode(&chunk.data);
    let data = data.map_err(|_| Failure::invalid("data", "must be base64 with padding"))?;
    if data.len() > MAX_PIECE_BYTES {
        return Err(Failure::invalid("data", "at most 1 MiB at once; send it in pieces"));
    }
    let missing = || Failure::not_found("attempt", &chunk.attempt);
    let known = known_attempts(&app, cell, &node, [chunk.attempt.as_str()]).await?;
    let attempt = *known.get(&chunk.attempt).ok_or_else(missing)?;
    let own = node.clone();
    let current = cell.gateway.read(move |all: &Cell| all.node_named(&own).map(|n| n.incarnation));
    let current = current.await?.value.unwrap_or(0);
    if cell.known_incarnation(chunk.incarnation) != current {
        let shown = cell.shown_incarnation(current);
        let detail = format!("the current incarnation is {shown}; register again");
        return Err(Failure::new(Code::StaleIncarnation, detail));
    }
    let parts = parts(&app, cell, &node, vec![attempt]).await?;
    let Part { rank, tenant } = *parts.get(&attempt).ok_or_else(missing)?;
    let (attempt, node) = (stored(cell.number.0, attempt), NodeTag::of(&cell.region, &node));
    let output = Output { attempt, rank, node, tenant };
    let next_offset = app.logs.append(output, chunk.offset, data).await.map_err(refused)?;
    Ok(json(StatusCode::OK, &LogKept { next_offset }))
}

/// The failure for output that was not stored.
fn refused(error: LogError) -> Failure {
    let code = match &error {
        LogError::TooFast(_) => Code::RateLimited,
        LogError::Busy => Code::Unavailable,
        LogError::NoRoom | LogError::Disk(_) => Code::StorageFull,
    };
    let failure = Failure::new(code, error.to_string());
    match error {
        LogError::TooFast(seconds) => failure.retry_after(seconds),
        LogError::NoRoom => failure.retry_after(FULL_RETRY_SECONDS),
        LogError::Busy | LogError::Disk(_) => failure,
    }
}
