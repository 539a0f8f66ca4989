//! Compares the indexes of the inventory with its nodes.

use std::collections::{BTreeMap, BTreeSet};

use super::Inventory;
use crate::cell::invariant::{CellViolation, in_words};
use crate::cell::nodes::hardware::Hardware;
use crate::cell::nodes::node::NodeId;
use crate::cell::nodes::numbers::NodeNumbers;
use crate::cell::nodes::owner::{NodeKey, owner_of};
use crate::cell::schedule::demand::DemandMix;
use crate::cell::schedule::forecast::Profile;
use crate::cell::schedule::shape::Shapes;
use crate::cell::schedule::supply::Supply;
use crate::name::AccountPath;

impl Inventory {
    /// Whether every index is what it would be if it were made anew. `named`: the nodes on which attempts
    /// that are not over have ended.
    pub(crate) fn check_indexes(
        &self,
        shapes: &Shapes,
        mix: &DemandMix,
        named: impl Iterator<Item = NodeId>,
    ) -> Result<(), CellViolation> {
        self.check_states()?;
        let mut numbers = NodeNumbers::default();
        named.for_each(|id| numbers.name(id));
        let all = (0..self.next_id().0).map(NodeId);
        all.filter(|id| self.get(*id).is_none()).for_each(|id| numbers.give_back(id));
        if numbers != self.numbers {
            return Err("the numbers that are free are not those that nothing names".into());
        }
        let mut profile = Profile::default();
        let mut supply = Supply::default();
        for (id, record) in self.iter().filter(|(_, record)| record.is_open()) {
            profile.touch(id);
            supply.join(&record.node.state(), record.node.spec().gpus);
        }
        profile.refresh(|id| self.outlook(id));
        if !profile.lists_the_same(&self.profile()) {
            return Err("the profile does not list what nodes will have free".into());
        }
        self.check_names()?;
        if supply.capacity() != self.supply.capacity() {
            return Err("the supply does not add up".into());
        }
        self.candidates.borrow().check(self, shapes, mix)
    }

    /// Checks that every node and GPU is listed under its owner, and that no owner has a GPU twice
    /// (L8).
    fn check_names(&self) -> Result<(), CellViolation> {
        let keys = self.iter().map(|(id, record)| (NodeKey::of(&record.offer), id));
        if keys.collect::<BTreeMap<_, _>>() != self.by_key {
            return Err("the list of names differs from the nodes' names".into());
        }
        let uuids = self.iter().flat_map(|(id, record)| {
            let owner = owner_of(record.offer.scope.as_deref()).map(AccountPath::unchecked);
            record.offer.uuids.iter().map(move |uuid| (owner.clone(), uuid.clone(), id))
        });
        if uuids.collect::<BTreeSet<_>>() != self.by_uuid {
            return Err("the list of GPUs differs from what nodes offer".into());
        }
        for (owner, uuid, id) in &self.by_uuid {
            let used = self.get(*id).is_some_and(|record| !record.attempts.is_empty());
            if used && self.holder(owner.as_deref(), uuid, Some(*id)).is_some() {
                let owner = owner.as_deref().unwrap_or("the platform");
                return Err(format!("L8: {uuid} of {owner} is offered by two nodes").into());
            }
        }
        Ok(())
    }

    /// Checks that every node is in the slot of its state and nowhere else.
    pub(super) fn check_states(&self) -> Result<(), CellViolation> {
        let mut placed = 0;
        for (id, record) in self.iter() {
            let node = || in_words(record);
            if record.node.is_drained() == record.is_open() {
                return Err(format!("{}: drained while open, or the reverse", node()).into());
            }
            match record.slot {
                Some(slot) if record.is_open() => {
                    placed += 1;
                    let state = self.state(slot);
                    let alike = state.key.as_ref().is_some_and(|key| {
                        key.hardware == record.hardware
                            && key.state == record.node.state()
                            && key.claims == record.claims
                    });
                    let first = state.first == state.nodes.first().copied();
                    let alike =
                        alike && *self.hardware.get(record.hardware) == Hardware::of(&record.node);
                    if !alike || !first || !state.nodes.contains(&id) {
                        return Err(format!("{} is in the slot of another state", node()).into());
                    }
                }
                None if !record.is_open() => {}
                _ => {
                    return Err(
                        format!("{} has a slot while closed, or none while open", node()).into()
                    );
                }
            }
        }
        let listed: usize = self.states.iter().map(|state| state.nodes.len()).sum();
        if listed != placed {
            return Err(format!("{listed} nodes are in slots, {placed} should be").into());
        }
        Ok(())
    }
}
