//! Resolves node names. Names are unique among the nodes of one owner: the platform, or a tenant.
//! The nodes of one owner neither block nor reveal names to another.

use bursar_api::Code;
use bursar_core::cell::nodes::scope::covers;
use bursar_core::cell::{Cell, NodeKey};
use bursar_core::ledger::id::Name;
use bursar_core::name::AccountPath;

use crate::app::App;
use crate::http::extract::PLATFORM_TENANT;
use crate::machines::cells::CellService;
use crate::request::{Caller, Failure};

/// The most owners that are listed for an ambiguous name.
const MAX_LISTED: usize = 20;

/// A node and its cell.
pub(in crate::http) struct FoundNode<'a> {
    pub(in crate::http) cell: &'a CellService,
    pub(in crate::http) key: NodeKey,
    /// The account whose jobs it runs; `None` if it runs jobs of all accounts.
    pub(in crate::http) scope: Option<AccountPath>,
}

/// How a name is resolved for a platform key if several owners have a node of that name.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Resolve {
    /// Ambiguous: the caller must name the owner.
    Only,
    /// The platform's node is preferred. So agents of the platform report for their own nodes,
    /// whatever names tenants use.
    OwnFirst,
}

/// The node of this owner and name, in any region.
pub(super) async fn find_node<'a>(
    app: &'a App,
    key: NodeKey,
) -> Result<Option<FoundNode<'a>>, Failure> {
    for cell in app.cells.iter() {
        let wanted = key.clone();
        let scope =
            move |cell: &Cell| cell.node_named(&wanted).map(|view| view.offer.scope.clone());
        if let Some(scope) = cell.gateway.read(scope).await?.value {
            return Ok(Some(FoundNode { cell, key, scope }));
        }
    }
    Ok(None)
}

/// The nodes with this name, of all owners and in all regions.
async fn called<'a>(app: &'a App, id: &Name) -> Result<Vec<FoundNode<'a>>, Failure> {
    let mut found = Vec::new();
    for cell in app.cells.iter() {
        let wanted = id.clone();
        let look = move |cell: &Cell| {
            let views = cell.nodes_called(&wanted).take(MAX_LISTED);
            views.map(|view| view.offer.scope.clone()).collect::<Vec<_>>()
        };
        for scope in cell.gateway.read(look).await?.value {
            let key = NodeKey::new(id.clone(), scope.as_deref());
            found.push(FoundNode { cell, key, scope });
        }
    }
    Ok(found)
}

fn ambiguous(id: &Name, found: &[FoundNode<'_>]) -> Failure {
    let owners = found.iter().map(|found| found.key.owner.as_deref().unwrap_or(PLATFORM_TENANT));
    let owners: Vec<&str> = owners.collect();
    let detail = format!(
        "several owners have a node `{id}`; repeat with the header Bursar-Tenant: {} \
         ({PLATFORM_TENANT} is the platform)",
        owners.join(" or ")
    );
    Failure::new(Code::AmbiguousId, detail)
}

/// The cell and the key of a node that an agent names, if they are known without asking a cell: there
/// is one cell, or the agent's key is bound to a region. The cell may have no such node.
pub(super) fn likely_node<'a>(
    app: &'a App,
    caller: &Caller,
    id: &Name,
) -> Option<(&'a CellService, NodeKey)> {
    let cell = match &caller.principal.region {
        Some(region) => app.cells.of_region(region)?,
        None => {
            let mut cells = app.cells.iter();
            cells.next().filter(|_| cells.next().is_none())?
        }
    };
    let owner = match (caller.tenant.as_deref(), caller.principal.tenant()) {
        (Some(PLATFORM_TENANT), _) => None,
        (Some(asked), Some(own)) if asked != own => return None,
        (Some(asked), _) => Some(asked),
        (None, own) => own,
    };
    Some((cell, NodeKey::new(id.clone(), owner)))
}

/// The node that a caller names and may see.
pub(in crate::http) async fn visible<'a>(
    app: &'a App,
    caller: &Caller,
    id: &Name,
    resolve: Resolve,
) -> Result<FoundNode<'a>, Failure> {
    let missing = || Failure::not_found("node", id);
    let principal = &caller.principal;
    let seen = |found: &FoundNode<'_>| principal.sees_node(found.scope.as_deref());
    let own = principal.tenant();
    // For a tenant its own nodes come first, then nodes that run jobs of all accounts.
    let owners: Vec<Option<&str>> = match (caller.tenant.as_deref(), own) {
        (Some(PLATFORM_TENANT), _) => vec![None],
        (Some(asked), Some(own)) if asked != own => return Err(missing()),
        (Some(asked), _) => vec![Some(asked)],
        (None, Some(own)) => vec![Some(own), None],
        (None, None) if resolve == Resolve::OwnFirst => vec![None],
        (None, None) => Vec::new(),
    };
    for owner in owners {
        let found = find_node(app, NodeKey::new(id.clone(), owner)).await?;
        if let Some(found) = found.filter(seen) {
            return Ok(found);
        }
    }
    if own.is_some() || caller.tenant.is_some() {
        return Err(missing());
    }
    let mut found = called(app, id).await?;
    match found.len() {
        0 => Err(missing()),
        1 => Ok(found.remove(0)),
        _ => Err(ambiguous(id, &found)),
    }
}

/// The node that a caller names and may change.
pub(in crate::http) async fn owned<'a>(
    app: &'a App,
    caller: &Caller,
    id: &Name,
    resolve: Resolve,
) -> Result<FoundNode<'a>, Failure> {
    let found = visible(app, caller, id, resolve).await?;
    if covers(caller.principal.scope.as_deref(), found.scope.as_deref()) {
        return Ok(found);
    }
    let whose = found.scope.map_or("all accounts".to_owned(), |scope| scope.to_string());
    let detail = format!("the node runs jobs of {whose}; use a key whose scope covers that");
    Err(Failure::forbidden(detail))
}
