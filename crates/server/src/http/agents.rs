//! What agents say: that a node is there, what it runs, and what its jobs print.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bursar_api::Code;
use bursar_api::json::convert;
use bursar_api::node::{
    AttemptState, Gpu, Heartbeat, HeartbeatQuery, LogChunk, LogKept, Order, OrderType, Orders,
    RegisterNode, Registration, RunSpec,
};
use bursar_core::cell::command::{self, NodeOffer, Report, ReportState};
use bursar_core::cell::event::StopReason;
use bursar_core::cell::order::{self, OrderKind};
use bursar_core::cell::{AttemptId, Cell, Command, Reply};
use bursar_core::ledger::Ledger;
use bursar_core::ledger::id::{JobNo, Name, is_valid_name};
use bursar_core::time::Timestamp;
use bursar_engine::Seen;

use super::change::{Answer, json, named};
use super::extract::{Caller, Params, Path, Tree};
use super::labels::{label_list, memory_mib};
use super::nodes::{find_node, origin, owned};
use super::once::{Begun, Once, reach};
use crate::app::App;
use crate::cells::CellService;
use crate::ids::{attempt_id, read_attempt_id};
use crate::monotonic::Stopwatch;
use crate::problem::Failure;
use crate::render::time;

/// The most GPUs of one node: one bit each.
const MOST_GPUS: usize = 64;
/// The most attempts of one report.
const MOST_REPORTS: usize = 1024;
/// The longest wait that may be asked for.
const MOST_WAIT_SECONDS: u32 = 60;
/// Longer waits are answered after this: a handler has thirty seconds.
const LONGEST_WAIT: Duration = Duration::from_secs(25);
/// The model of a node without GPUs.
const NO_GPU: &str = "none";

/// Refuses an agent that is bound to another region or node.
fn check_binding(caller: &Caller, region: &str, node: &str) -> Result<(), Failure> {
    let principal = &caller.principal;
    let bound = |to: &Option<Name>, wanted: &str| to.as_deref().is_none_or(|to| to == wanted);
    if bound(&principal.region, region) && bound(&principal.node, node) {
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
    if gpus.len() > MOST_GPUS {
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
    let kind = gpus.first().map_or(NO_GPU, |gpu| gpu.kind.as_str());
    if !is_valid_name(kind) {
        return Err(Failure::invalid("gpus.type", "must be 1 to 64 of A-Z a-z 0-9 . _ : -"));
    }
    let gpu_memory = gpus.first().map_or(0, |gpu| gpu.memory_gib);
    let cpu_milli = node.cpus.checked_mul(1000);
    Ok(NodeOffer {
        name: node.id.into(),
        rack: node.rack.unwrap_or_default().into(),
        model: kind.into(),
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

/// Adds a node, or says that its agent started again.
#[utoipa::path(post, path = "/v1/nodes", tag = "nodes", operation_id = "register_node",
    request_body = RegisterNode,
    responses((status = 201, description = "The agent may report now", body = Registration)))]
pub(super) async fn register(
    State(app): State<Arc<App>>,
    caller: Caller,
    Tree(body): Tree,
) -> Answer {
    let node: RegisterNode = convert(body.clone())?;
    caller.principal.require("register_node")?;
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

/// Registers a node. Doing so once more only makes the start before it an older one, so the cell need
/// not know the request.
async fn start(app: &App, caller: &Caller, cell: &CellService, node: RegisterNode) -> Answer {
    let offer = offer(node, caller.principal.scope.clone())?;
    let name = offer.name.clone();
    if let Some((other, scope)) = find_node(app, &name).await?
        && other.region != cell.region
    {
        let seen = caller.principal.sees_node(scope.as_deref());
        let place = if seen { other.region.as_str() } else { "another region" };
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
        incarnation,
        heartbeat_seconds: seconds(heartbeat_ms),
        lease_seconds: seconds(lease_until.millis_since(seen.at)),
        lease_until: time(lease_until),
        store: Some(cell.journal.id().to_string()),
    };
    Ok(json(StatusCode::CREATED, &registration))
}

/// Refuses GPUs that a node of any region has. The cell decides it for its own nodes; here it is
/// told whose they are, if the caller may know.
async fn check_gpus(
    app: &App,
    caller: &Caller,
    own: &CellService,
    offer: &NodeOffer,
) -> Result<(), Failure> {
    for cell in app.cells.iter() {
        let (uuids, name) = (offer.uuids.clone(), offer.name.clone());
        let is_own = cell.number == own.number;
        let holder = move |all: &Cell| {
            let mut holders =
                uuids.iter().filter_map(|uuid| Some((uuid, all.node_with_gpu(uuid)?)));
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

/// A report as the cell wants it, and the ids in it that are none of the cell's attempts.
fn report(
    cell: &CellService,
    node: &Name,
    beat: &Heartbeat,
) -> Result<(command::Heartbeat, Vec<String>), Failure> {
    if beat.attempts.len() > MOST_REPORTS {
        return Err(Failure::invalid("attempts", "at most 1024 in one report"));
    }
    if beat.seq == 0 {
        return Err(Failure::invalid("seq", "counts from 1"));
    }
    let mut reports = Vec::new();
    let mut foreign = Vec::new();
    for said in &beat.attempts {
        let known = read_attempt_id(&said.id).filter(|(at, _)| *at == cell.number.0);
        let Some((_, attempt)) = known else {
            foreign.push(said.id.clone());
            continue;
        };
        reports.push(Report {
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
    Ok((command::Heartbeat { node: node.clone(), incarnation, seq, reports }, foreign))
}

fn reason(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Cancelled => "cancelled",
        StopReason::Preempted { .. } => "preempted",
        StopReason::Operator => "operator",
        StopReason::Drained => "drained",
        StopReason::MaxRuntime => "timed_out",
        StopReason::OutOfCredits => "out_of_credits",
    }
}

/// The order in the interface's words.
fn shown(cell: u16, order: order::Order, job: Option<&String>, now: Timestamp) -> Order {
    let mut shown = Order {
        kind: OrderType::Forget,
        attempt: attempt_id(cell, order.attempt),
        job: job.cloned(),
        spec: None,
        gpus: Vec::new(),
        grace_seconds: None,
        reason: None,
    };
    let seconds = |ms: i64| u32::try_from(ms.max(0).saturating_add(999) / 1000).unwrap_or(u32::MAX);
    match order.kind {
        OrderKind::Start(start) => {
            shown.kind = OrderType::Start;
            let mut spec: RunSpec = serde_json::from_str(&start.payload).unwrap_or_default();
            if spec.array_index.is_some() {
                let index = job.and_then(|job| job.rsplit_once('.')).map(|(_, index)| index);
                spec.array_index = index.and_then(|index| index.parse().ok());
            }
            spec.node_names = start.nodes.iter().map(ToString::to_string).collect();
            spec.rank = start.rank.into();
            shown.spec = Some(spec);
            shown.gpus = start.uuids.iter().map(ToString::to_string).collect();
            shown.grace_seconds = Some(seconds(start.grace_ms));
        }
        OrderKind::Stop { kill_at, reason: why } => {
            shown.kind = OrderType::Stop;
            shown.grace_seconds = Some(seconds(kill_at.millis_since(now)));
            shown.reason = Some(reason(why).to_owned());
        }
        OrderKind::Kill { reason: why } => {
            shown.kind = OrderType::Kill;
            shown.reason = why.map(|why| reason(why).to_owned());
        }
        OrderKind::Forget => {}
    }
    shown
}

/// The names of jobs, as far as the ledger still knows them.
async fn names(app: &App, attempts: &[AttemptId]) -> Result<BTreeMap<AttemptId, String>, Failure> {
    let attempts = attempts.to_vec();
    let look = move |ledger: &Ledger| {
        let named = attempts.into_iter().filter_map(|attempt| {
            let job = ledger.job(JobNo::of_cell(attempt.job))?;
            Some((attempt, job.order.id.to_string()))
        });
        named.collect()
    };
    app.ledger.peek(look).await
}

async fn orders(
    app: &App,
    cell: &CellService,
    beat: &command::Heartbeat,
) -> Result<Vec<Order>, Failure> {
    let beat = beat.clone();
    let seen: Seen<Vec<order::Order>> =
        cell.gateway.read(move |all: &Cell| all.orders(&beat)).await?;
    let attempts: Vec<AttemptId> = seen.value.iter().map(|order| order.attempt).collect();
    if attempts.is_empty() {
        return Ok(Vec::new());
    }
    let names = names(app, &attempts).await?;
    let (number, now) = (cell.number.0, seen.at);
    let orders = seen.value.into_iter();
    Ok(orders
        .map(|order| {
            let job = names.get(&order.attempt);
            shown(number, order, job, now)
        })
        .collect())
}

/// What tells two sets of orders apart.
fn print(orders: &[Order]) -> Vec<String> {
    orders.iter().map(|order| format!("{:?} {}", order.kind, order.attempt)).collect()
}

/// The orders; if there is nothing new, not before there is or the wait is over.
async fn wait_for_orders(
    app: &App,
    cell: &CellService,
    beat: &command::Heartbeat,
    wait: Duration,
) -> Result<Vec<Order>, Failure> {
    let mut moved = cell.moved();
    let mut stopped = app.stopped.clone();
    let deadline = tokio::time::sleep(wait.min(LONGEST_WAIT));
    tokio::pin!(deadline);
    let _aside = app.load.aside();
    loop {
        moved.mark_unchanged();
        let orders = orders(app, cell, beat).await?;
        if cell.is_news(&beat.node, beat.incarnation, &print(&orders)) || wait.is_zero() {
            return Ok(orders);
        }
        tokio::select! {
            () = &mut deadline => return Ok(orders),
            changed = moved.changed() => if changed.is_err() { return Ok(orders) },
            _ = stopped.changed() => return Ok(orders),
        }
    }
}

/// How far the report's longest-running attempt claims more running time than the cell has seen.
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

/// Keeps what came along with the reports; losing it loses no money.
async fn keep_words(app: &App, cell: &CellService, node: &Name, beat: &Heartbeat) {
    for said in &beat.attempts {
        let mut kept = said.message.as_deref().map_or(Ok(()), |text| app.logs.note(&said.id, text));
        let attempt = read_attempt_id(&said.id).map(|(_, attempt)| attempt);
        if let (Some(tail), Some(attempt)) = (said.log_tail.as_deref(), attempt)
            && let Ok(Some(rank)) = rank_here(app, cell, attempt, node.clone()).await
            && app.logs.len(&said.id, rank) == 0
        {
            kept = kept.and(app.logs.append(&said.id, rank, 0, tail.as_bytes()).map(drop));
        }
        if let Err(error) = kept {
            tracing::warn!(%error, attempt = %said.id, "what the agent said was not kept");
        }
    }
}

/// Reports what a node runs, and asks what it must do.
#[utoipa::path(post, path = "/v1/nodes/{id}/heartbeat", tag = "nodes",
    operation_id = "heartbeat_node",
    params(("id" = String, Path, description = "The node's name"), HeartbeatQuery),
    request_body = Heartbeat,
    responses((status = 200, description = "What the node must do", body = Orders)))]
pub(super) async fn heartbeat(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Params(query): Params<HeartbeatQuery>,
    Tree(body): Tree,
) -> Answer {
    let beat: Heartbeat = convert(body)?;
    if query.wait_seconds.is_some_and(|seconds| seconds > MOST_WAIT_SECONDS) {
        return Err(Failure::invalid("wait_seconds", "must be at most 60"));
    }
    caller.principal.require("heartbeat_node")?;
    let id = named("node", id)?;
    let cell = owned(&app, &caller.principal, &id).await?;
    check_binding(&caller, &cell.region, &id)?;
    let (said, foreign) = report(cell, &id, &beat)?;
    let watch = Stopwatch::start();
    let before = observed(cell, &said).await?;
    let command = Command::Heartbeat(said.clone());
    let seen = cell.gateway.post(origin(&caller), command).answer().await?;
    let Reply::Reported { lease_until } = seen.value? else {
        unreachable!("a report is answered with the lease")
    };
    app.metrics.heartbeat(&cell.region, watch.elapsed(), before);
    keep_words(&app, cell, &said.node, &beat).await;
    app.settle_if_manual().await?;
    let wait = Duration::from_secs(query.wait_seconds.unwrap_or(0).into());
    let wait = if foreign.is_empty() { wait } else { Duration::ZERO };
    let mut orders = wait_for_orders(&app, cell, &said, wait).await?;
    orders.extend(foreign.into_iter().map(|attempt| Order {
        kind: OrderType::Forget,
        attempt,
        job: None,
        spec: None,
        gpus: Vec::new(),
        grace_seconds: None,
        reason: None,
    }));
    Ok(json(StatusCode::OK, &Orders { orders, lease_until: time(lease_until) }))
}

/// The rank of a node among those that an attempt has or had a part on.
async fn rank_here(
    app: &App,
    cell: &CellService,
    attempt: AttemptId,
    node: Name,
) -> Result<Option<u32>, Failure> {
    let number = cell.number;
    let look = move |ledger: &Ledger| {
        let mut attempts = ledger.job(JobNo::of_cell(attempt.job))?.attempts.iter();
        let known =
            attempts.find(|known| known.cell == Some(number) && known.number == attempt.number)?;
        let rank = known.members.iter().position(|member| member.node == node)?;
        u32::try_from(rank).ok()
    };
    Ok(app.ledger.read(look).await?.value)
}

/// Keeps output of an attempt.
#[utoipa::path(post, path = "/v1/nodes/{id}/logs", tag = "nodes", operation_id = "send_node_log",
    params(("id" = String, Path, description = "The node's name")), request_body = LogChunk,
    responses((status = 200, description = "Where the next piece belongs", body = LogKept)))]
pub(super) async fn logs(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Tree(body): Tree,
) -> Answer {
    let chunk: LogChunk = convert(body)?;
    caller.principal.require("send_node_log")?;
    let id = named("node", id)?;
    let cell = owned(&app, &caller.principal, &id).await?;
    check_binding(&caller, &cell.region, &id)?;
    let data = BASE64.decode(&chunk.data);
    let data = data.map_err(|_| Failure::invalid("data", "must be base64 with padding"))?;
    let attempt = read_attempt_id(&chunk.attempt).filter(|(at, _)| *at == cell.number.0);
    let (_, attempt) = attempt.ok_or_else(|| Failure::not_found("attempt", &chunk.attempt))?;
    let node = id.clone();
    let current = cell.gateway.read(move |all: &Cell| all.node_named(&id).map(|n| n.incarnation));
    let current = current.await?.value.unwrap_or(0);
    if chunk.incarnation != current {
        let detail = format!("the node's agent started again as {current}; register again");
        return Err(Failure::new(Code::StaleIncarnation, detail));
    }
    let rank = rank_here(&app, cell, attempt, node).await?;
    let rank = rank.ok_or_else(|| Failure::not_found("attempt", &chunk.attempt))?;
    let store = Arc::clone(&app);
    let work = move || store.logs.append(&chunk.attempt, rank, chunk.offset, &data);
    let kept = tokio::task::spawn_blocking(work).await;
    let kept = kept.map_err(std::io::Error::other).and_then(|kept| kept);
    let next_offset = kept.map_err(|error| Failure::new(Code::StorageFull, error.to_string()))?;
    Ok(json(StatusCode::OK, &LogKept { next_offset }))
}
