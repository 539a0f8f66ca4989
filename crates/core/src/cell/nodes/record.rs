//! A node and what is taken and reserved on it.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::maintenance::MAINTENANCE_CLASS;
use super::node::{GpuSet, Node};
use crate::cell::command::NodeOffer;
use crate::cell::config::CellConfig;
use crate::cell::ids::{AttemptId, ClassRank, HardwareId, JobId};
use crate::cell::jobs::job::{Occupancy, Request};
use crate::cell::schedule::shape::ShapeId;
use crate::time::Timestamp;

/// What is taken on a node by one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    pub gpus: GpuSet,
    pub shape: ShapeId,
    pub class: ClassRank,
    /// Whether the attempt may be preempted.
    pub preemptible: bool,
    /// Whether the attempt has ended and its GPUs were not yet reported free.
    pub fenced: bool,
    /// Whether an agent has reported it running.
    pub reported: bool,
    /// When it will have ended at the latest, as announced or assumed.
    pub until: Timestamp,
}

/// A reservation or maintenance window on one node, from an instant on. Other jobs may use the node
/// until then.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Claim {
    pub(crate) from: Timestamp,
    /// Jobs of higher classes may ignore it.
    pub(crate) class: ClassRank,
    /// The job that the node is reserved for. `None`: maintenance.
    pub(crate) job: Option<JobId>,
    /// Whether preemptible jobs may use the node as guests until all nodes of the reservation are
    /// free.
    pub(crate) guests: bool,
    /// Whether a gang gathers its nodes, so that the reserved start is an estimate.
    pub(crate) gathers: bool,
}

impl Claim {
    /// The claim of a maintenance window.
    pub(crate) fn maintenance(from: Timestamp) -> Claim {
        Claim { from, class: MAINTENANCE_CLASS, job: None, guests: false, gathers: false }
    }

    /// Whether a job may use the node despite this claim.
    pub(crate) fn allows(&self, visit: &Visit) -> bool {
        self.job == Some(visit.job)
            || visit.class > self.class
            || self.is_after(visit.until, visit.named)
            || visit.as_guest && self.guests
    }

    /// Whether a job that ends at `until` ends before the claim begins. Where a gang gathers its
    /// nodes, only a stated end (`named`) counts. Two estimates are not compared: otherwise jobs
    /// that are not preemptible would enter as fast as others end.
    pub(super) fn is_after(&self, until: Timestamp, named: bool) -> bool {
        until <= self.from && (named || !self.gathers)
    }
}

/// A job that requests a placement on a node.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Visit {
    pub(crate) job: JobId,
    pub(crate) class: ClassRank,
    /// When it will have ended.
    pub(crate) until: Timestamp,
    /// Whether that end follows from a stated longest runtime.
    pub(crate) named: bool,
    /// Whether it would run as a guest.
    pub(crate) as_guest: bool,
}

/// A node and its state in the cell.
#[derive(Clone, Debug)]
pub(crate) struct NodeRecord {
    pub(crate) offer: Box<NodeOffer>,
    pub(crate) node: Node,
    pub(crate) hardware: HardwareId,
    pub(crate) incarnation: u32,
    pub(crate) seq: u64,
    pub(crate) lease_until: Timestamp,
    /// Whether its lease is valid.
    pub(crate) alive: bool,
    /// Whether an operator drained it.
    pub(crate) drained: bool,
    /// The number of current maintenance windows.
    pub(crate) windows: u32,
    /// After a restore: until when its agent may still run attempts that the cell does not know.
    pub(crate) kept_until: Option<Timestamp>,
    pub(crate) attempts: BTreeMap<AttemptId, Held>,
    /// In rising order.
    pub(crate) claims: SmallVec<[Claim; 1]>,
    /// Its slot among the states, while it takes work.
    pub(super) slot: Option<u32>,
}

impl NodeRecord {
    /// Whether it takes new work.
    pub(crate) fn is_open(&self) -> bool {
        self.alive && !self.drained && self.windows == 0 && self.kept_until.is_none()
    }

    /// Whether its claims allow a job.
    pub(crate) fn allows(&self, visit: &Visit) -> bool {
        self.claims.iter().all(|claim| claim.allows(visit))
    }

    /// Whether its claims allow some job of a class with a request that starts now.
    pub(crate) fn allows_some(
        &self,
        class: ClassRank,
        now: Timestamp,
        request: &Request,
        config: &CellConfig,
        gathering: bool,
    ) -> bool {
        // Most nodes have no claims.
        self.claims.is_empty() || {
            let length = request.occupancy.limit_ms(config);
            let until = now.plus_millis(length.saturating_add(config.start_allowance_ms));
            let named = !gathering || request.occupancy != Occupancy::Unlimited;
            self.claims.iter().all(|claim| {
                class > claim.class || claim.is_after(until, named) || request.guest && claim.guests
            })
        }
    }
}
