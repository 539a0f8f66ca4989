//! Registration of nodes by their agents.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use bursar_api::Code;
use bursar_api::json::convert;
use bursar_api::nodes::node::{Gpu, RegisterNode, Registration};
use bursar_core::cell::command::NodeOffer;
use bursar_core::cell::{Cell, Command, NodeKey, Reply};
use bursar_core::ledger::id::Name;
use bursar_core::name::{AccountPath, GpuModel, NAME_FORM, is_valid_name};

use super::names::find_node;
use super::origin;
use crate::app::App;
use crate::http::extract::Tree;
use crate::http::idempotent_call::{CallState, IdempotentCall, reach};
use crate::http::labels::{label_list, memory_mib};
use crate::http::respond::{Answer, json};
use crate::machines::cells::CellService;
use crate::operations::Operation;
use crate::render::time;
use crate::request::{Caller, Failure, reused};

/// The most GPUs of one node: one bit each.
const MAX_GPUS: usize = 64;
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

fn offer(node: RegisterNode, scope: Option<AccountPath>) -> Result<NodeOffer, Failure> {
    if !is_valid_name(&node.id) {
        return Err(Failure::invalid("id", NAME_FORM));
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
    let once = match IdempotentCall::begin(&app, &caller, reach(&caller.principal), &body).await? {
        CallState::Answered(answer) => return Ok(answer),
        // It would register the node for this key's accounts instead of those of the first key.
        CallState::Open(once) if once.of_others => return Err(reused()),
        CallState::Open(once) => once,
    };
    let answer = start(&app, &caller, cell, node).await;
    once.finish(answer, None).await
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
    app.quiesce_if_manual().await?;
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
