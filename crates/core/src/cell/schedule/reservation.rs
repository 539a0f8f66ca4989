//! Reservations: nodes kept for the best blocked job, so that it does not starve.
//!
//! The best blocked job of each class and model gets nodes from the instant at which they will be
//! free if every attempt ends by its longest runtime. Other jobs may use these nodes until then
//! (backfill), so backfill never delays the reserved start, which is also the estimate that users
//! see. A plan of preemption reserves its nodes in the same way, from now on.

use std::collections::BTreeSet;

use smallvec::SmallVec;

use super::forecast::{fits_at, whole_gpus};
use super::preemption::rules::Rule;
use super::shape::ModelId;
use crate::cell::event::Event;
use crate::cell::ids::{ClassRank, JobId};
use crate::cell::index::bitset::Bits;
use crate::cell::index::interner::InternedId;
use crate::cell::index::timers::Timer;
use crate::cell::jobs::job::{CellJob, Phase, Request, Waiting};
use crate::cell::nodes::inventory::{Claim, Visit};
use crate::cell::nodes::node::NodeId;
use crate::cell::state::Cell;
use crate::time::Timestamp;

/// How many nodes are examined for one reservation and model, besides four for each needed node.
const NODES_LOOKED_AT: usize = 64;
/// The delay after a failed plan of preemption doubles at most this many times.
const MAX_DOUBLINGS: u32 = 10;
/// How many requests that fit nowhere are skipped in one decision.
const REQUESTS_LOOKED_AT: usize = 8;

/// Nodes kept for a job from an instant on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reservation {
    pub(crate) class: ClassRank,
    pub(crate) nodes: SmallVec<[NodeId; 1]>,
    pub(crate) made_at: Timestamp,
    pub(crate) start_at: Timestamp,
    pub(crate) expires_at: Timestamp,
    /// The model for which this is the class's one reservation. The outer `None`: made by a plan of
    /// preemption, of which a class may have several.
    pub(crate) slot: Option<Option<ModelId>>,
    /// Whether preemptible jobs may run on the nodes as guests until all of them are free, because
    /// the reserved start is an estimate.
    pub(crate) guests: bool,
}

impl Reservation {
    pub(crate) fn claim(&self, job: JobId) -> Claim {
        Claim {
            from: self.start_at,
            class: self.class,
            job: Some(job),
            guests: self.guests,
            gathers: self.gathers(),
        }
    }

    /// Whether a gang waits until all of its nodes are free of all but guests.
    pub(crate) fn gathers(&self) -> bool {
        self.guests && self.nodes.len() > 1
    }
}

/// Deciding.
impl Cell {
    /// The model under which a job's reservation is counted: its most preferred one.
    pub(crate) fn slot_of(&self, job: &CellJob) -> Option<ModelId> {
        self.shapes.get(job.shape).models.first().copied()
    }

    /// The earliest start of a job and its nodes, if every attempt ends by its longest runtime.
    pub(crate) fn earliest(
        &self,
        now: Timestamp,
        job: &CellJob,
    ) -> Option<(Timestamp, Option<ModelId>, SmallVec<[NodeId; 1]>)> {
        let shape = self.shapes.get(job.shape);
        let listed = (0..self.models.len())
            .map(|index| ModelId(u32::try_from(index).expect("fewer than 2^32 models")));
        let mut models: Vec<ModelId> = listed.filter(|model| shape.allows(*model)).collect();
        models.sort_by_key(|model| shape.preference(*model));
        let mut best: Option<(Timestamp, Option<ModelId>, SmallVec<[NodeId; 1]>)> = None;
        for model in models {
            if let Some((at, nodes)) = self.earliest_of(now, job, model)
                && best.as_ref().is_none_or(|(best, ..)| at < *best)
            {
                let model = (shape.gpu.devices() > 0).then_some(model);
                best = Some((at, model, nodes));
            }
        }
        best
    }

    fn earliest_of(
        &self,
        now: Timestamp,
        job: &CellJob,
        model: ModelId,
    ) -> Option<(Timestamp, SmallVec<[NodeId; 1]>)> {
        let shape = self.shapes.get(job.shape);
        let wanted = usize::from(job.spec.nodes);
        let visit = self.visit(now, job, false);
        let length = visit.until.millis_since(now);
        let mut best: BTreeSet<(Timestamp, NodeId)> = BTreeSet::new();
        let profile = self.inventory.profile();
        let by_time = profile.by_time(model, whole_gpus(shape));
        let by_time = by_time.filter(|(_, id)| self.inventory.node(*id).node.admits(shape));
        for (whole_at, id) in by_time.take(NODES_LOOKED_AT + 4 * wanted) {
            let full = best.len() >= wanted;
            if full && best.last().is_some_and(|(last, _)| *last <= whole_at) {
                break;
            }
            let record = self.inventory.node(id);
            let at = fits_at(&record.node, &record.attempts, &self.shapes, shape, now);
            let until = |at: Timestamp| Visit { until: at.plus_millis(length), ..visit };
            if let Some(at) = at.filter(|at| record.allows(&until(*at))) {
                best.insert((at, id));
                if best.len() > wanted {
                    best.pop_last();
                }
            }
        }
        let last = best.last().filter(|_| best.len() >= wanted)?.0;
        Some((last, best.into_iter().map(|(_, id)| id).collect()))
    }

    /// Makes a reservation for the best blocked job of a class and model.
    pub(crate) fn decide_reservation(
        &self,
        now: Timestamp,
        class: ClassRank,
        slot: Option<ModelId>,
        events: &mut Vec<Event>,
    ) {
        let mut only = self.parked_requests(class, |request| {
            self.shapes.get(request.shape).models.first().copied() == slot
        });
        for _ in 0..REQUESTS_LOOKED_AT {
            let Some(job) = self.best_blocked(now, class, &only) else { break };
            if let Some((start_at, model, nodes)) = self.earliest(now, job) {
                let job = job.spec.job;
                let preempting = false;
                let guests = self.config.share_preemption
                    && self.rules.has(Rule::Guests)
                    && self.is_guess(&nodes);
                events.push(Event::ReservationMade {
                    job,
                    model,
                    nodes,
                    start_at,
                    preempting,
                    guests,
                });
                return;
            }
            // It does not fit even an empty cell, and must not block the other requests.
            only.remove(job.request.index());
        }
        events.push(Event::ReservationsDone { class, model: slot });
    }

    /// Parked requests of a class that `admits` accepts.
    pub(crate) fn parked_requests(
        &self,
        class: ClassRank,
        admits: impl Fn(&Request) -> bool,
    ) -> Bits {
        let mut only = Bits::default();
        if let Some(queue) = self.classes.get(&class) {
            let admitted = queue.parked.iter().filter(|at| admits(&self.requests.values()[*at]));
            admitted.for_each(|at| only.insert(at));
        }
        only
    }

    /// The best blocked job of a class with one of these requests: the oldest aged job if ageing is
    /// due, otherwise the first by fair share.
    pub(crate) fn best_blocked(
        &self,
        now: Timestamp,
        class: ClassRank,
        only: &Bits,
    ) -> Option<&CellJob> {
        let mut aged = self.aged_jobs(now, class);
        aged.find(|job| only.contains(job.request.index())).or_else(|| {
            let next = self.accounts.next(class, Some(only), &Bits::default());
            next.map(|id| self.job(id))
        })
    }
}

/// Applying.
impl Cell {
    pub(crate) fn apply_reservation_made(
        &mut self,
        job: JobId,
        nodes: &[NodeId],
        start_at: Timestamp,
        preempting: bool,
        guests: bool,
    ) {
        self.drop_reservation(job);
        let class = self.job(job).class();
        let slot = self.slot_of(self.job(job));
        // Nodes of preempted attempts are free when the nodes report it, at the latest when the
        // nodes' leases end. Without preemption, attempts may run longer than announced or assumed.
        // Nodes that are free stay reserved meanwhile, so that a gang gathers its nodes.
        let patience = if preempting {
            self.config.plan_timeout_ms.saturating_add(self.config.node_lease_ms)
        } else {
            self.config.assumed_runtime_ms
        };
        let reservation = Reservation {
            class,
            nodes: nodes.into(),
            start_at,
            expires_at: start_at.plus_millis(patience),
            made_at: self.now,
            slot: (!preempting).then_some(slot),
            guests,
        };
        self.timers.set(reservation.expires_at, Timer::Reservation(job));
        let claim = reservation.claim(job);
        for node in nodes {
            self.add_claim(*node, claim);
        }
        if preempting {
            self.stop_waiting(job);
            self.job_mut(job).phase = Phase::Waiting(Waiting::Nominated);
        } else {
            let queue = self.class_mut(class);
            queue.unreserved.remove(&slot);
            queue.reserved.insert(slot, job);
        }
        self.reservations.insert(job, reservation);
    }

    /// Whether an attempt on these nodes has no longest runtime, which makes the reserved start an
    /// estimate.
    fn is_guess(&self, nodes: &[NodeId]) -> bool {
        let mut attempts = nodes.iter().flat_map(|node| self.inventory.node(*node).attempts.keys());
        attempts.any(|attempt| {
            self.live(*attempt).is_some_and(|(job, _)| job.spec.max_runtime_ms.is_none())
        })
    }

    /// Drops a job's reservation, if it has one, and wakes the requests that may use the nodes. A
    /// job for which attempts were preempted competes again.
    pub(crate) fn drop_reservation(&mut self, job: JobId) {
        for node in self.remove_reservation(job) {
            self.wake_for(node);
        }
    }

    /// Drops a job's reservation without waking any request, and returns its nodes.
    pub(crate) fn remove_reservation(&mut self, job: JobId) -> SmallVec<[NodeId; 1]> {
        let Some(reservation) = self.reservations.remove(&job) else { return SmallVec::new() };
        self.ready.remove(&job);
        self.timers.clear(reservation.expires_at, Timer::Reservation(job));
        let claim = reservation.claim(job);
        for node in &reservation.nodes {
            if self.inventory.get(*node).is_some() {
                self.remove_claim(*node, claim);
            }
        }
        match reservation.slot {
            Some(slot) => {
                let queue = self.class_mut(reservation.class);
                queue.reserved.remove(&slot);
                queue.unreserved.insert(slot);
                self.idle = false;
            }
            None => {
                if self.job(job).waiting() == Some(Waiting::Nominated) {
                    self.compete(job);
                }
            }
        }
        reservation.nodes
    }

    /// Drops a reservation that did not lead to a start in time. After a failed plan of preemption
    /// the next plan for the job is delayed, twice as long each time, so that a job that never
    /// starts does not preempt others again and again.
    pub(crate) fn apply_reservation_dropped(&mut self, at: Timestamp, id: JobId) {
        let planned = self.job(id).waiting() == Some(Waiting::Nominated);
        self.drop_reservation(id);
        if planned {
            let review_ms = self.config.review_ms;
            let job = self.job_mut(id);
            job.failed_plans = (job.failed_plans + 1).min(MAX_DOUBLINGS);
            job.plan_after = at.plus_millis(review_ms.saturating_mul(1 << job.failed_plans));
        }
    }

    /// Drops every reservation that includes a node.
    pub(crate) fn drop_reservations_on(&mut self, node: NodeId) {
        let claims = self.inventory.node(node).claims.clone();
        for job in claims.iter().filter_map(|claim| claim.job) {
            self.drop_reservation(job);
        }
    }
}
