//! Nodes: what operators see and do. What agents say is in `agents.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use bursar_api::amount::Sum;
use bursar_api::hold::Release;
use bursar_api::json::convert;
use bursar_api::list::List;
use bursar_api::node::{DrainNode, Node, NodeFilter, NodeGpu, NodeState, ResumeNode};
use bursar_core::cell::ids::JobId;
use bursar_core::cell::roster::NodeView;
use bursar_core::cell::{Cell, Command, Origin};
use bursar_core::ledger::id::Name;
use serde_json::Value;

use super::change::{Answer, json, named};
use super::extract::{Caller, Params, Path, Tree};
use super::list::{page_size, read_after, write_after};
use super::once::{Begun, Once, reach};
use crate::app::App;
use crate::auth::Principal;
use crate::cells::CellService;
use crate::ids::attempt_id;
use crate::problem::Failure;
use crate::render::time;

/// The scope of a node that runs everybody's jobs.
const EVERYBODY: &str = "*";
/// A whole GPU, in thousandths.
const WHOLE: u16 = 1000;

/// Who asks a cell.
pub(super) fn origin(caller: &Caller) -> Origin {
    Origin::Shell { actor: caller.principal.id.clone(), request: None }
}

fn state(node: &NodeView<'_>) -> NodeState {
    if !node.alive {
        NodeState::Lost
    } else if node.in_maintenance {
        NodeState::Maintenance
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

/// Shows the nodes of a cell to somebody: only the attempts of accounts that they see.
#[derive(Clone)]
struct Showing {
    region: Name,
    cell: u16,
    principal: Principal,
}

impl Showing {
    fn new(cell: &CellService, principal: &Principal) -> Showing {
        Showing { region: cell.region.clone(), cell: cell.number.0, principal: principal.clone() }
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
        let used = |free: u16| Sum::from_micros(i128::from(WHOLE.saturating_sub(free)) * 1000);
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
            scope: offer.scope.as_deref().unwrap_or(EVERYBODY).to_owned(),
            state: state(view),
            incarnation: view.incarnation,
            gpus: gpus.collect(),
            cpus: offer.cpu_milli / 1000,
            memory_gib: offer.memory_mib / 1024,
            labels: labels(&offer.labels),
            attempts: attempts.map(|attempt| attempt_id(self.cell, *attempt)).collect(),
            lease_until: time(view.lease_until),
        }
    }
}

/// The cell that a node is registered in, and whose jobs it runs.
pub(super) async fn find_node<'a>(
    app: &'a App,
    id: &Name,
) -> Result<Option<(&'a CellService, Option<Name>)>, Failure> {
    for cell in app.cells.iter() {
        let wanted = id.clone();
        let scope =
            move |cell: &Cell| cell.node_named(&wanted).map(|view| view.offer.scope.clone());
        if let Some(scope) = cell.gateway.read(scope).await?.value {
            return Ok(Some((cell, scope)));
        }
    }
    Ok(None)
}

/// The cell of a node that somebody may know of.
async fn visible<'a>(
    app: &'a App,
    principal: &Principal,
    id: &Name,
) -> Result<(&'a CellService, Option<Name>), Failure> {
    let found = find_node(app, id).await?;
    let seen = found.filter(|(_, scope)| principal.sees_node(scope.as_deref()));
    seen.ok_or_else(|| Failure::not_found("node", id))
}

/// The cell of a node that somebody may speak for or change.
pub(super) async fn owned<'a>(
    app: &'a App,
    principal: &Principal,
    id: &Name,
) -> Result<&'a CellService, Failure> {
    let (cell, scope) = visible(app, principal, id).await?;
    if principal.owns_node(scope.as_deref()) {
        return Ok(cell);
    }
    let whose = scope.map_or("everybody".to_owned(), |scope| scope.to_string());
    let detail = format!("the node runs jobs of {whose}; use a key whose scope covers that");
    Err(Failure::forbidden(detail))
}

async fn show(cell: &CellService, id: &Name, principal: &Principal) -> Answer {
    let (wanted, showing) = (id.clone(), Showing::new(cell, principal));
    let read = move |all: &Cell| all.node_named(&wanted).map(|view| showing.node(all, &view));
    let node = cell.gateway.read(read).await?.value;
    let node = node.ok_or_else(|| Failure::not_found("node", id))?;
    Ok(json(StatusCode::OK, &node))
}

/// Nodes of all regions, by name.
#[utoipa::path(get, path = "/v1/nodes", tag = "nodes", operation_id = "list_nodes",
    params(NodeFilter),
    responses((status = 200, description = "A page of nodes", body = List<Node>)))]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(filter): Params<NodeFilter>,
) -> Answer {
    caller.principal.require("list_nodes")?;
    let size = page_size(filter.limit)?;
    let after = read_after(filter.cursor.as_deref())?.to_owned();
    let mut found: Vec<Node> = Vec::new();
    for cell in app.cells.iter() {
        if filter.region.as_deref().is_some_and(|region| region != cell.region) {
            continue;
        }
        let (showing, after) = (Showing::new(cell, &caller.principal), after.clone());
        let read = move |all: &Cell| {
            let seen = all.nodes().filter(|view| showing.knows(view));
            let mut names: Vec<&str> = seen.map(|view| view.offer.name.as_str()).collect();
            names.retain(|name| *name > after.as_str());
            names.sort_unstable();
            let views = names.into_iter().take(size + 1).filter_map(|name| all.node_named(name));
            views.map(|view| showing.node(all, &view)).collect::<Vec<Node>>()
        };
        found.extend(cell.gateway.read(read).await?.value);
    }
    found.sort_by(|a, b| a.id.cmp(&b.id));
    let has_more = found.len() > size;
    found.truncate(size);
    let next_cursor = found.last().filter(|_| has_more).map(|last| write_after(&last.id));
    let page = List { data: found, has_more, next_cursor, as_of: None, position: None };
    Ok(json(StatusCode::OK, &page))
}

/// A node.
#[utoipa::path(get, path = "/v1/nodes/{id}", tag = "nodes", operation_id = "get_node",
    params(("id" = String, Path, description = "The node's name")),
    responses((status = 200, description = "The node", body = Node)))]
pub(super) async fn get(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer {
    caller.principal.require("get_node")?;
    let id = named("node", id)?;
    shown(&app, &caller, &id).await
}

/// Runs a command about a node, unless the same call did before.
async fn command(
    app: &App,
    caller: &Caller,
    once: &Once<'_>,
    id: &Name,
    command: Command,
) -> Result<(), Failure> {
    if once.done {
        return Ok(());
    }
    let cell = owned(app, &caller.principal, id).await?;
    cell.gateway.post(once.origin(), command).answer().await?.value?;
    app.settle_if_manual().await
}

/// Runs a command about a node and shows it.
async fn change(app: &App, caller: &Caller, body: &Value, id: &Name, wanted: Command) -> Answer {
    let once = match Once::begin(app, caller, reach(&caller.principal), body).await? {
        Begun::Answered(answer) => return Ok(answer),
        Begun::Open(once) => once,
    };
    let answer = match command(app, caller, &once, id, wanted).await {
        Ok(()) => shown(app, caller, id).await,
        Err(failure) => Err(failure),
    };
    once.finish(answer).await
}

async fn shown(app: &App, caller: &Caller, id: &Name) -> Answer {
    let (cell, _) = visible(app, &caller.principal, id).await?;
    show(cell, id, &caller.principal).await
}

/// Stops placing work on a node. With `force` what runs there is stopped too.
#[utoipa::path(post, path = "/v1/nodes/{id}/drain", tag = "nodes", operation_id = "drain_node",
    params(("id" = String, Path, description = "The node's name")), request_body = DrainNode,
    responses((status = 200, description = "The node as it is now", body = Node)))]
pub(super) async fn drain(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Tree(body): Tree,
) -> Answer {
    let drain: DrainNode = convert(body.clone())?;
    caller.principal.require("drain_node")?;
    let id = named("node", id)?;
    let command = Command::DrainNode { node: id.clone(), force: drain.force.unwrap_or(false) };
    change(&app, &caller, &body, &id, command).await
}

/// Places work on a node again.
#[utoipa::path(post, path = "/v1/nodes/{id}/resume", tag = "nodes", operation_id = "resume_node",
    params(("id" = String, Path, description = "The node's name")),
    responses((status = 200, description = "The node as it is now", body = Node)))]
pub(super) async fn resume(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Tree(body): Tree,
) -> Answer {
    let ResumeNode {} = convert(body.clone())?;
    caller.principal.require("resume_node")?;
    let id = named("node", id)?;
    change(&app, &caller, &body, &id, Command::ResumeNode { node: id.clone() }).await
}

/// Forgets a node on which nothing runs.
#[utoipa::path(delete, path = "/v1/nodes/{id}", tag = "nodes", operation_id = "delete_node",
    params(("id" = String, Path, description = "The node's name")),
    responses((status = 204, description = "The node is gone")))]
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Tree(body): Tree,
) -> Answer {
    let Release {} = convert(body.clone())?;
    caller.principal.require("delete_node")?;
    let id = named("node", id)?;
    let once = match Once::begin(&app, &caller, reach(&caller.principal), &body).await? {
        Begun::Answered(answer) => return Ok(answer),
        Begun::Open(once) => once,
    };
    let removed = command(&app, &caller, &once, &id, Command::RemoveNode { node: id.clone() });
    let answer = removed.await.map(|()| StatusCode::NO_CONTENT.into_response());
    once.finish(answer).await
}
