//! What nodes are made of, as a number for each distinct hardware that some node has now.
//!
//! A number is given back with the last node that has the hardware, so an agent that registers again
//! with other sizes leaves nothing behind. Numbers are only compared: no event, answer, digest or image
//! has one.

use smallvec::SmallVec;

use super::node::Node;
use crate::cell::ids::{AccountId, HardwareId};
use crate::cell::index::interner::InternedId;
use crate::cell::schedule::shape::{LabelId, ModelId, Shape};
use crate::name_hash::NameMap;

/// Everything of a node's spec but the rack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Hardware {
    model: ModelId,
    gpus: u16,
    gpu_memory_mib: u32,
    cpu_milli: u32,
    memory_mib: u32,
    labels: SmallVec<[LabelId; 4]>,
    scope: Option<AccountId>,
}

impl Hardware {
    pub(crate) fn of(node: &Node) -> Hardware {
        let spec = node.spec();
        Hardware {
            model: spec.model,
            gpus: spec.gpus,
            gpu_memory_mib: spec.gpu_memory_mib,
            cpu_milli: spec.cpu_milli,
            memory_mib: spec.memory_mib,
            labels: spec.labels.clone(),
            scope: spec.scope,
        }
    }

    /// Whether nodes of this kind will do for a shape, however full they are: as
    /// [`Node::accepts`](super::node::Node::accepts).
    pub(crate) fn accepts(&self, shape: &Shape) -> bool {
        self.scope.is_none_or(|scope| shape.scopes.contains(&scope))
            && shape.allows(self.model)
            && self.gpu_memory_mib >= shape.gpu_memory_mib
            && shape.labels.iter().all(|label| self.labels.binary_search(label).is_ok())
    }
}

/// The distinct hardware of the nodes that there are.
#[derive(Clone, Debug, Default)]
pub(crate) struct HardwareTable {
    /// By number, with how many nodes have it. None where a number is free.
    entries: Vec<Option<(Hardware, usize)>>,
    ids: NameMap<Hardware, HardwareId>,
    vacant: Vec<HardwareId>,
}

impl HardwareTable {
    pub(crate) fn get(&self, id: HardwareId) -> &Hardware {
        let entry = self.entries[id.index()].as_ref();
        &entry.expect("a number that a node has").0
    }

    /// One more node has this hardware.
    pub(crate) fn enter(&mut self, hardware: Hardware) -> HardwareId {
        if let Some(id) = self.ids.get(&hardware) {
            let entry = self.entries[id.index()].as_mut();
            entry.expect("a number that a node has").1 += 1;
            return *id;
        }
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.entries.push(None);
            let index = u32::try_from(self.entries.len() - 1).expect("fewer than 2^32 nodes");
            HardwareId::from_index(index)
        });
        self.entries[id.index()] = Some((hardware.clone(), 1));
        self.ids.insert(hardware, id);
        id
    }

    /// One node less has it.
    pub(crate) fn leave(&mut self, id: HardwareId) {
        let place = &mut self.entries[id.index()];
        let entry = place.as_mut().expect("a number that a node has");
        entry.1 -= 1;
        if entry.1 == 0 {
            self.ids.remove(&entry.0);
            *place = None;
            self.vacant.push(id);
        }
    }

    /// How many numbers there are, those that are free too.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}
