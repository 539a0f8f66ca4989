//! Which numbers of nodes may be given out again.
//!
//! The number of a deleted node is free, unless an attempt that is not over has ended there: the
//! attempt still names it, and must not take another node for the one that it knew. All of this follows
//! from nodes and jobs, so no image and no digest has it.

use std::collections::{BTreeMap, BTreeSet};

use super::node::NodeId;

/// The numbers that no node has, and those that are named all the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct NodeNumbers {
    /// Numbers of deleted nodes that nothing names.
    free: BTreeSet<NodeId>,
    /// How many attempts that are not over have ended on a node, by its number.
    named: BTreeMap<NodeId, u32>,
}

impl NodeNumbers {
    /// The lowest number that is free.
    pub(crate) fn first_free(&self) -> Option<NodeId> {
        self.free.first().copied()
    }

    /// A node has this number now.
    pub(crate) fn take(&mut self, id: NodeId) {
        self.free.remove(&id);
    }

    /// No node has this number any more.
    pub(crate) fn give_back(&mut self, id: NodeId) {
        if !self.named.contains_key(&id) {
            self.free.insert(id);
        }
    }

    /// An attempt that is not over has ended on this node.
    pub(crate) fn name(&mut self, id: NodeId) {
        *self.named.entry(id).or_default() += 1;
        self.free.remove(&id);
    }

    /// Such an attempt is over. `vacant`: no node has this number.
    pub(crate) fn unname(&mut self, id: NodeId, vacant: bool) {
        let Some(count) = self.named.get_mut(&id) else { return };
        *count -= 1;
        if *count == 0 {
            self.named.remove(&id);
            if vacant {
                self.free.insert(id);
            }
        }
    }
}
