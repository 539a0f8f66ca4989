//! Heartbeats: one message to the cell resolves the node and its attempts, applies the report and
//! reads the orders, all at one instant.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use bursar_api::json::convert;
use bursar_api::nodes::node::{AttemptState, Heartbeat, HeartbeatQuery, Orders};
use bursar_core::cell::command::{self, AttemptReport, ReportState};
use bursar_core::cell::jobs::orders::Order;
use bursar_core::cell::{AttemptId, Cell, Command, NodeKey, Refusal, Reply};
use bursar_core::ledger::id::Name;
use bursar_core::time::Timestamp;
use bursar_engine::{EngineError, Seen, Transaction};

use super::agent_logs::{
    KnownAttempts, Part, add_ended_parts, attempts_with_output, known_in, parts_in, store_output,
};
use super::agent_orders::{OrdersRead, forget, wait_for_orders};
use super::agents::check_binding;
use super::names::{Resolve, likely_node, owned};
use super::origin;
use crate::app::App;
use crate::http::extract::{Params, Path, Tree};
use crate::http::respond::{Answer, json, named};
use crate::machines::cells::CellService;
use crate::operations::Operation;
use crate::render::time;
use crate::request::{Caller, Failure};
use crate::telemetry::monotonic::Stopwatch;

/// The most attempts of one report.
const MAX_REPORTS: usize = 1024;
/// The longest wait that may be requested.
const MAX_WAIT_SECONDS: u32 = 60;
/// The longest id of an attempt that is parsed.
const MAX_ID_BYTES: usize = 64;

/// Rejects a report that no agent sends.
fn check(beat: &Heartbeat) -> Result<(), Failure> {
    if beat.attempts.len() > MAX_REPORTS {
        return Err(Failure::invalid("attempts", "at most 1024 in one report"));
    }
    if beat.seq == 0 {
        return Err(Failure::invalid("seq", "counts from 1"));
    }
    if beat.attempts.iter().any(|said| said.id.len() > MAX_ID_BYTES) {
        return Err(Failure::invalid("attempts.id", "is the id of no attempt"));
    }
    Ok(())
}

/// A report in the form of the cell, and the ids in it that are not attempts of the cell.
fn report(
    (node, incarnation): (&NodeKey, u32),
    known: &KnownAttempts,
    beat: &Heartbeat,
) -> (command::Heartbeat, Vec<String>) {
    let mut reports = Vec::new();
    let mut foreign = Vec::new();
    for said in &beat.attempts {
        let Some(attempt) = known.get(&said.id).copied() else {
            foreign.push(said.id.clone());
            continue;
        };
        reports.push(AttemptReport {
            attempt,
            state: match said.state {
                AttemptState::Running => ReportState::Running,
                AttemptState::Succeeded => ReportState::Succeeded,
                AttemptState::Failed => ReportState::Failed,
                AttemptState::Stopped => ReportState::Stopped,
            },
            gpu_ms_total: said.gpu_ms_total,
            exit_code: said.exit_code,
        });
    }
    (command::Heartbeat { node: node.clone(), incarnation, seq: beat.seq, reports }, foreign)
}

/// How much more running time the report's longest-running attempt claims than the cell has
/// observed.
fn ahead_ms(all: &Cell, beat: &command::Heartbeat, now: Timestamp) -> Option<i64> {
    let running = beat.reports.iter().filter(|report| report.state == ReportState::Running);
    let ends = running.filter_map(|report| {
        let (since, devices) = all.running_since(report.attempt, &beat.node)?;
        let claimed = i64::try_from(report.gpu_ms_total / devices.max(1)).unwrap_or(i64::MAX);
        Some(since.plus_millis(claimed))
    });
    ends.max().map(|end| end.millis_since(now))
}

/// A refusal with the incarnation as it is sent to the agent.
pub(super) fn shown_refusal(cell: &CellService, refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::StaleIncarnation { current } => {
            Refusal::StaleIncarnation { current: cell.shown_incarnation(current) }
        }
        other => other,
    }
}

/// A heartbeat that a cell has applied.
struct Applied {
    known: KnownAttempts,
    said: command::Heartbeat,
    foreign: Vec<String>,
    ahead_ms: Option<i64>,
    /// The parts of the node in attempts with output or a message. Read before the report: attempts
    /// that it ends still belong to the node.
    parts: BTreeMap<AttemptId, Part>,
    reported: Result<Reply, Refusal>,
    orders: Result<Vec<Order>, Refusal>,
}

/// Applies a heartbeat in one message. Returns nothing if the cell has no such node, or the caller
/// may not change it.
async fn apply(
    app: &App,
    caller: &Caller,
    (cell, key): (&CellService, &NodeKey),
    beat: &Arc<Heartbeat>,
) -> Result<Option<Seen<Applied>>, Failure> {
    let (ids, number, key) = (app.attempt_ids, cell.number, key.clone());
    let incarnation = cell.known_incarnation(beat.incarnation);
    let (principal, origin, beat) = (caller.principal.clone(), origin(caller), Arc::clone(beat));
    let work = move |cell: &mut dyn Transaction<Cell>| {
        let all = cell.machine();
        let scope = all.node_named(&key)?.offer.scope.as_deref();
        if !principal.sees_node(scope) || !principal.owns_node(scope) {
            return None;
        }
        let said = beat.attempts.iter().map(|said| said.id.as_str());
        let known = known_in(all, ids, (number, &key), said);
        let (said, foreign) = report((&key, incarnation), &known, &beat);
        let ahead_ms = ahead_ms(all, &said, cell.now());
        let parts = parts_in(all, &key, attempts_with_output(&known, &beat));
        let reported = match cell.execute(&origin, &Command::Heartbeat(said.clone())) {
            Ok(reported) => reported,
            Err(error) => return Some(Err(error)),
        };
        let orders = cell.machine().orders(&said);
        Some(Ok(Applied { known, said, foreign, ahead_ms, parts, reported, orders }))
    };
    let Seen { value, position, at } = cell.gateway.transact(work).answer().await?;
    let applied: Option<Result<Applied, EngineError>> = value;
    let applied = applied.transpose().map_err(Failure::from)?;
    Ok(applied.map(|value| Seen { value, position, at }))
}

/// Finds the node and applies its heartbeat. The cell is known if there is one region, or the key
/// is bound to one. Otherwise the cells are asked which of them has the node.
async fn find_and_apply<'a>(
    app: &'a App,
    caller: &Caller,
    id: &Name,
    beat: &Arc<Heartbeat>,
) -> Result<(&'a CellService, Seen<Applied>), Failure> {
    let valid = check(beat);
    if valid.is_ok()
        && let Some((cell, key)) = likely_node(app, caller, id)
        && check_binding(caller, &cell.region, id).is_ok()
        && let Some(applied) = apply(app, caller, (cell, &key), beat).await?
    {
        return Ok((cell, applied));
    }
    let found = owned(app, caller, id, Resolve::OwnFirst).await?;
    check_binding(caller, &found.cell.region, id)?;
    valid?;
    let applied = apply(app, caller, (found.cell, &found.key), beat).await?;
    Ok((found.cell, applied.ok_or_else(|| Failure::not_found("node", id))?))
}

/// Sends a heartbeat of a node and returns its orders.
#[utoipa::path(post, path = "/v1/nodes/{id}/heartbeat", tag = "nodes",
    operation_id = "heartbeat_node",
    params(("id" = String, Path, description = "The node's name"), HeartbeatQuery),
    request_body = Heartbeat,
    responses((status = 200, description = "The orders", body = Orders)))]
pub(in crate::http) async fn heartbeat(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Params(query): Params<HeartbeatQuery>,
    Tree(body): Tree,
) -> Answer {
    let beat: Arc<Heartbeat> = Arc::new(convert(body)?);
    if query.wait_seconds.is_some_and(|seconds| seconds > MAX_WAIT_SECONDS) {
        return Err(Failure::invalid("wait_seconds", "must be at most 60"));
    }
    caller.principal.require(Operation::HeartbeatNode)?;
    let id = named("node", id)?;
    let watch = Stopwatch::start();
    let (cell, Seen { value, position, at }) = find_and_apply(&app, &caller, &id, &beat).await?;
    let Applied { known, said, foreign, ahead_ms, mut parts, reported, orders } = value;
    let reported = reported.map_err(|refusal| shown_refusal(cell, refusal))?;
    let Reply::Reported { lease_until } = reported else {
        unreachable!("a report is answered with the lease")
    };
    app.metrics.heartbeat(&cell.region, watch.elapsed(), ahead_ms);
    add_ended_parts(&app, cell, &said.node, attempts_with_output(&known, &beat), &mut parts)
        .await?;
    store_output(&app, cell, &said.node, (&beat, &known), &parts);
    app.quiesce_if_manual().await?;
    // With a manual clock, messages that the report caused have been delivered since.
    let read = app.manual.is_none().then_some(OrdersRead { orders, at, position });
    let wait = Duration::from_secs(query.wait_seconds.unwrap_or(0).into());
    let wait = if foreign.is_empty() { wait } else { Duration::ZERO };
    let asked = (&said, &known);
    let mut orders = wait_for_orders(&app, &caller.principal, cell, asked, (wait, read)).await?;
    orders.extend(foreign.into_iter().map(forget));
    Ok(json(StatusCode::OK, &Orders { orders, lease_until: time(lease_until) }))
}
