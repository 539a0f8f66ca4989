//! Requests of agents: registration, reports and output.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use bursar_api::Code;
use bursar_api::json::convert;
use bursar_api::nodes::node::{
    AttemptState, Gpu, Heartbeat, HeartbeatQuery, Orders, RegisterNode, Registration,
};
use bursar_core::cell::command::{self, AttemptReport, NodeOffer, ReportState};
use bursar_core::cell::{AttemptId, Cell, Command, NodeKey, Refusal, Reply};
use bursar_core::ledger::id::{Name, is_valid_name};
use bursar_core::name::GpuModel;

use super::agent_logs::{Known, keep_words, known_attempts, parts, with_words};
use super::agent_orders::{forget, wait_for_orders};
use super::names::{Resolve, find_node, owned};
use super::origin;
use crate::app::App;
use crate::http::extract::{Params, Path, Tree};
use crate::http::idempotent_call::{Begun, Once, reach};
use crate::http::labels::{label_list, memory_mib};
use crate::http::respond::{Answer, json, named};
use crate::machines::cells::CellService;
use crate::operations::Operation;
use crate::render::time;
use crate::request::{Caller, Failure};
use crate::telemetry::monotonic::Stopwatch;

/// The most GPUs of one node: one bit each.
const MAX_GPUS: usize = 64;
/// The most attempts of one report.
const MAX_REPORTS: usize = 1024;
/// The longest wait that may be requested.
const MAX_WAIT_SECONDS: u32 = 60;
/// The longest id of an attempt that is parsed.
const MAX_ID_BYTES: usize = 64;
/// The longest uuid of a GPU.
const MAX_UUID_BYTES: usize = 128;
/// The model of a node without GPUs.
const NO_GPU: &str = "none";

/// Refuses an agent that is bound to another region or node.
pub(super) fn check_binding(caller: &Caller, region: &str, node: &str) -> Result<(), Failure> {
    let principal = &caller.principal;
    let bound = |to: Option<&str>, wanted: &str| to.is_none_or(|to| to == wanted);
    if bound(principal.region.as_deref(), region) && bound(principal.node.as_deref(), node) {
        return Ok(());
    }
    Err(Failure::forbidden("this key is bound to another region or node"))
}

fn offer(node: RegisterNode, scope: Option<Name>) -> Result<NodeOffer, Failure> {
    if !is_valid_name(&node.id) {
        let reason = "must be 1 to 64 of the characters A-Z a-z 0-9 . _ : -";
        return Err(Failure::invalid("id", reason));
    }
    let gpus = node.gpus.as_slice();
    if gpus.len() > MAX_GPUS {
        return Err(Failure::invalid("gpus", "a node has at most 64 GPUs"));
    }
    let alike = |a: &Gpu, b: &Gpu| a.kind == b.kind && a.memory_gib == b.memory_gib;
    if gpus.windows(2).any(|pair| !alike(&pair[0], &pair[1])) {
        let reason = "all GPUs of a node are of one type and size: register each kind as a node";
        return Err(Failure::invalid("gpus", reason));
    }
    let mut uuids: Vec<&str> = gpus.iter().map(|gpu| gpu.uuid.as_str()).collect();
    uuids.sort_unstable();
    if uuids.windows(2).any(|pair| pair[0] == pair[1]) || uuids.first() == Some(&"") {
        return Err(Failure::invalid("gpus", "each GPU has a uuid of its own"));
    }
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if !uuids.iter().all(|uuid| uuid.len() <= MAX_UUID_BYTES && plain(uuid)) {
        return Err(Failure::invalid("gpus.uuid", "at most 128 visible characters"));
    }
    if node.rack.as_deref().is_some_and(|rack| !rack.is_empty() && !is_valid_name(rack)) {
        return Err(Failure::invalid("rack", "must be 1 to 64 of A-Z a-z 0-9 . _ : -"));
    }
    let kind = gpus.first().map_or(NO_GPU, |gpu| gpu.kind.as_str());
    let model = GpuModel::parse(kind);
    let model = model.map_err(|invalid| Failure::invalid("gpus.type", invalid.must))?;
    let gpu_memory = gpus.first().map_or(0, |gpu| gpu.memory_gib);
    let cpu_milli = node.cpus.checked_mul(1000);
    Ok(NodeOffer {
        name: node.id.into(),
        rack: node.rack.unwrap_or_default().into(),
        model,
        // Checked above.
        gpus: u16::try_from(gpus.len()).unwrap_or(u16::MAX),
        uuids: gpus.iter().map(|gpu| Name::from(gpu.uuid.as_str())).collect(),
        gpu_memory_mib: memory_mib(gpu_memory, "gpus.memory_gib")?,
        cpu_milli: cpu_milli.ok_or_else(|| Failure::invalid("cpus", "is too large"))?,
        memory_mib: memory_mib(node.memory_gib, "memory_gib")?,
        labels: label_list(node.labels, "labels")?,
        scope,
    })
}

/// Registers a node, at first and at each start of its agent.
#[utoipa::path(post, path = "/v1/nodes", tag = "nodes", operation_id = "register_node",
    request_body = RegisterNode,
    responses((status = 201, description = "The node was registered", body = Registration)))]
pub(in crate::http) async fn register(
    State(app): State<Arc<App>>,
    caller: Caller,
    Tree(body): Tree,
) -> Answer {
    let node: RegisterNode = convert(body.clone())?;
    caller.principal.require(Operation::RegisterNode)?;
    check_binding(&caller, &node.region, &node.id)?;
    let reason = "there is no such region here";
    let cell = app.cells.of_region(&node.region);
    let cell = cell.ok_or_else(|| Failure::invalid("region", reason))?;
    let once = match Once::begin(&app, &caller, reach(&caller.principal), &body).await? {
        Begun::Answered(answer) => return Ok(answer),
        Begun::Open(once) => once,
    };
    let answer = start(&app, &caller, cell, node).await;
    once.finish(answer).await
}

/// Registers a node. Repeating it only makes the previous incarnation stale, so the cell need not
/// store the request.
async fn start(app: &App, caller: &Caller, cell: &CellService, node: RegisterNode) -> Answer {
    let offer = offer(node, caller.principal.scope.clone())?;
    let key = NodeKey::of(&offer);
    let name = offer.name.clone();
    if let Some(other) = find_node(app, key).await?
        && other.cell.region != cell.region
    {
        let seen = caller.principal.sees_node(other.scope.as_deref());
        let place = if seen { other.cell.region.as_str() } else { "another region" };
        let detail =
            format!("a node `{name}` is in {place}; delete it there or choose another name");
        return Err(Failure::new(Code::Conflict, detail));
    }
    check_gpus(app, caller, cell, &offer).await?;
    let seen = cell.gateway.post(origin(caller), Command::RegisterNode(offer)).answer().await?;
    let Reply::Registered { incarnation, heartbeat_ms, lease_until } = seen.value? else {
        unreachable!("a registration is answered with its number")
    };
    app.settle_if_manual().await?;
    let seconds = |ms: i64| u32::try_from(ms / 1000).unwrap_or(u32::MAX);
    let registration = Registration {
        node: name.to_string(),
        incarnation: cell.shown_incarnation(incarnation),
        heartbeat_seconds: seconds(heartbeat_ms),
        lease_seconds: seconds(lease_until.millis_since(seen.at)),
        lease_until: time(lease_until),
        store: Some(cell.store_id()),
    };
    Ok(json(StatusCode::CREATED, &registration))
}

/// Refuses GPUs that a node of the same owner has in any region. The cell checks its own nodes;
/// this check also names the other node, if the caller may see it.
async fn check_gpus(
    app: &App,
    caller: &Caller,
    own: &CellService,
    offer: &NodeOffer,
) -> Result<(), Failure> {
    for cell in app.cells.iter() {
        let (uuids, name) = (offer.uuids.clone(), offer.name.clone());
        let (is_own, scope) = (cell.number == own.number, offer.scope.clone());
        let holder = move |all: &Cell| {
            let holder = |uuid| all.node_with_gpu(scope.as_deref(), uuid);
            let mut holders = uuids.iter().filter_map(|uuid| Some((uuid, holder(uuid)?)));
            let (uuid, holder) = holders.find(|(_, view)| !is_own || view.offer.name != name)?;
            Some((uuid.clone(), holder.offer.name.clone(), holder.offer.scope.clone()))
        };
        if let Some((uuid, holder, scope)) = cell.gateway.read(holder).await?.value {
            let seen = caller.principal.sees_node(scope.as_deref());
            let node = if seen { format!("node `{holder}`") } else { "another node".to_owned() };
            let detail = format!(
                "{node} in {} has the GPU {uuid}; if this is the same machine under a new name, \
                 drain and delete that node, or wait until its lease is over",
                if seen { cell.region.as_str() } else { "some region" }
            );
            return Err(Failure::new(Code::Conflict, detail));
        }
    }
    Ok(())
}

/// A report in the form of the cell, and the ids in it that are not attempts of the cell.
fn report(node: &NodeKey, known: &Known, beat: &Heartbeat) -> (command::Heartbeat, Vec<String>) {
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
    let (incarnation, seq) = (beat.incarnation, beat.seq);
    (command::Heartbeat { node: node.clone(), incarnation, seq, reports }, foreign)
}

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

/// How much more running time the report's longest-running attempt claims than the cell has
/// observed.
async fn observed(cell: &CellService, beat: &command::Heartbeat) -> Result<Option<i64>, Failure> {
    let claims: Vec<(AttemptId, u64)> = beat
        .reports
        .iter()
        .filter(|report| report.state == ReportState::Running)
        .map(|report| (report.attempt, report.gpu_ms_total))
        .collect();
    if claims.is_empty() {
        return Ok(None);
    }
    let node = beat.node.clone();
    let look = move |all: &Cell| {
        let ends = claims.into_iter().filter_map(|(attempt, claimed)| {
            let (since, devices) = all.running_since(attempt, &node)?;
            let claimed = i64::try_from(claimed / devices.max(1)).unwrap_or(i64::MAX);
            Some(since.plus_millis(claimed))
        });
        ends.max()
    };
    let seen = cell.gateway.read(look).await?;
    Ok(seen.value.map(|end| end.millis_since(seen.at)))
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
    let beat: Heartbeat = convert(body)?;
    if query.wait_seconds.is_some_and(|seconds| seconds > MAX_WAIT_SECONDS) {
        return Err(Failure::invalid("wait_seconds", "must be at most 60"));
    }
    caller.principal.require(Operation::HeartbeatNode)?;
    let id = named("node", id)?;
    let found = owned(&app, &caller, &id, Resolve::OwnFirst).await?;
    let (cell, node) = (found.cell, found.key);
    check_binding(&caller, &cell.region, &id)?;
    check(&beat)?;
    let ids = beat.attempts.iter().map(|said| said.id.as_str());
    let known = known_attempts(&app, cell, &node, ids).await?;
    let (mut said, foreign) = report(&node, &known, &beat);
    said.incarnation = cell.known_incarnation(beat.incarnation);
    let watch = Stopwatch::start();
    let before = observed(cell, &said).await?;
    // Read before the report: attempts that it ends still belong to the node.
    let parts = parts(&app, cell, &node, with_words(&known, &beat)).await?;
    let command = Command::Heartbeat(said.clone());
    let seen = cell.gateway.post(origin(&caller), command).answer().await?;
    let reported = seen.value.map_err(|refusal| shown_refusal(cell, refusal))?;
    let Reply::Reported { lease_until } = reported else {
        unreachable!("a report is answered with the lease")
    };
    app.metrics.heartbeat(&cell.region, watch.elapsed(), before);
    keep_words(&app, cell, &node, (&beat, &known), &parts);
    app.settle_if_manual().await?;
    let wait = Duration::from_secs(query.wait_seconds.unwrap_or(0).into());
    let wait = if foreign.is_empty() { wait } else { Duration::ZERO };
    let mut orders = wait_for_orders(&app, &caller.principal, cell, (&said, &known), wait).await?;
    orders.extend(foreign.into_iter().map(forget));
    Ok(json(StatusCode::OK, &Orders { orders, lease_until: time(lease_until) }))
}
