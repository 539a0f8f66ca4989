//! Read access to a cell's nodes, windows, jobs and prices.

use compact_str::CompactString;

use super::inventory::NodeRecord;
use super::node::NodeId;
use super::owner::{NodeKey, owner_of};
use crate::cell::command::{JobSpec, NodeOffer};
use crate::cell::config::CellConfig;
use crate::cell::ids::{AttemptId, JobId, MaintenanceId};
use crate::cell::index::interner::InternedId;
use crate::cell::jobs::attempt::AttemptNodePhase;
use crate::cell::share::accounts::ROOT;
use crate::cell::state::Cell;
use crate::time::Timestamp;

/// The current state of a node.
#[derive(Clone, Debug)]
pub struct NodeView<'a> {
    /// What its agent offered.
    pub offer: &'a NodeOffer,
    /// The number of its agent's last start.
    pub incarnation: u32,
    /// The number of its agent's last report.
    pub seq: u64,
    /// When its lease ends.
    pub lease_until: Timestamp,
    /// Whether its lease is valid.
    pub alive: bool,
    /// Whether an operator drained it.
    pub drained: bool,
    /// Whether a maintenance window is active.
    pub in_maintenance: bool,
    /// After a restore: until when nothing is placed on it.
    pub kept_until: Option<Timestamp>,
    /// Thousandths of each device that are free.
    pub free: &'a [u16],
    /// The attempts that have or fence devices there, in order.
    pub attempts: Vec<AttemptId>,
}

impl NodeView<'_> {
    /// Whether it takes new work.
    pub fn is_open(&self) -> bool {
        self.alive && !self.drained && !self.in_maintenance && self.kept_until.is_none()
    }
}

/// The devices of a node that an attempt has or fences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldDevices {
    /// The attempt.
    pub attempt: AttemptId,
    /// The devices, by index.
    pub devices: Vec<usize>,
    /// What it has of each, in thousandths.
    pub thousandths: u16,
    /// Whether it was reported running there and has not ended.
    pub is_running: bool,
}

/// A maintenance window.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WindowView<'a> {
    /// When it begins.
    pub from: Timestamp,
    /// When it ends.
    pub to: Timestamp,
    /// Whether it has begun.
    pub began: bool,
    /// The offers of its nodes.
    pub nodes: Vec<&'a NodeOffer>,
}

fn view(record: &NodeRecord) -> NodeView<'_> {
    NodeView {
        offer: &record.offer,
        incarnation: record.incarnation,
        seq: record.seq,
        lease_until: record.lease_until,
        alive: record.alive,
        drained: record.drained,
        in_maintenance: record.windows > 0,
        kept_until: record.kept_until,
        free: record.node.free_gpus(),
        attempts: record.attempts.keys().copied().collect(),
    }
}

impl Cell {
    /// The settings.
    pub fn config(&self) -> &CellConfig {
        &self.config
    }

    /// All nodes in the order of their numbers.
    pub fn nodes(&self) -> impl Iterator<Item = NodeView<'_>> {
        self.inventory.iter().map(|(_, record)| view(record))
    }

    /// The node with this number, unless it was removed.
    pub fn node_numbered(&self, node: NodeId) -> Option<NodeView<'_>> {
        self.inventory.get(node).map(view)
    }

    /// A node, by its name and owner.
    pub fn node_named(&self, node: impl Into<NodeKey>) -> Option<NodeView<'_>> {
        self.inventory.find(&node.into()).and_then(|id| self.inventory.get(id)).map(view)
    }

    /// The nodes by name and owner, those after `after`.
    pub fn nodes_by_name(&self, after: Option<&NodeKey>) -> impl Iterator<Item = NodeView<'_>> {
        self.inventory.by_name(after).filter_map(|id| self.inventory.get(id)).map(view)
    }

    /// The nodes of this name: one of each owner that has one, the platform's first.
    pub fn nodes_called(&self, name: &str) -> impl Iterator<Item = NodeView<'_>> {
        self.inventory.called(name).filter_map(|id| self.inventory.get(id)).map(view)
    }

    /// The node with this GPU, of the same owner as `scope`, unless it is lost.
    pub fn node_with_gpu(&self, scope: Option<&str>, uuid: &CompactString) -> Option<NodeView<'_>> {
        let holder = self.inventory.holder(owner_of(scope), uuid, None);
        holder.and_then(|id| self.inventory.get(id)).map(view)
    }

    /// What attempts have of a node's devices, in the order of the attempts.
    pub fn held_devices(&self, node: &NodeKey) -> Vec<HeldDevices> {
        let record = self.inventory.find(node).and_then(|id| self.inventory.get(id));
        let attempts = record.into_iter().flat_map(|record| &record.attempts);
        let held = attempts.map(|(attempt, held)| HeldDevices {
            attempt: *attempt,
            devices: held.gpus.iter().collect(),
            thousandths: self.shapes.get(held.shape).gpu.per_device(),
            is_running: held.reported && !held.fenced,
        });
        held.collect()
    }

    /// The accounts at or below which there are jobs, parents first: their path, how many jobs have
    /// GPUs, and how many wait.
    pub fn busy_accounts(&self) -> impl Iterator<Item = (&str, (u32, u32))> {
        let counts = self.accounts.iter().map(|(_, account)| {
            let in_use = &account.in_use;
            (account.path.as_str(), (in_use.running_jobs, in_use.waiting_jobs))
        });
        counts.filter(|(path, counts)| !path.is_empty() && *counts != (0, 0))
    }

    /// The rank of a node in an attempt that has not ended. `None`: the attempt does not run there.
    pub fn rank_of(&self, attempt: AttemptId, node: &NodeKey) -> Option<u32> {
        let (_, live) = self.live(attempt)?;
        let node = self.inventory.find(node)?;
        let rank = live.nodes.iter().position(|on_node| on_node.node == node)?;
        u32::try_from(rank).ok()
    }

    /// Whether an attempt has something on a node and was proposed before an instant. An ended
    /// attempt counts as earlier, because its instant is no longer known.
    pub fn holds_since_before(&self, at: Timestamp, attempt: AttemptId, node: &NodeKey) -> bool {
        let held = self.inventory.find(node).and_then(|id| self.inventory.get(id));
        held.is_some_and(|record| record.attempts.contains_key(&attempt))
            && self.live(attempt).is_none_or(|(_, live)| live.proposed_at < at)
    }

    /// A maintenance window.
    pub fn maintenance_window(&self, id: MaintenanceId) -> Option<WindowView<'_>> {
        let window = self.maintenance.get(&id)?;
        let records = window.nodes.iter().filter_map(|node| self.inventory.get(*node));
        let nodes = records.map(|record| &*record.offer).collect();
        Some(WindowView { from: window.from, to: window.to, began: window.began, nodes })
    }

    /// The spec of a job in this cell, as it was admitted.
    pub fn job_spec(&self, job: JobId) -> Option<&JobSpec> {
        self.jobs.get(&job).map(|job| &*job.spec)
    }

    /// When an attempt was first seen running on a node, and its number of devices there.
    pub fn running_since(&self, attempt: AttemptId, node: &NodeKey) -> Option<(Timestamp, u64)> {
        let (_, live) = self.live(attempt)?;
        let on_node = live.on_node(self.inventory.find(node)?)?;
        match on_node.phase {
            AttemptNodePhase::Running { since } => Some((since, on_node.gpus.len() as u64)),
            AttemptNodePhase::Silent | AttemptNodePhase::Ended(_) => None,
        }
    }

    /// The list price of a model, in micro-credits per GPU-hour, if one was set.
    pub fn list_price(&self, model: &str) -> Option<u64> {
        let known = self.models.values().iter().position(|known| known == model)?;
        self.prices.iter().find(|(id, _)| id.index() == known).map(|(_, price)| *price)
    }

    /// The models that have a list price.
    pub fn priced_models(&self) -> impl Iterator<Item = &str> {
        self.prices.keys().map(|model| self.models.get(*model).as_str())
    }

    /// How many jobs have GPUs, and how many wait.
    pub fn job_counts(&self) -> (u32, u32) {
        let all = &self.accounts.get(ROOT).in_use;
        (all.running_jobs, all.waiting_jobs)
    }

    /// How many jobs at and below an account have GPUs, and how many wait.
    pub fn job_counts_below(&self, account: &str) -> (u32, u32) {
        let own = self.accounts.find(account).map(|account| &self.accounts.get(account).in_use);
        own.map_or((0, 0), |own| (own.running_jobs, own.waiting_jobs))
    }

    /// Micro-credits per hour that attempts at and below an account cost while they have GPUs.
    pub fn spending_per_hour(&self, account: &str) -> u64 {
        self.accounts.find(account).map_or(0, |account| self.accounts.get(account).rate)
    }

    /// The time in which the usage that shares count halves.
    pub fn half_life_ms(&self) -> i64 {
        self.accounts.decay.half_life_ms()
    }
}
