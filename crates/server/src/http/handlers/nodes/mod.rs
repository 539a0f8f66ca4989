//! Nodes, for operators. Requests of agents are in `agents.rs` and `heartbeat.rs`.

pub(in crate::http) mod agent_logs;
pub(super) mod agent_orders;
pub(in crate::http) mod agents;
pub(in crate::http) mod heartbeat;
pub(in crate::http) mod map;
mod names;
pub(in crate::http) mod regions;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use bursar_api::amount::Sum;
use bursar_api::credits::hold::Release;
use bursar_api::json::convert;
use bursar_api::list::List;
use bursar_api::nodes::node::{DrainNode, Node, NodeFilter, NodeGpu, NodeState, ResumeNode};
use bursar_core::cell::ids::JobId;
use bursar_core::cell::nodes::view::NodeView;
use bursar_core::cell::{Cell, Command, NodeKey, Origin};
use bursar_core::ledger::id::Name;
use bursar_core::name::Region;
use serde_json::Value;

use super::nodes::names::{FoundNode, Resolve, owned, visible};
use crate::app::App;
use crate::auth::Principal;
use crate::http::extract::{Params, Path, Tree};
use crate::http::idempotent_call::{CallState, IdempotentCall, RecordPlace, reach};
use crate::http::list::{page_size, read_after, write_after};
use crate::http::respond::{Answer, json, named};
use crate::ids::attempt::AttemptIds;
use crate::machines::cells::CellService;
use crate::operations::Operation;
use crate::render::time;
use crate::request::{Caller, Failure};

/// The scope of a node that runs jobs of all accounts.
const ALL_ACCOUNTS: &str = "*";
/// A whole GPU, in thousandths.
const WHOLE_GPU_MILLI: u16 = 1000;

/// The origin of a cell's command.
pub(in crate::http) fn origin(caller: &Caller) -> Origin {
    Origin::Shell { actor: caller.principal.id.clone().into(), request: None }
}

fn state(node: &NodeView<'_>) -> NodeState {
    if !node.alive {
        NodeState::Lost
    } else if node.in_maintenance {
        NodeState::Maintenance
    } else if node.kept_until.is_some() {
        NodeState::Draining
    } else if !node.drained {
        NodeState::Ready
    } else if node.attempts.is_empty() {
        NodeState::Drained
    } else {
        NodeState::Draining
    }
}

fn labels(labels: &[Name]) -> BTreeMap<String, String> {
    let pairs = labels.iter().map(|label| label.split_once('=').unwrap_or((label, "")));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Renders the nodes of a cell for a caller: only attempts of accounts that the caller can see.
#[derive(Clone)]
struct Showing {
    ids: AttemptIds,
    region: Region,
    cell: u16,
    incarnation_base: u32,
    principal: Principal,
}

impl Showing {
    fn new(app: &App, cell: &CellService, principal: &Principal) -> Showing {
        Showing {
            ids: app.attempt_ids,
            region: cell.region.clone(),
            cell: cell.number.0,
            incarnation_base: cell.shown_incarnation(0),
            principal: principal.clone(),
        }
    }

    fn sees(&self, all: &Cell, job: JobId) -> bool {
        let account = all.job_spec(job).map(|spec| spec.account.as_str());
        account.map_or(self.principal.scope.is_none(), |account| self.principal.sees(account))
    }

    fn knows(&self, view: &NodeView<'_>) -> bool {
        self.principal.sees_node(view.offer.scope.as_deref())
    }

    fn node(&self, all: &Cell, view: &NodeView<'_>) -> Node {
        let offer = view.offer;
        let used = |free: u16| Sum::from_thousandths(WHOLE_GPU_MILLI.saturating_sub(free));
        let gpus = view.free.iter().enumerate().map(|(place, free)| NodeGpu {
            uuid: offer.uuids.get(place).map(ToString::to_string).unwrap_or_default(),
            kind: offer.model.to_string(),
            memory_gib: offer.gpu_memory_mib / 1024,
            used: used(*free),
        });
        let attempts = view.attempts.iter().filter(|attempt| self.sees(all, attempt.job));
        Node {
            id: offer.name.to_string(),
            region: self.region.to_string(),
            rack: Some(offer.rack.to_string()).filter(|rack| !rack.is_empty()),
            scope: offer.scope.as_deref().unwrap_or(ALL_ACCOUNTS).to_owned(),
            state: state(view),
            incarnation: self.incarnation_base.saturating_add(view.incarnation),
            gpus: gpus.collect(),
            cpus: offer.cpu_milli / 1000,
            memory_gib: offer.memory_mib / 1024,
            labels: labels(&offer.labels),
            attempts: attempts.map(|attempt| self.ids.write(self.cell, *attempt)).collect(),
            lease_until: time(view.lease_until),
            kept_until: view.kept_until.map(time),
        }
    }
}

async fn show(app: &App, found: &FoundNode<'_>, principal: &Principal) -> Answer {
    let (wanted, showing) = (found.key.clone(), Showing::new(app, found.cell, principal));
    let read = move |all: &Cell| all.node_named(&wanted).map(|view| showing.node(all, &view));
    let node = found.cell.gateway.read(read).await?.value;
    let node = node.ok_or_else(|| Failure::not_found("node", &found.key.name))?;
    Ok(json(StatusCode::OK, &node))
}

/// The node after which a page begins.
fn read_place(cursor: Option<&str>) -> Result<Option<NodeKey>, Failure> {
    let Some((name, owner)) = cursor.and_then(|cursor| cursor.rsplit_once('/')) else {
        let name = read_after(cursor)?;
        return Ok(Some(NodeKey::from(name)).filter(|key| !key.name.is_empty()));
    };
    Ok(Some(NodeKey::new(read_after(Some(name))?, Some(owner))))
}

/// The account whose jobs a node runs; `None` if it runs jobs of all accounts.
fn scope_of(node: &Node) -> Option<&str> {
    Some(node.scope.as_str()).filter(|scope| *scope != ALL_ACCOUNTS)
}

/// The cursor of a node in the list.
fn write_place(node: &Node) -> String {
    place_after(&NodeKey::new(node.id.as_str(), scope_of(node)))
}

/// The cursor after a node.
fn place_after(node: &NodeKey) -> String {
    match &node.owner {
        None => write_after(&node.name),
        Some(owner) => write_after(&format!("{}/{owner}", node.name)),
    }
}

/// Nodes of all regions, by name.
#[utoipa::path(get, path = "/v1/nodes", tag = "nodes", operation_id = "list_nodes",
    params(NodeFilter),
    responses((status = 200, description = "A page of nodes", body = List<Node>)))]
pub(in crate::http) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(filter): Params<NodeFilter>,
) -> Answer {
    caller.principal.require(Operation::ListNodes)?;
    let size = page_size(filter.limit)?;
    let after = read_place(filter.cursor.as_deref())?;
    let mut found: Vec<Node> = Vec::new();
    for cell in app.cells.iter() {
        if filter.region.as_deref().is_some_and(|region| region != cell.region) {
            continue;
        }
        let (showing, after) = (Showing::new(&app, cell, &caller.principal), after.clone());
        let read = move |all: &Cell| {
            let seen = all.nodes_by_name(after.as_ref()).filter(|view| showing.knows(view));
            let shown = seen.take(size + 1).map(|view| showing.node(all, &view));
            shown.collect::<Vec<Node>>()
        };
        found.extend(cell.gateway.read(read).await?.value);
    }
    // Of nodes with the same name the platform's comes first.
    let place = |node: &Node| NodeKey::new(node.id.as_str(), scope_of(node));
    found.sort_by_key(place);
    let has_more = found.len() > size;
    found.truncate(size);
    let next_cursor = found.last().filter(|_| has_more).map(write_place);
    let page = List { data: found, has_more, next_cursor, as_of: None, position: None };
    Ok(json(StatusCode::OK, &page))
}

/// A node.
#[utoipa::path(get, path = "/v1/nodes/{id}", tag = "nodes", operation_id = "get_node",
    params(("id" = String, Path, description = "The node's name")),
    responses((status = 200, description = "The node", body = Node)))]
pub(in crate::http) async fn get(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer {
    caller.principal.require(Operation::GetNode)?;
    let id = named("node", id)?;
    shown(&app, &caller, &id).await
}

/// Runs a command on a node, unless the same call did so before. Returns the region and the position
/// of its record.
async fn command(
    app: &App,
    caller: &Caller,
    once: &IdempotentCall<'_>,
    id: &Name,
    command: impl FnOnce(NodeKey) -> Command,
) -> Result<Option<RecordPlace>, Failure> {
    if once.done && !once.of_others {
        return Ok(None);
    }
    let found = owned(app, caller, id, Resolve::Only).await?;
    if once.done {
        return Ok(None);
    }
    let command = command(found.key.clone());
    let seen = found.cell.gateway.post(once.origin(), command).answer().await?;
    let _done = seen.value?;
    app.quiesce_if_manual().await?;
    Ok(Some(RecordPlace::of(found.cell, seen.position)))
}

/// Runs a command on a node and renders the node.
async fn change(
    app: &App,
    caller: &Caller,
    body: &Value,
    id: &Name,
    wanted: impl FnOnce(NodeKey) -> Command,
) -> Answer {
    let once = match IdempotentCall::begin(app, caller, reach(&caller.principal), body).await? {
        CallState::Answered(answer) => return Ok(answer),
        CallState::Open(once) => once,
    };
    let (answer, place) = match command(app, caller, &once, id, wanted).await {
        Ok(place) => (shown(app, caller, id).await, place),
        Err(failure) => (Err(failure), None),
    };
    once.finish(answer, place).await
}

async fn shown(app: &App, caller: &Caller, id: &Name) -> Answer {
    let found = visible(app, caller, id, Resolve::Only).await?;
    show(app, &found, &caller.principal).await
}

/// Drains a node: no new attempts are placed on it. With `force` running attempts are stopped too.
#[utoipa::path(post, path = "/v1/nodes/{id}/drain", tag = "nodes", operation_id = "drain_node",
    params(("id" = String, Path, description = "The node's name")), request_body = DrainNode,
    responses((status = 200, description = "The node as it is now", body = Node)))]
pub(in crate::http) async fn drain(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Tree(body): Tree,
) -> Answer {
    let drain: DrainNode = convert(body.clone())?;
    caller.principal.require(Operation::DrainNode)?;
    let id = named("node", id)?;
    let force = drain.force.unwrap_or(false);
    change(&app, &caller, &body, &id, |node| Command::DrainNode { node, force }).await
}

/// Resumes a node: new attempts are placed on it again.
#[utoipa::path(post, path = "/v1/nodes/{id}/resume", tag = "nodes", operation_id = "resume_node",
    params(("id" = String, Path, description = "The node's name")),
    responses((status = 200, description = "The node as it is now", body = Node)))]
pub(in crate::http) async fn resume(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Tree(body): Tree,
) -> Answer {
    let ResumeNode {} = convert(body.clone())?;
    caller.principal.require(Operation::ResumeNode)?;
    let id = named("node", id)?;
    change(&app, &caller, &body, &id, |node| Command::ResumeNode { node }).await
}

/// Removes a node without running attempts.
#[utoipa::path(delete, path = "/v1/nodes/{id}", tag = "nodes", operation_id = "delete_node",
    params(("id" = String, Path, description = "The node's name")),
    responses((status = 204, description = "The node was removed")))]
pub(in crate::http) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Tree(body): Tree,
) -> Answer {
    let Release {} = convert(body.clone())?;
    caller.principal.require(Operation::DeleteNode)?;
    let id = named("node", id)?;
    let once = match IdempotentCall::begin(&app, &caller, reach(&caller.principal), &body).await? {
        CallState::Answered(answer) => return Ok(answer),
        CallState::Open(once) => once,
    };
    let mut gone = None;
    let removed = command(&app, &caller, &once, &id, |node| {
        gone = Some(node.clone());
        Command::RemoveNode { node }
    });
    let (answer, place) = match removed.await {
        Ok(place) => (Ok(StatusCode::NO_CONTENT.into_response()), place),
        Err(failure) => (Err(failure), None),
    };
    if let Some(node) = gone.filter(|_| answer.is_ok()) {
        // A name belongs to one owner in all regions.
        app.cells.iter().for_each(|cell| cell.forget_last_orders(&node));
    }
    once.finish(answer, place).await
}
