//! Preemption: which attempts are stopped so that another job can start.
//!
//! A plan is computed on copies of nodes, down to a complete placement of the whole job, before any
//! attempt is stopped. It contains no victim that is not needed. There are two triggers: the taker
//! has a higher class, or its account is under its fair share and the victim's is over it.
//! `fairness.rs` decides which attempts are possible victims. Guests on nodes reserved for a job
//! are evicted when they are the only obstacle to its start.

pub mod cause;
mod fairness;
pub mod rules;

use std::cmp::Reverse;
use std::collections::BTreeSet;

use smallvec::SmallVec;

use self::cause::{PolicyRule, PreemptionCause};
use self::fairness::{ShareRule, VictimOrder};
use self::rules::Rule;
use super::forecast::whole_gpus;
use super::shape::{GpuDemand, ModelId};
use crate::cell::event::{Event, StopReason};
use crate::cell::ids::{AttemptId, ClassRank, JobId};
use crate::cell::jobs::attempt::CellAttempt;
use crate::cell::jobs::job::CellJob;
use crate::cell::nodes::inventory::{Claim, NodeRecord};
use crate::cell::nodes::node::{Node, NodeId};
use crate::cell::share::decay::usage_micros;
use crate::cell::state::Cell;
use crate::time::Timestamp;

/// How many nodes are examined for each node that a job needs.
const NODES_LOOKED_AT: usize = 32;

/// Why a job may preempt.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Trigger {
    /// The job's class is higher.
    Class,
    /// The job's account is under its fair share.
    Share,
}

/// The victims on one node and their cost. The lowest cost is best.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct NodePlan {
    cost: PlanCost,
    node: NodeId,
    victims: Vec<AttemptId>,
}

/// The sort key of plans, most significant field first: the highest class among the victims,
/// lost work, and the number of victims.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct PlanCost {
    class: ClassRank,
    lost_micros: u64,
    victims: usize,
}

impl PlanCost {
    /// The cost of a plan without victims.
    const NONE: PlanCost = PlanCost { class: ClassRank(0), lost_micros: 0, victims: 0 };

    fn add(&mut self, victim: &VictimOrder) {
        self.class = self.class.max(victim.class);
        self.lost_micros = self.lost_micros.saturating_add(victim.lost_micros);
        self.victims += 1;
    }
}

/// A complete plan: where the job will start, and which attempts are stopped for it.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) model: Option<ModelId>,
    pub(crate) nodes: SmallVec<[NodeId; 1]>,
    pub(crate) victims: Vec<AttemptId>,
}

impl Cell {
    /// Whether any attempt of a lower class is preemptible.
    pub(crate) fn has_lower_class(&self, class: ClassRank) -> bool {
        self.preemptible.range(..class).any(|(_, count)| *count > 0)
    }

    /// Stops the victims of the best plan, if there is one, and reserves their nodes for the job.
    pub(crate) fn decide_preemption(
        &self,
        now: Timestamp,
        job: &CellJob,
        trigger: Trigger,
        events: &mut Vec<Event>,
    ) -> bool {
        if self.victims >= self.config.victims_per_review || now < job.plan_after {
            return false;
        }
        let Some(plan) = self.plan(now, job, trigger) else { return false };
        let shares = ShareRule::new(self, now, job, trigger);
        let cause = |victim: &CellJob, live: &CellAttempt| shares.cause(self, job, victim, live);
        self.decide_plan(now, job, plan, cause, events);
        true
    }

    /// Evicts the guests on the nodes reserved for a job, if they are the only obstacle to its
    /// start.
    pub(crate) fn decide_guests_leave(
        &self,
        now: Timestamp,
        job: &CellJob,
        events: &mut Vec<Event>,
    ) -> bool {
        let kept = self.reservations.get(&job.spec.job).filter(|kept| kept.guests);
        let Some(kept) = kept.filter(|_| now >= job.plan_after) else { return false };
        let nodes = kept.nodes.iter().map(|node| self.inventory.node(*node));
        let visit = self.visit(now, job, false);
        let taken = !nodes.clone().all(|record| record.is_open() && record.allows(&visit));
        let guests: BTreeSet<AttemptId> = nodes
            .flat_map(|record| &record.attempts)
            .filter(|(_, held)| held.preemptible && !held.fenced && held.class <= job.class())
            .filter(|(attempt, _)| {
                self.live(**attempt).is_some_and(|(guest, live)| {
                    guest.may_be_guest()
                        && live.proposed_at >= kept.made_at
                        && live.confirmed
                        && live.stop.is_none()
                })
            })
            .map(|(attempt, _)| *attempt)
            .collect();
        let first = self.inventory.node(*kept.nodes.first().expect("a job has nodes"));
        let model = (job.spec.gpu.devices() > 0).then(|| first.node.model());
        if taken
            || guests.is_empty()
            || !self.quota_blocks(job, model).is_empty()
            || !self.fits_without(job, &kept.nodes, &guests)
        {
            return false;
        }
        let victims = self.minimal(now, job, &kept.nodes, guests);
        let plan = Plan { model, nodes: kept.nodes.clone(), victims };
        let start_at = kept.start_at;
        let cause = |_: &CellJob, _: &CellAttempt| PreemptionCause::Guest { start_at };
        self.decide_plan(now, job, plan, cause, events);
        true
    }

    /// Stops the victims of a plan and reserves its nodes for the job.
    fn decide_plan(
        &self,
        now: Timestamp,
        job: &CellJob,
        plan: Plan,
        cause: impl Fn(&CellJob, &CellAttempt) -> PreemptionCause,
        events: &mut Vec<Event>,
    ) {
        let mut start_at = now;
        for victim in &plan.victims {
            let (victim, attempt) = self.live(*victim).expect("victims are live");
            let cause = cause(victim, attempt);
            let (by, for_share) = (job.spec.job, cause.rule() == PolicyRule::Share);
            let reason = StopReason::Preempted { by, for_share, cause: Some(cause) };
            if attempt.running_since.is_some() {
                start_at = start_at.max(now.plus_millis(victim.spec.grace_ms));
            }
            self.decide_stop(now, victim, reason, events);
        }
        let visit = self.visit(now, job, job.may_be_guest());
        let claims = plan.nodes.iter().flat_map(|node| &self.inventory.node(*node).claims);
        let holders: BTreeSet<JobId> =
            claims.filter(|claim| !claim.allows(&visit)).filter_map(|claim| claim.job).collect();
        events.extend(holders.into_iter().map(|job| Event::ReservationDropped { job }));
        events.push(Event::ReservationMade {
            job: job.spec.job,
            model: plan.model,
            nodes: plan.nodes,
            start_at,
            preempting: true,
            guests: false,
        });
    }

    /// The cheapest complete plan for a job, if there is one.
    pub(crate) fn plan(&self, now: Timestamp, job: &CellJob, trigger: Trigger) -> Option<Plan> {
        let shape = self.shapes.get(job.shape);
        let shares = ShareRule::new(self, now, job, trigger);
        let mut models: Vec<ModelId> = (0..self.models.len())
            .map(|index| ModelId(u32::try_from(index).expect("fewer than 2^32 models")))
            .filter(|model| shape.allows(*model))
            .collect();
        models.sort_by_key(|model| shape.preference(*model));
        models.into_iter().find_map(|model| {
            let priced = (shape.gpu.devices() > 0).then_some(model);
            if !self.quota_blocks(job, priced).is_empty() {
                return None;
            }
            let plans = self.node_plans(now, job, model, trigger, &shares);
            let nodes: SmallVec<[NodeId; 1]> = plans.iter().map(|plan| plan.node).collect();
            if nodes.len() < usize::from(job.spec.nodes) {
                return None;
            }
            let victims: BTreeSet<AttemptId> =
                plans.into_iter().flat_map(|plan| plan.victims).collect();
            let victims = self.minimal(now, job, &nodes, victims);
            // Without victims the job fits already; the next pass starts it.
            (!victims.is_empty()).then_some(Plan { model: priced, nodes, victims })
        })
    }

    /// The cheapest nodes of a model for a job, as many as it needs, each with its victims.
    fn node_plans(
        &self,
        now: Timestamp,
        job: &CellJob,
        model: ModelId,
        trigger: Trigger,
        shares: &ShareRule,
    ) -> Vec<NodePlan> {
        let shape = self.shapes.get(job.shape);
        let wanted = usize::from(job.spec.nodes);
        let visit = self.visit(now, job, job.may_be_guest());
        let count = match shape.gpu {
            GpuDemand::None | GpuDemand::Share(_) => 0,
            GpuDemand::Whole(_) => whole_gpus(shape),
        };
        let up_to = match trigger {
            Trigger::Class => ClassRank(job.class().0.saturating_sub(1)),
            Trigger::Share => job.class(),
        };
        let profile = self.inventory.profile();
        let free = profile.by_time(model, whole_gpus(shape)).take_while(|(at, _)| *at <= now);
        let admits = |id: &NodeId| self.inventory.node(*id).node.admits(shape);
        let free = free.map(|(_, id)| id).filter(admits);
        let free = free.take(if wanted > 1 { NODES_LOOKED_AT * wanted } else { 0 });
        let taken = profile.by_preemption(model, up_to, count).filter(admits);
        let taken = taken.filter(|id| self.may_preempt_on(job, *id)).take(NODES_LOOKED_AT * wanted);
        let mut seen = BTreeSet::new();
        let mut plans: Vec<NodePlan> = Vec::new();
        for id in free.chain(taken).filter(|id| seen.insert(*id)) {
            let record = self.inventory.node(id);
            if record.is_open()
                && record.node.accepts(shape)
                && record.claims.iter().all(|claim| {
                    claim.allows(&visit)
                        || trigger == Trigger::Share && self.yields(claim, job, shares)
                })
                && let Some(plan) = self.node_plan(now, job, id, record, shares)
            {
                plans.push(plan);
            }
        }
        plans.sort();
        plans.truncate(wanted);
        plans
    }

    /// Whether a reservation yields to a job that takes for its share: its holder must be as far over
    /// its share as a victim must be. Otherwise an account over its share would keep its nodes for as
    /// long as its jobs run, by jobs that wait. Reservations made by a plan of preemption never yield.
    fn yields(&self, claim: &Claim, job: &CellJob, shares: &ShareRule) -> bool {
        let Some((id, holder)) = claim.job.map(|id| (id, self.job(id))) else { return false };
        self.rules.has(Rule::Yielding)
            && self.reservations.get(&id).is_some_and(|kept| kept.slot.is_some())
            && claim.class <= job.class()
            && shares.is_over(self, job, holder)
    }

    /// The victims on a node that make room for one node of a job.
    fn node_plan(
        &self,
        now: Timestamp,
        job: &CellJob,
        id: NodeId,
        record: &NodeRecord,
        shares: &ShareRule,
    ) -> Option<NodePlan> {
        let shape = self.shapes.get(job.shape);
        let mut node = record.node.clone();
        let mut victims = Vec::new();
        let mut cost = PlanCost::NONE;
        if !node.fits(shape) {
            let mut eligible: Vec<_> = record
                .attempts
                .iter()
                .filter(|(_, held)| held.preemptible && !held.fenced)
                .filter_map(|(attempt, held)| {
                    let (victim, live) = self.live(*attempt)?;
                    let order = shares.victim_order(self, now, job, victim, live)?;
                    Some((order, *attempt, held))
                })
                .collect();
            eligible.sort_by_key(|(order, attempt, _)| (*order, *attempt));
            for (order, attempt, held) in eligible {
                node.give(self.shapes.get(held.shape), held.gpus);
                victims.push(attempt);
                cost.add(&order);
                if node.fits(shape) {
                    break;
                }
            }
        }
        node.fits(shape).then_some(NodePlan { cost, node: id, victims })
    }

    /// The victims without which the job would not fit on all its nodes. Attempts of the
    /// highest class, then with the most work to lose are spared first.
    fn minimal(
        &self,
        now: Timestamp,
        job: &CellJob,
        nodes: &[NodeId],
        mut victims: BTreeSet<AttemptId>,
    ) -> Vec<AttemptId> {
        let mut order: Vec<_> = victims
            .iter()
            .filter_map(|attempt| {
                let (victim, live) = self.live(*attempt)?;
                Some((victim.class(), self.lost_micros(now, victim, live), *attempt))
            })
            .collect();
        order.sort_by_key(|key| Reverse(*key));
        for (.., attempt) in order {
            victims.remove(&attempt);
            if !self.fits_without(job, nodes, &victims) {
                victims.insert(attempt);
            }
        }
        victims.into_iter().collect()
    }

    /// Whether a job fits on all these nodes after the victims have ended.
    pub(crate) fn fits_without(
        &self,
        job: &CellJob,
        nodes: &[NodeId],
        victims: &BTreeSet<AttemptId>,
    ) -> bool {
        let shape = self.shapes.get(job.shape);
        nodes.iter().all(|id| {
            let record = self.inventory.node(*id);
            let mut node: Node = record.node.clone();
            for (attempt, held) in &record.attempts {
                if victims.contains(attempt) {
                    node.give(self.shapes.get(held.shape), held.gpus);
                }
            }
            node.fits(shape)
        })
    }

    /// The work that is lost if an attempt stops now: all of its running time, priced.
    pub(crate) fn lost_micros(&self, now: Timestamp, job: &CellJob, attempt: &CellAttempt) -> u64 {
        let ran = attempt.running_since.map_or(0, |since| now.millis_since(since));
        let gpu_ms = ran.unsigned_abs().saturating_mul(job.devices());
        usage_micros(attempt.price, job.spec.gpu.per_device(), gpu_ms)
    }
}
