//! Preemption: who must leave so that somebody else can start.
//!
//! A plan is made on copies of nodes, down to a complete placement of the whole job, before anyone
//! is asked to leave. Nobody leaves who need not. Two triggers: a higher class, or an account under
//! its fair share against one over it. Neither can be undone by the victim: a lower class never
//! preempts a higher one; and for the share, the victim's account must have used more than twice
//! what the preemptor's will have used when it may be preempted in turn, so the reverse move is not
//! allowed until the tables have turned by a factor of four.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use super::account::ROOT;
use super::attempt::Attempt;
use super::event::{Event, StopReason};
use super::ids::{AccountId, AttemptId, ClassRank, JobId};
use super::inventory::{Claim, NodeRecord};
use super::job::Job;
use super::node::{Node, NodeId};
use super::profile::whole_gpus;
use super::shape::{GpuDemand, ModelId};
use super::share::{ScaledUsage, usage_micros};
use super::state::Cell;
use crate::time::Timestamp;

/// How many nodes are looked at for each node that a job needs.
const NODES_LOOKED_AT: usize = 32;

/// For the share, a victim's account has used more than so many times what the preemptor's will
/// have used when it may be preempted in turn.
const SHARE_GAP: u128 = 2;
/// The protection from preemption for the share doubles at most so often.
const MOST_DOUBLINGS: u32 = 20;

/// For whose sake.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// The job's class is higher.
    Class,
    /// The job's account is under its fair share.
    Share,
}

/// Who must leave, and what it costs. Lower is better.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NodePlan {
    cost: PlanCost,
    node: NodeId,
    victims: Vec<AttemptId>,
}

/// The victims' highest class, how far they are over their share, the work that is lost, and how
/// many they are.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct PlanCost {
    class: ClassRank,
    lost_micros: u64,
    victims: usize,
}

/// A complete plan.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) model: Option<ModelId>,
    pub(crate) nodes: SmallVec<[NodeId; 1]>,
    pub(crate) victims: Vec<AttemptId>,
}

impl Cell {
    /// Whether anything of a lower class could be preempted at all.
    pub(crate) fn has_lower_class(&self, class: ClassRank) -> bool {
        self.preemptible.range(..class).any(|(_, count)| *count > 0)
    }

    /// Tells the victims to leave and keeps their places for the job.
    pub(crate) fn decide_preemption(
        &self,
        now: Timestamp,
        job: &Job,
        trigger: Trigger,
        events: &mut Vec<Event>,
    ) -> bool {
        if self.victims >= self.config.victims_per_review || now < job.plan_after {
            return false;
        }
        let Some(plan) = self.plan(now, job, trigger) else { return false };
        let mut start_at = now;
        for victim in &plan.victims {
            let (victim, attempt) = self.live(*victim).expect("victims are live");
            let by = job.spec.job;
            let reason = StopReason::Preempted { by, for_share: trigger == Trigger::Share };
            if attempt.running_since.is_some() {
                start_at = start_at.max(now.plus_millis(victim.spec.grace_ms));
            }
            self.decide_stop(now, victim, reason, events);
        }
        let until = self.gone_by(now, job);
        let claims = plan.nodes.iter().flat_map(|node| &self.inventory.node(*node).claims);
        let holders: BTreeSet<JobId> = claims
            .filter(|claim| !claim.allows(job.spec.job, job.class(), until))
            .filter_map(|claim| claim.job)
            .collect();
        events.extend(holders.into_iter().map(|job| Event::ReservationDropped { job }));
        events.push(Event::ReservationMade {
            job: job.spec.job,
            model: plan.model,
            nodes: plan.nodes,
            start_at,
            preempting: true,
        });
        true
    }

    /// The cheapest complete plan for a job, if there is one.
    pub(crate) fn plan(&self, now: Timestamp, job: &Job, trigger: Trigger) -> Option<Plan> {
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
            // Without victims there is a place already, and the next pass will find it.
            (!victims.is_empty()).then_some(Plan { model: priced, nodes, victims })
        })
    }

    /// The cheapest nodes of a model for a job, as many as it needs, with who must leave there.
    fn node_plans(
        &self,
        now: Timestamp,
        job: &Job,
        model: ModelId,
        trigger: Trigger,
        shares: &ShareRule,
    ) -> Vec<NodePlan> {
        let shape = self.shapes.get(job.shape);
        let wanted = usize::from(job.spec.nodes);
        let until = self.gone_by(now, job);
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
        let free =
            free.map(|(_, id)| id).take(if wanted > 1 { NODES_LOOKED_AT * wanted } else { 0 });
        let taken = profile.by_preemption(model, up_to, count).take(NODES_LOOKED_AT * wanted);
        let mut seen = BTreeSet::new();
        let mut plans: Vec<NodePlan> = Vec::new();
        for id in free.chain(taken).filter(|id| seen.insert(*id)) {
            let record = self.inventory.node(id);
            if record.is_open()
                && record.node.accepts(shape)
                && record.claims.iter().all(|claim| {
                    claim.allows(job.spec.job, job.class(), until)
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

    /// Whether nodes that are kept for somebody by his turn alone are given up for a job that takes
    /// its share: only if he is over it as a victim would be.
    fn yields(&self, claim: &Claim, job: &Job, shares: &ShareRule) -> bool {
        let Some(holder) = claim.job else { return false };
        let by_turn = self.reservations.get(&holder).is_some_and(|kept| kept.slot.is_some());
        by_turn
            && claim.class <= job.class()
            && shares.over_by(self, job, self.job(holder), 0).is_some()
    }

    /// Who must leave a node so that one member of a job fits there.
    fn node_plan(
        &self,
        now: Timestamp,
        job: &Job,
        id: NodeId,
        record: &NodeRecord,
        shares: &ShareRule,
    ) -> Option<NodePlan> {
        let shape = self.shapes.get(job.shape);
        let mut node = record.node.clone();
        let mut victims = Vec::new();
        let mut cost = PlanCost::default();
        if !node.fits(shape) {
            let mut eligible: Vec<_> = record
                .members
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
                cost.class = cost.class.max(order.class);
                cost.lost_micros = cost.lost_micros.saturating_add(order.lost_micros);
                cost.victims += 1;
                if node.fits(shape) {
                    break;
                }
            }
        }
        node.fits(shape).then_some(NodePlan { cost, node: id, victims })
    }

    /// The victims without whom the job would not fit on all its nodes. Those whose leaving costs
    /// most are spared first.
    fn minimal(
        &self,
        now: Timestamp,
        job: &Job,
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
        for (_, _, attempt) in order {
            victims.remove(&attempt);
            if !self.fits_without(job, nodes, &victims) {
                victims.insert(attempt);
            }
        }
        victims.into_iter().collect()
    }

    /// Whether a job fits on all these nodes once some attempts have left.
    pub(crate) fn fits_without(
        &self,
        job: &Job,
        nodes: &[NodeId],
        victims: &BTreeSet<AttemptId>,
    ) -> bool {
        let shape = self.shapes.get(job.shape);
        nodes.iter().all(|id| {
            let record = self.inventory.node(*id);
            let mut node: Node = record.node.clone();
            for (attempt, held) in &record.members {
                if victims.contains(attempt) {
                    node.give(self.shapes.get(held.shape), held.gpus);
                }
            }
            node.fits(shape)
        })
    }

    /// The work of an attempt that is lost if it stops now: all that it has done.
    fn lost_micros(&self, now: Timestamp, job: &Job, attempt: &Attempt) -> u64 {
        let ran = attempt.running_since.map_or(0, |since| now.millis_since(since));
        let gpu_ms = ran.unsigned_abs().saturating_mul(job.devices());
        usage_micros(attempt.price, job.spec.gpu.per_device(), gpu_ms)
    }

    /// The children of the lowest account above both, one towards each. `None` if one account is
    /// above the other or they are the same.
    fn branches(&self, left: AccountId, right: AccountId) -> Option<(AccountId, AccountId)> {
        let up = |id| {
            let mut path: Vec<AccountId> = self.accounts.path(id).collect();
            path.reverse();
            path
        };
        up(left).into_iter().zip(up(right)).find(|(left, right)| left != right)
    }
}

/// Where an attempt stands among possible victims: the first is taken first.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct VictimOrder {
    class: ClassRank,
    /// The most over its share first.
    over: Reverse<u128>,
    lost_micros: u64,
}

/// Who may be a victim for the sake of a job.
struct ShareRule {
    trigger: Trigger,
    /// Usage over weight of the job's account on each level, with what the job will have used when
    /// it may be preempted in turn, by the account of the level.
    preemptor: BTreeMap<AccountId, u128>,
}

impl ShareRule {
    fn new(cell: &Cell, now: Timestamp, job: &Job, trigger: Trigger) -> ShareRule {
        let mut rule = ShareRule { trigger, preemptor: BTreeMap::new() };
        if trigger == Trigger::Class {
            return rule;
        }
        let model = cell.shapes.get(job.shape).models.first().copied();
        let price = cell.price(model.or(Some(ModelId(0))));
        // What it will have used when it may be preempted in turn.
        let protected = cell.config.share_minimum_runtime_ms.unsigned_abs();
        let gpu_ms = protected.saturating_mul(job.devices());
        let entry = usage_micros(price, job.spec.gpu.per_device(), gpu_ms);
        let entry = cell.accounts.decay.scale(entry, now);
        for id in cell.accounts.path(job.account).filter(|id| *id != ROOT) {
            let account = cell.accounts.get(id);
            // An account of weight zero is never under its share.
            if account.weight > 0 {
                let after = account.usage.saturating_add(entry) / u128::from(account.weight);
                rule.preemptor.insert(id, after);
            }
        }
        rule
    }

    /// Where an attempt stands among the victims, if it may be one.
    fn victim_order(
        &self,
        cell: &Cell,
        now: Timestamp,
        job: &Job,
        victim: &Job,
        attempt: &Attempt,
    ) -> Option<VictimOrder> {
        let takes_back = job.preempted_by == Some(victim.spec.job);
        if takes_back || !attempt.confirmed || attempt.stop.is_some() {
            return None;
        }
        let lost_micros = cell.lost_micros(now, victim, attempt);
        match self.trigger {
            Trigger::Class => (victim.class() < job.class()).then(|| VictimOrder {
                class: victim.class(),
                over: Reverse(cell.over_share(victim.account)),
                lost_micros,
            }),
            Trigger::Share => {
                let over = self.over_by(cell, job, victim, cell.unused_entry(attempt))?;
                let ran = attempt.running_since.map_or(0, |since| now.millis_since(since));
                let fair = victim.class() <= job.class() && ran >= cell.protected_ms(victim);
                fair.then_some(VictimOrder {
                    class: victim.class(),
                    over: Reverse(over),
                    lost_micros,
                })
            }
        }
    }

    /// By how much a victim's account is over the job's, where the two part, if by enough. What
    /// was charged to it and not used does not count.
    fn over_by(&self, cell: &Cell, job: &Job, victim: &Job, unused: ScaledUsage) -> Option<u128> {
        let (ours, theirs) = cell.branches(job.account, victim.account)?;
        let after = *self.preemptor.get(&ours)?;
        let their = cell.accounts.get(theirs);
        let used = match their.weight {
            0 => u128::MAX,
            weight => their.usage.saturating_sub(unused) / u128::from(weight),
        };
        (after.saturating_mul(SHARE_GAP) < used).then(|| used - after)
    }
}

impl Cell {
    /// How long an attempt runs before it may be preempted for the share: twice as long each time
    /// that this happened to its job, so that a long job gets through.
    ///
    /// At most as long as a job is assumed to run that names no time, so that nobody waits for ever
    /// for those who never leave.
    fn protected_ms(&self, job: &Job) -> i64 {
        let minimum = self.config.share_minimum_runtime_ms;
        let doubled = minimum.saturating_mul(1 << job.share_preemptions.min(MOST_DOUBLINGS));
        doubled.min(self.config.assumed_runtime_ms.max(minimum))
    }

    /// What an attempt was charged when it was placed and has not used.
    fn unused_entry(&self, attempt: &Attempt) -> ScaledUsage {
        let unused = attempt.entry_micros.saturating_sub(attempt.used_micros);
        self.accounts.decay.scale(unused, attempt.proposed_at)
    }

    /// Usage over weight of an account's tenant: how far it is over its share, for the order of
    /// victims.
    fn over_share(&self, account: AccountId) -> u128 {
        let tenant = self.accounts.path(account).filter(|id| *id != ROOT).last();
        tenant.map_or(0, |id| {
            let account = self.accounts.get(id);
            account.usage / u128::from(account.weight.max(1))
        })
    }
}
