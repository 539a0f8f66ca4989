//! Node registration, leases and drain.

use std::collections::BTreeSet;

use bursar_seeded::{Bug, seeded};
use compact_str::CompactString;

use super::node::{MAX_GPUS, Node, NodeId, NodeSpec};
use super::owner::{NodeKey, full_owner, owner_of};
use super::scope::covers;
use super::used_names::MAX_LEFT_DRAINED_PER_OWNER;
use crate::cell::command::{NodeOffer, Refusal};
use crate::cell::event::{AttemptOutcome, Event, StopReason};
use crate::cell::ids::AttemptId;
use crate::cell::index::timers::Timer;
use crate::cell::jobs::job::check_path;
use crate::cell::state::Cell;
use crate::name::AccountPath;
use crate::time::Timestamp;

/// The path under which the numbers of an owner's removed nodes are kept; empty for the platform.
fn owner_path(offer: &NodeOffer) -> AccountPath {
    AccountPath::unchecked(owner_of(offer.scope.as_deref()).unwrap_or_default())
}

impl NodeOffer {
    /// Refuses values without meaning.
    fn check(&self) -> Result<(), Refusal> {
        let invalid = |field, must| Err(Refusal::Invalid { field, must });
        if usize::from(self.gpus) > MAX_GPUS {
            return invalid("gpus", "at most 64");
        }
        if self.name.is_empty() {
            return invalid("name", "not empty");
        }
        let named = self.uuids.len();
        if named != 0 && named != usize::from(self.gpus) {
            return invalid("gpus.uuid", "given for every GPU, or for none");
        }
        let distinct: BTreeSet<&CompactString> = self.uuids.iter().collect();
        if let Some(scope) = &self.scope {
            check_path(scope)
                .or(invalid("scope", "an account's path, or none for all accounts"))?;
        }
        if distinct.len() != named || self.uuids.iter().any(CompactString::is_empty) {
            return invalid("gpus.uuid", "not empty, and each only once");
        }
        Ok(())
    }
}

/// Deciding.
impl Cell {
    /// How long a node is kept without a report.
    pub(crate) fn node_lease_ms(&self) -> i64 {
        let lease_ms = self.config.node_lease_ms;
        if seeded(Bug::LosesNodeEarly) { lease_ms / 4 } else { lease_ms }
    }

    pub(crate) fn find_node(&self, node: &NodeKey) -> Result<NodeId, Refusal> {
        self.inventory.find(node).ok_or(Refusal::UnknownNode)
    }

    pub(crate) fn decide_register(
        &self,
        now: Timestamp,
        offer: &NodeOffer,
        events: &mut Vec<Event>,
    ) -> Result<u32, Refusal> {
        offer.check()?;
        offer.check_sizes()?;
        let known = self.inventory.find(&NodeKey::of(offer));
        let record = known.map(|id| (id, self.inventory.node(id)));
        if let Some((_, record)) = record {
            // Only an agent whose scope covers all accounts of the node may redefine it. So a
            // node's scope never shrinks below what runs there.
            if !covers(offer.scope.as_deref(), record.offer.scope.as_deref()) {
                return Err(Refusal::NodeScope);
            }
            let scope = offer.scope.clone();
            let alike = NodeOffer { scope, ..(*record.offer).clone() } == *offer;
            if !record.attempts.is_empty() && !alike {
                return Err(Refusal::NodeBusy);
            }
        }
        self.check_gpus_free(offer, known)?;
        self.check_room_for(offer, known.is_none())?;
        // Above every number that a removed node of this owner had, so that no agent of one is
        // taken for the agent of a new node.
        let before = match record {
            Some((_, record)) => record.incarnation,
            None => self.removed_incarnations.get(&owner_path(offer)).copied().unwrap_or(0),
        };
        let incarnation = before + 1;
        let lease_until = now.plus_millis(self.node_lease_ms());
        let node = known.unwrap_or_else(|| self.inventory.free_id());
        events.push(Event::NodeRegistered {
            node,
            offer: Box::new(offer.clone()),
            incarnation,
            lease_until,
            kept_until: self.keeps_until(record.map(|(_, record)| record), lease_until),
        });
        let left = self.left_drained.get(&NodeKey::of(offer).full());
        if known.is_none() && left.is_some_and(|until| now <= *until) {
            events.push(Event::NodeDrained { node });
        }
        Ok(incarnation)
    }

    /// Refuses a node whose GPUs another node of the same owner has. This happens after a machine
    /// was renamed, until the old node is deleted or its lease has ended.
    pub(crate) fn check_gpus_free(
        &self,
        offer: &NodeOffer,
        node: Option<NodeId>,
    ) -> Result<(), Refusal> {
        let owner = owner_of(offer.scope.as_deref());
        let holder = |uuid| self.inventory.holder(owner, uuid, node).map(|holder| (uuid, holder));
        match offer.uuids.iter().find_map(holder) {
            None => Ok(()),
            Some((uuid, holder)) => {
                let node = self.inventory.node(holder).offer.name.clone();
                Err(Refusal::GpuTaken { uuid: uuid.clone(), node })
            }
        }
    }

    /// Ends every attempt on a node whose lease has ended.
    pub(crate) fn decide_node_lost(&self, now: Timestamp, node: NodeId, events: &mut Vec<Event>) {
        // First, so that the ends below find the node lost and fence nothing on it.
        events.push(Event::NodeLost { node });
        for attempt in self.inventory.node(node).attempts.keys() {
            match self.live(*attempt) {
                Some((job, _)) => self.decide_end(now, job, AttemptOutcome::Lost, None, events),
                None => events.push(Event::FenceLifted { attempt: *attempt, node }),
            }
        }
    }

    pub(crate) fn decide_drain(
        &self,
        now: Timestamp,
        node: NodeId,
        force: bool,
        events: &mut Vec<Event>,
    ) {
        let record = self.inventory.node(node);
        if !record.drained {
            events.push(Event::NodeDrained { node });
        }
        if force {
            self.decide_empty(now, &[node], true, events);
        }
    }

    /// Stops all attempts on some nodes, or only the preemptible ones. A gang on several of them is
    /// stopped once.
    pub(crate) fn decide_empty(
        &self,
        now: Timestamp,
        nodes: &[NodeId],
        everything: bool,
        events: &mut Vec<Event>,
    ) {
        let held = nodes.iter().flat_map(|node| self.inventory.node(*node).attempts.keys());
        let attempts: BTreeSet<AttemptId> = held.copied().collect();
        for attempt in attempts {
            let live = self.live(attempt);
            if let Some((job, _)) = live.filter(|(job, _)| everything || job.spec.preemptible) {
                self.decide_stop(now, job, StopReason::Drained, events);
            }
        }
    }
}

/// Applying.
impl Cell {
    /// The node that an agent offers, with all resources free.
    pub(crate) fn make_node(&mut self, offer: &NodeOffer) -> Node {
        let labels = offer.labels.iter().map(|label| self.labels.intern(label.clone())).collect();
        let scope = offer.scope.as_deref().map(|path| self.open_scope(path));
        let spec = NodeSpec {
            model: self.models.intern(offer.model.clone()),
            gpus: offer.gpus,
            gpu_memory_mib: offer.gpu_memory_mib,
            cpu_milli: offer.cpu_milli,
            memory_mib: offer.memory_mib,
            labels,
            rack: self.racks.intern(offer.rack.clone()),
            scope,
        };
        self.note_names(offer, &spec);
        Node::new(spec).expect("the number of GPUs was checked")
    }

    pub(crate) fn apply_registered(
        &mut self,
        id: NodeId,
        offer: &NodeOffer,
        incarnation: u32,
        lease_until: Timestamp,
        kept_until: Option<Timestamp>,
    ) {
        let node = self.make_node(offer);
        if let Some(record) = self.inventory.get(id) {
            self.timers.clear(record.lease_until, Timer::NodeLease(id));
        }
        self.left_drained.remove(&NodeKey::of(offer).full());
        self.inventory.register(id, Box::new(offer.clone()), node, incarnation, lease_until);
        self.inventory.change(id, |record| record.kept_until = kept_until);
        self.timers.set(lease_until, Timer::NodeLease(id));
        self.wake_for(id);
    }

    pub(crate) fn apply_reported(&mut self, id: NodeId, seq: u64, lease_until: Timestamp) {
        let record = self.inventory.node(id);
        let (before, returned) = (record.lease_until, !record.alive);
        self.timers.clear(before, Timer::NodeLease(id));
        self.timers.set(lease_until, Timer::NodeLease(id));
        self.inventory.renew(id, seq, lease_until);
        if returned {
            self.inventory.change(id, |record| record.alive = true);
            self.wake_for(id);
        }
    }

    pub(crate) fn apply_lost(&mut self, id: NodeId) {
        let lease_until = self.inventory.node(id).lease_until;
        self.timers.clear(lease_until, Timer::NodeLease(id));
        self.inventory.change(id, |record| record.alive = false);
        self.drop_reservations_on(id);
    }

    pub(crate) fn apply_drained(&mut self, id: NodeId, drained: bool) {
        self.inventory.change(id, |record| record.drained = drained);
        if drained {
            self.drop_reservations_on(id);
        } else {
            self.wake_for(id);
        }
    }

    pub(crate) fn apply_removed(&mut self, id: NodeId) {
        let record = self.inventory.node(id);
        let lease_until = record.lease_until;
        let left = (record.drained && record.alive).then(|| NodeKey::of(&record.offer));
        let (owner, incarnation) = (owner_path(&record.offer), record.incarnation);
        let highest = self.removed_incarnations.entry(owner).or_default();
        *highest = incarnation.max(*highest);
        self.note_left_drained(left, lease_until);
        self.timers.clear(lease_until, Timer::NodeLease(id));
        self.drop_reservations_on(id);
        for window in self.maintenance.values_mut() {
            window.nodes.retain(|node| *node != id);
        }
        self.inventory.remove(id);
    }

    /// Notes a drained node that is removed while its agent may still run. Nodes whose lease has ended
    /// since are dropped, and the one of the same owner that ends first if the owner has too many.
    fn note_left_drained(&mut self, left: Option<NodeKey>, until: Timestamp) {
        let now = self.now;
        self.left_drained.retain(|_, until| now <= *until);
        let Some(node) = left else { return };
        self.left_drained.insert(node.full(), until);
        let of_owner = |name: &str| full_owner(name) == node.owner.as_deref();
        let of_owner = self.left_drained.iter().filter(|(name, _)| of_owner(name));
        if of_owner.clone().count() > MAX_LEFT_DRAINED_PER_OWNER {
            let first = of_owner.min_by_key(|(name, until)| (**until, *name));
            let first = first.map(|(name, _)| name.clone());
            first.map(|name| self.left_drained.remove(&name));
        }
    }
}
