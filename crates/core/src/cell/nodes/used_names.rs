//! Limits on what the nodes of a tenant add to a cell. The tables of models, labels and racks never
//! drop a name, so the number of names per tenant is limited, whether other tenants use the same
//! names or not. Nodes of the platform are not limited.

use std::collections::BTreeSet;

use compact_str::CompactString;

use super::node::{NodeSpec, RackId};
use super::owner::owner_of;
use crate::cell::command::{NodeOffer, Refusal};
use crate::cell::schedule::shape::{LabelId, ModelId};
use crate::cell::state::Cell;
use crate::name::AccountPath;

/// The most nodes of one tenant in a region.
pub const MAX_NODES_PER_TENANT: usize = 4096;
/// The most GPU types that nodes of one tenant may have had.
pub const MAX_TYPES_PER_TENANT: usize = 64;
/// The most labels that nodes of one tenant may have had.
pub const MAX_LABELS_PER_TENANT: usize = 4096;
/// The most racks that nodes of one tenant may have been in.
pub const MAX_RACKS_PER_TENANT: usize = 1024;
/// The most labels of one node.
pub const MAX_LABELS_PER_NODE: usize = 64;
/// The most drained nodes of one owner that are remembered after their removal, until their leases
/// end.
pub const MAX_LEFT_DRAINED_PER_OWNER: usize = 4096;
/// The longest name, label or uuid, in bytes.
pub const MAX_NAME_BYTES: usize = 512;

/// The names that nodes of a tenant have used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct UsedNames {
    pub(crate) models: BTreeSet<ModelId>,
    pub(crate) labels: BTreeSet<LabelId>,
    pub(crate) racks: BTreeSet<RackId>,
}

fn require(holds: bool, field: &'static str, must: &'static str) -> Result<(), Refusal> {
    if holds { Ok(()) } else { Err(Refusal::Invalid { field, must }) }
}

impl NodeOffer {
    /// Refuses a node with a name that is too long or with too many labels.
    pub(crate) fn check_sizes(&self) -> Result<(), Refusal> {
        let names = [self.name.as_str(), &self.rack, &self.model];
        let lists = self.uuids.iter().chain(&self.labels);
        let mut all = names.into_iter().chain(lists.map(|name| name.as_str()));
        require(all.all(|name| name.len() <= MAX_NAME_BYTES), "name", "at most 512 bytes")?;
        require(self.labels.len() <= MAX_LABELS_PER_NODE, "labels", "at most 64")
    }
}

impl Cell {
    /// Refuses a node with which its tenant would exceed a limit.
    pub(crate) fn check_room_for(&self, offer: &NodeOffer, is_new: bool) -> Result<(), Refusal> {
        let Some(owner) = owner_of(offer.scope.as_deref()) else { return Ok(()) };
        if is_new {
            let owned = |scope: Option<&str>| owner_of(scope) == Some(owner);
            let nodes = self.inventory.iter();
            let nodes = nodes.filter(|(_, record)| owned(record.offer.scope.as_deref())).count();
            let must =
                "one of at most 4096 nodes of a tenant in a region; delete those that are gone";
            require(nodes < MAX_NODES_PER_TENANT, "id", must)?;
        }
        let none = UsedNames::default();
        let used = self.used_names.get(owner).unwrap_or(&none);
        let known = |id: Option<ModelId>| id.is_some_and(|id| used.models.contains(&id));
        // A node without GPUs has no type.
        if !offer.model.is_empty() && !known(self.models.find(offer.model.as_str())) {
            let types = used.models.len() - usize::from(known(self.models.find("")));
            let must = "one of 64 types that nodes of a tenant may have had in a region";
            require(types < MAX_TYPES_PER_TENANT, "gpus.type", must)?;
        }
        let known = |id: Option<LabelId>| id.is_some_and(|id| used.labels.contains(&id));
        let fresh: BTreeSet<&CompactString> =
            offer.labels.iter().filter(|label| !known(self.labels.find(label.as_str()))).collect();
        let must = "among 4096 labels that nodes of a tenant may have had in a region";
        require(used.labels.len() + fresh.len() <= MAX_LABELS_PER_TENANT, "labels", must)?;
        let known = |id: Option<RackId>| id.is_some_and(|id| used.racks.contains(&id));
        let rack = usize::from(!known(self.racks.find(offer.rack.as_str())));
        let must = "one of 1024 racks that nodes of a tenant may have been in in a region";
        require(used.racks.len() + rack <= MAX_RACKS_PER_TENANT, "rack", must)
    }

    /// Records the names that a node uses.
    pub(crate) fn note_names(&mut self, offer: &NodeOffer, spec: &NodeSpec) {
        let Some(owner) = owner_of(offer.scope.as_deref()) else { return };
        let used = self.used_names.entry(AccountPath::unchecked(owner)).or_default();
        used.models.insert(spec.model);
        used.labels.extend(spec.labels.iter().copied());
        used.racks.insert(spec.rack);
    }
}
