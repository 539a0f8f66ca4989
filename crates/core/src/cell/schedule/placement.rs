//! Placement: the choice of nodes for a job.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use smallvec::SmallVec;

use super::candidates::Rank;
use super::preemption::rules::Rule;
use super::score::{Cost, scarcity_cost};
use super::shape::{ModelId, Shape};
use crate::cell::event::Placement;
use crate::cell::ids::AccountId;
use crate::cell::jobs::job::{CellJob, Occupancy};
use crate::cell::nodes::inventory::Visit;
use crate::cell::nodes::node::{NodeId, RackId};
use crate::cell::share::quota::QuotaBlock;
use crate::cell::state::Cell;
use crate::time::Timestamp;

/// A placement of a whole job.
pub(crate) struct Place {
    pub(crate) model: Option<ModelId>,
    pub(crate) placements: SmallVec<[Placement; 1]>,
}

/// Why a job cannot be placed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Obstacle {
    /// No free nodes are sufficient.
    NoRoom,
    /// An account's quota blocks the job, possibly together with other obstacles (`mixed`).
    Quota { account: AccountId, mixed: bool },
}

/// Nodes found for a gang, by model and rack.
#[derive(Default)]
struct GangSearch {
    by_rack: BTreeMap<(ModelId, RackId), Vec<NodeId>>,
    by_model: BTreeMap<ModelId, usize>,
}

impl GangSearch {
    /// Adds a node. Returns the nodes of its rack once there are enough.
    fn add(
        &mut self,
        model: ModelId,
        rack: RackId,
        node: NodeId,
        wanted: usize,
    ) -> Option<SmallVec<[NodeId; 1]>> {
        let nodes = self.by_rack.entry((model, rack)).or_default();
        nodes.push(node);
        *self.by_model.entry(model).or_default() += 1;
        (nodes.len() >= wanted).then(|| SmallVec::from_slice(nodes))
    }

    /// The nodes of the first model that has enough, from as few racks as possible.
    fn across_racks(&self, wanted: usize) -> Option<SmallVec<[NodeId; 1]>> {
        let (model, _) = self.by_model.iter().find(|(_, count)| **count >= wanted)?;
        let mut racks: Vec<_> = self.by_rack.iter().filter(|((of, _), _)| of == model).collect();
        racks.sort_by_key(|((_, rack), nodes)| (Reverse(nodes.len()), *rack));
        Some(racks.into_iter().flat_map(|(_, nodes)| nodes.iter().copied()).take(wanted).collect())
    }
}

impl Cell {
    /// The instant by which a job that is placed now will have ended, at the latest or as assumed.
    pub(crate) fn gone_by(&self, now: Timestamp, job: &CellJob) -> Timestamp {
        let occupancy = self.requests.get(job.request).occupancy.limit_ms(&self.config);
        now.plus_millis(occupancy.saturating_add(self.config.start_allowance_ms))
    }

    /// The request of a job for a placement that starts now.
    pub(crate) fn visit(&self, now: Timestamp, job: &CellJob, as_guest: bool) -> Visit {
        let named = !self.rules.has(Rule::Gathering)
            || self.requests.get(job.request).occupancy != Occupancy::Unlimited;
        let until = self.gone_by(now, job);
        Visit { job: job.spec.job, class: job.class(), until, named, as_guest }
    }

    /// The best placement for a job now: one that it can keep, otherwise one as a guest.
    pub(crate) fn find_place(&self, now: Timestamp, job: &CellJob) -> Result<Place, Obstacle> {
        let quota = QuotaView::new(self, job);
        let find = |as_guest| self.find_nodes(&self.visit(now, job, as_guest), job, &quota);
        let nodes = if quota.blocks_everything() {
            None
        } else {
            find(false).or_else(|| job.may_be_guest().then(|| find(true)).flatten())
        };
        let Some(nodes) = nodes else { return Err(quota.obstacle()) };
        let shape = self.shapes.get(job.shape);
        let model = (shape.gpu.devices() > 0)
            .then(|| self.inventory.node(*nodes.first().expect("a job has nodes")).node.model());
        let placements = nodes.into_iter().map(|node| {
            let gpus = self.inventory.node(node).node.pick_gpus(shape.gpu);
            Placement { node, gpus: gpus.expect("the node was found because the shape fits") }
        });
        Ok(Place { model, placements: placements.collect() })
    }

    fn find_nodes(
        &self,
        visit: &Visit,
        job: &CellJob,
        quota: &QuotaView,
    ) -> Option<SmallVec<[NodeId; 1]>> {
        let shape = self.shapes.get(job.shape);
        let wanted = usize::from(job.spec.nodes);
        let allows = |rank: &Rank| {
            quota.allows(rank.model()) && self.inventory.node(rank.first()).allows(visit)
        };
        let mut candidates = self.inventory.candidates();
        let ranked = candidates.ranked(&self.inventory, job.shape, shape, self.demand.mix());
        if wanted == 1 {
            let best = self.best_of_models(ranked, shape, allows);
            return best.map(|node| SmallVec::from_elem(node, 1));
        }
        let mut search = GangSearch::default();
        let mut preference = None;
        for rank in ranked.iter().filter(|rank| allows(rank)) {
            // A preferred model wins over a better rack of another model.
            if preference != Some(rank.preference())
                && let Some(nodes) = search.across_racks(wanted)
            {
                return Some(nodes);
            }
            preference = Some(rank.preference());
            for node in &self.inventory.state(rank.slot()).nodes {
                let rack = self.inventory.node(*node).node.spec().rack;
                if let Some(nodes) = search.add(rank.model(), rack, *node, wanted) {
                    return Some(nodes);
                }
            }
        }
        search.across_racks(wanted)
    }

    /// The best node among the best nodes of the most preferred models. Scarcity is the same for
    /// all nodes of a model, so it is added here.
    fn best_of_models(
        &self,
        ranked: &BTreeSet<Rank>,
        shape: &Shape,
        allows: impl Fn(&Rank) -> bool,
    ) -> Option<NodeId> {
        let mut best: Option<(u16, Cost, NodeId)> = None;
        let mut from = Bound::Unbounded;
        while let Some(head) = ranked.range((from, Bound::Unbounded)).next() {
            if best.is_some_and(|(preference, ..)| preference < head.preference()) {
                break;
            }
            let end = head.end_of_model();
            if let Some(rank) = ranked.range(head..=&end).find(|rank| allows(rank)) {
                let scarcity = self.demand.mix().scarcity(rank.model(), self.inventory.supply());
                let cost = rank.cost() + scarcity_cost(shape, scarcity);
                let place = (rank.preference(), cost, rank.first());
                best = Some(best.map_or(place, |best| best.min(place)));
            }
            from = Bound::Excluded(end);
        }
        best.map(|(_, _, node)| node)
    }

    /// Every quota on a job's path that blocks a placement on this model.
    pub(crate) fn quota_blocks(&self, job: &CellJob, model: Option<ModelId>) -> Vec<QuotaBlock> {
        let thousandths = job.thousandths();
        self.accounts
            .path(job.account)
            .flat_map(|id| {
                let account = self.accounts.get(id);
                account.quota.blocks(id, &account.in_use, model, thousandths)
            })
            .collect()
    }
}

/// Which models the quotas on a job's path block.
struct QuotaView {
    /// The highest blocking account for each blocked model.
    blocked: SmallVec<[(Option<ModelId>, AccountId); 2]>,
    /// How many models the job accepts.
    models: usize,
}

impl QuotaView {
    fn new(cell: &Cell, job: &CellJob) -> QuotaView {
        let limited =
            cell.accounts.path(job.account).any(|id| !cell.accounts.get(id).quota.is_unlimited());
        if !limited {
            return QuotaView { blocked: SmallVec::new(), models: 1 };
        }
        let shape = cell.shapes.get(job.shape);
        let mut view = QuotaView { blocked: SmallVec::new(), models: 0 };
        for model in cell.models_of(&shape.models, shape.gpu.devices()) {
            view.models += 1;
            if let Some(block) = cell.quota_blocks(job, model).last() {
                view.blocked.push((model, block.account));
            }
        }
        view
    }

    fn blocks_everything(&self) -> bool {
        self.models > 0 && self.blocked.len() == self.models
    }

    fn allows(&self, model: ModelId) -> bool {
        // A job without GPUs is blocked for all models or for none.
        !self.blocked.iter().any(|(blocked, _)| *blocked == Some(model))
    }

    /// Why no placement was found. Of several blocking accounts the deepest is named: only accounts
    /// at or below it meet all of the blocking quotas.
    fn obstacle(&self) -> Obstacle {
        let Some(account) = self.blocked.iter().map(|(_, account)| *account).max() else {
            return Obstacle::NoRoom;
        };
        let same = self.blocked.iter().all(|(_, other)| *other == account);
        Obstacle::Quota { account, mixed: !(same && self.blocks_everything()) }
    }
}
