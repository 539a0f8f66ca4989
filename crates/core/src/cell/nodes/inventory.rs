//! The nodes of a cell and the indexes that find placements.
//!
//! Nodes with equal hardware and free resources are one *state* and are scored once. States are
//! kept in slots; a slot's generation changes when it gets another state. The candidate index is a
//! pure function of the states, so a cold index decides like a warm one.

use std::cell::{Ref, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use compact_str::CompactString;
use smallvec::SmallVec;

use super::hardware::{Hardware, HardwareTable};
use super::node::{Node, NodeId, NodeState};
use super::numbers::NodeNumbers;
use super::owner::{NodeKey, owner_of};
pub use super::record::Held;
pub(crate) use super::record::{Claim, NodeRecord, Visit};
use crate::cell::command::NodeOffer;
use crate::cell::ids::{AttemptId, HardwareId};
use crate::cell::index::interner::InternedId;
use crate::cell::schedule::candidates::Candidates;
use crate::cell::schedule::forecast::{Outlook, Profile};
use crate::cell::schedule::shape::{ModelId, Shape, Shapes};
use crate::cell::schedule::supply::Supply;
use crate::name::{AccountPath, NodeName};
use crate::name_hash::NameMap;
use crate::time::Timestamp;

/// What nodes of one state have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct StateKey {
    hardware: HardwareId,
    state: NodeState,
    claims: SmallVec<[Claim; 1]>,
}

/// Nodes with equal hardware, free resources and claims.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    key: Option<StateKey>,
    /// Changes whenever the slot gets another state; never zero while it has one.
    pub(crate) generation: u64,
    /// The lowest of its nodes, cached because every lookup needs it.
    pub(crate) first: Option<NodeId>,
    pub(crate) nodes: BTreeSet<NodeId>,
}

impl State {
    /// What is free on each of its nodes.
    pub(crate) fn free(&self) -> Option<&NodeState> {
        self.key.as_ref().map(|key| &key.state)
    }
}

/// The nodes of a cell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inventory {
    nodes: Vec<Option<NodeRecord>>,
    numbers: NodeNumbers,
    by_key: BTreeMap<NodeKey, NodeId>,
    /// The nodes of an owner that list a GPU: at most one, apart from lost nodes.
    by_uuid: BTreeSet<(Option<AccountPath>, CompactString, NodeId)>,
    hardware: HardwareTable,
    states: Vec<State>,
    /// What is free on a node is what its agent chose: the table is keyed.
    slots: NameMap<StateKey, u32>,
    vacant: Vec<u32>,
    generations: u64,
    supply: Supply,
    profile: RefCell<Profile>,
    candidates: RefCell<Candidates>,
}

impl Inventory {
    pub(crate) fn find(&self, node: &NodeKey) -> Option<NodeId> {
        self.by_key.get(node).copied()
    }

    /// The nodes of this name, of every owner.
    pub(crate) fn called(&self, name: &str) -> impl Iterator<Item = NodeId> {
        let first = NodeKey::new(NodeName::unchecked(name), None);
        let name = first.name.clone();
        let named = self.by_key.range(first..).take_while(move |(key, _)| key.name == name);
        named.map(|(_, id)| *id)
    }

    /// The nodes by name, those after `after`.
    pub(crate) fn by_name(&self, after: Option<&NodeKey>) -> impl Iterator<Item = NodeId> {
        let first = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.clone()));
        self.by_key.range((first, Bound::Unbounded)).map(|(_, id)| *id)
    }

    /// The node of an owner, other than `except`, that has a GPU: its lease is valid, or something
    /// holds the GPU there.
    pub(crate) fn holder(
        &self,
        owner: Option<&str>,
        uuid: &CompactString,
        except: Option<NodeId>,
    ) -> Option<NodeId> {
        let first = (owner.map(AccountPath::unchecked), uuid.clone(), NodeId(0));
        let named = self.by_uuid.range(first.clone()..);
        let named = named.take_while(|entry| (&entry.0, &entry.1) == (&first.0, &first.1));
        let others = named.map(|(_, _, id)| *id).filter(|id| Some(*id) != except);
        others.into_iter().find(|id| {
            self.get(*id).is_some_and(|record| record.alive || !record.attempts.is_empty())
        })
    }

    /// Adds or removes the GPUs of a node in the list of uuids.
    fn list_uuids(&mut self, id: NodeId, listed: bool) {
        let Some(record) = self.nodes[id.index()].as_ref() else { return };
        let owner = owner_of(record.offer.scope.as_deref()).map(AccountPath::unchecked);
        for uuid in &record.offer.uuids {
            let entry = (owner.clone(), uuid.clone(), id);
            if listed {
                self.by_uuid.insert(entry)
            } else {
                self.by_uuid.remove(&entry)
            };
        }
    }

    pub(crate) fn get(&self, id: NodeId) -> Option<&NodeRecord> {
        self.nodes.get(id.index()).and_then(Option::as_ref)
    }

    /// A node that exists.
    pub(crate) fn node(&self, id: NodeId) -> &NodeRecord {
        self.get(id).expect("an event names only nodes that are here")
    }

    /// Changes a node and updates its slot.
    pub(crate) fn change(&mut self, id: NodeId, change: impl FnOnce(&mut NodeRecord)) {
        let record = self.nodes[id.index()].as_mut().expect("an event names only nodes here");
        change(record);
        self.replace(id);
    }

    /// Records a report, which changes nothing that is free.
    pub(crate) fn renew(&mut self, id: NodeId, seq: u64, lease_until: Timestamp) {
        let record = self.nodes[id.index()].as_mut().expect("an event names only nodes here");
        record.seq = seq;
        record.lease_until = lease_until;
    }

    /// Records that an attempt was reported running, which changes nothing that is free.
    pub(crate) fn mark_reported(&mut self, id: NodeId, attempt: AttemptId) {
        let record = self.nodes[id.index()].as_mut().expect("an event names only nodes here");
        if let Some(held) = record.attempts.get_mut(&attempt) {
            held.reported = true;
        }
    }

    /// The number behind all that were ever given out.
    pub(crate) fn next_id(&self) -> NodeId {
        NodeId(u32::try_from(self.nodes.len()).expect("fewer than 2^32 nodes"))
    }

    /// The number that the next new node gets: the lowest one that is free.
    pub(crate) fn free_id(&self) -> NodeId {
        self.numbers.first_free().unwrap_or_else(|| self.next_id())
    }

    /// An attempt that is not over has ended on a node: it names the node's number until it is over.
    pub(crate) fn name_number(&mut self, id: NodeId) {
        self.numbers.name(id);
    }

    /// Such an attempt is over.
    pub(crate) fn unname_number(&mut self, id: NodeId) {
        let vacant = self.get(id).is_none();
        self.numbers.unname(id, vacant);
    }

    /// All nodes in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, &NodeRecord)> {
        self.nodes.iter().enumerate().filter_map(|(index, record)| {
            let id = NodeId(u32::try_from(index).expect("fewer than 2^32 nodes"));
            record.as_ref().map(|record| (id, record))
        })
    }

    /// The number of slots, including those without nodes.
    pub(crate) fn slot_count(&self) -> usize {
        self.states.len()
    }

    pub(crate) fn state(&self, slot: u32) -> &State {
        &self.states[slot as usize]
    }

    /// Whether the hardware of a slot's nodes accepts a shape. Nodes in slots take work.
    pub(crate) fn slot_accepts(&self, slot: u32, shape: &Shape) -> bool {
        let key = self.states[slot as usize].key.as_ref();
        key.is_some_and(|key| self.hardware.get(key.hardware).accepts(shape))
    }

    /// The GPUs of each model on nodes that take work.
    pub(crate) fn supply(&self) -> &Supply {
        &self.supply
    }

    /// The forecast of free GPUs, by time and by preemption.
    pub(crate) fn profile(&self) -> Ref<'_, Profile> {
        // Once refreshed it stays current while it is borrowed.
        if self.profile.borrow().is_stale() {
            self.profile.borrow_mut().refresh(|id| self.outlook(id));
        }
        self.profile.borrow()
    }

    /// The forecast of a node with its model, if it takes work.
    fn outlook(&self, id: NodeId) -> Option<(ModelId, Outlook)> {
        let record = self.get(id).filter(|record| record.is_open())?;
        Some((record.node.model(), Outlook::new(&record.node, &record.attempts)))
    }

    /// The candidate index. It is updated when it is read.
    pub(crate) fn candidates(&self) -> std::cell::RefMut<'_, Candidates> {
        self.candidates.borrow_mut()
    }

    /// Adds a node, or gives a known one a new incarnation.
    pub(crate) fn register(
        &mut self,
        id: NodeId,
        offer: Box<NodeOffer>,
        node: Node,
        incarnation: u32,
        lease_until: Timestamp,
    ) {
        let hardware = self.hardware.enter(Hardware::of(&node));
        let old_hardware = self.get(id).map(|record| record.hardware);
        if id == self.next_id() {
            self.nodes.push(None);
        }
        self.numbers.take(id);
        self.list_uuids(id, false);
        // Older journals have node names that are unique over all owners; there a node may change
        // its owner.
        if let Some(record) = &self.nodes[id.index()] {
            self.by_key.remove(&NodeKey::of(&record.offer));
        }
        self.by_key.insert(NodeKey::of(&offer), id);
        match &self.nodes[id.index()] {
            Some(record) => {
                if record.attempts.is_empty() {
                    self.leave_indexes(id);
                    let record = self.nodes[id.index()].as_mut().expect("matched above");
                    record.node = node;
                } else {
                    // Attempts on the node stay: nothing but the scope may differ.
                    let record = self.nodes[id.index()].as_mut().expect("matched above");
                    record.node.set_scope(node.spec().scope);
                }
                let record = self.nodes[id.index()].as_mut().expect("matched above");
                record.hardware = hardware;
                record.offer = offer;
                record.incarnation = incarnation;
                record.seq = 0;
                record.lease_until = lease_until;
                record.alive = true;
            }
            None => {
                self.nodes[id.index()] = Some(NodeRecord {
                    offer,
                    node,
                    hardware,
                    incarnation,
                    seq: 0,
                    lease_until,
                    alive: true,
                    drained: false,
                    windows: 0,
                    kept_until: None,
                    attempts: BTreeMap::new(),
                    claims: SmallVec::new(),
                    slot: None,
                });
            }
        }
        self.list_uuids(id, true);
        self.replace(id);
        // No state is of the old one any more, unless another node has it.
        if let Some(old) = old_hardware {
            self.hardware.leave(old);
        }
    }

    /// Skips the numbers of removed nodes.
    pub(crate) fn skip_to(&mut self, id: NodeId) {
        for skipped in (self.next_id().0..id.0).map(NodeId) {
            self.nodes.push(None);
            self.numbers.give_back(skipped);
        }
    }

    /// Restores the most memory that a GPU of each model ever had.
    pub(crate) fn remember_memory(&mut self, most: &[u32]) {
        self.supply.remember_memory(most);
    }

    /// Forgets a node. Its number is given out again.
    pub(crate) fn remove(&mut self, id: NodeId) {
        self.change(id, |record| record.alive = false);
        self.list_uuids(id, false);
        if let Some(record) = self.nodes[id.index()].take() {
            self.by_key.remove(&NodeKey::of(&record.offer));
            self.hardware.leave(record.hardware);
            self.numbers.give_back(id);
        }
    }

    /// Takes the resources of an attempt on a node.
    pub(crate) fn take(&mut self, shapes: &Shapes, id: NodeId, attempt: AttemptId, held: Held) {
        self.change(id, |record| {
            record.node.take(shapes.get(held.shape), held.gpus);
            let before = record.attempts.insert(attempt, held);
            assert!(before.is_none(), "an attempt is on a node once");
        });
    }

    /// Gives back the resources of an attempt on a node.
    pub(crate) fn give(&mut self, shapes: &Shapes, id: NodeId, attempt: AttemptId) -> Held {
        let mut given = None;
        self.change(id, |record| {
            let held = record.attempts.remove(&attempt).expect("what is given back was taken");
            record.node.give(shapes.get(held.shape), held.gpus);
            given = Some(held);
        });
        given.expect("the change above has run")
    }

    /// Moves a node to the slot of its current state and marks its forecast as stale.
    fn replace(&mut self, id: NodeId) {
        let record = self.nodes[id.index()].as_mut().expect("called for nodes that are here");
        let open = record.is_open();
        record.node.set_drained(!open);
        let old = record.slot.take();
        let gpus = record.node.spec().gpus;
        let key = open.then(|| StateKey {
            hardware: record.hardware,
            state: record.node.state(),
            claims: SmallVec::from_slice(&record.claims),
        });
        self.profile.get_mut().touch(id);
        if let Some(slot) = old {
            let key = self.states[slot as usize].key.as_ref().expect("a slot with nodes");
            self.supply.leave(&key.state, gpus);
            self.leave(slot, id);
        }
        if let Some(key) = key {
            self.supply.join(&key.state, gpus);
            let slot = self.enter(key, id);
            let record = self.nodes[id.index()].as_mut().expect("checked above");
            record.slot = Some(slot);
        }
    }

    /// Removes a node from every index, before its hardware changes.
    fn leave_indexes(&mut self, id: NodeId) {
        let alive = self.node(id).alive;
        self.change(id, |record| record.alive = false);
        // Only the flag is restored; the next change adds the node to the indexes again.
        let record = self.nodes[id.index()].as_mut().expect("changed above");
        record.alive = alive;
    }

    fn leave(&mut self, slot: u32, id: NodeId) {
        let state = &mut self.states[slot as usize];
        let was_first = state.first == Some(id);
        state.nodes.remove(&id);
        state.first = state.nodes.first().copied();
        if state.nodes.is_empty() {
            let key = state.key.take().expect("a state with nodes has a key");
            state.generation = 0;
            self.slots.remove(&key);
            self.vacant.push(slot);
        }
        if was_first {
            self.candidates.get_mut().touch(slot);
        }
    }

    fn enter(&mut self, key: StateKey, id: NodeId) -> u32 {
        let slot = match self.slots.get(&key) {
            Some(slot) => *slot,
            None => {
                let slot = self.vacant.pop().unwrap_or_else(|| {
                    self.states.push(State::default());
                    u32::try_from(self.states.len() - 1).expect("fewer states than nodes")
                });
                self.generations += 1;
                let state = &mut self.states[slot as usize];
                state.key = Some(key.clone());
                state.generation = self.generations;
                self.slots.insert(key, slot);
                slot
            }
        };
        let state = &mut self.states[slot as usize];
        state.nodes.insert(id);
        if state.first.is_none_or(|first| id < first) {
            state.first = Some(id);
            self.candidates.get_mut().touch(slot);
        }
        slot
    }
}

mod check;
#[cfg(test)]
mod tests;
