//! Where a job goes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use smallvec::SmallVec;

use super::candidates::Rank;
use super::score::{Cost, scarcity_cost};
use super::shape::{ModelId, Shape};
use crate::cell::event::Placement;
use crate::cell::ids::AccountId;
use crate::cell::jobs::job::{Job, Occupancy};
use crate::cell::nodes::inventory::Visit;
use crate::cell::nodes::node::{NodeId, RackId};
use crate::cell::share::quota::QuotaBlock;
use crate::cell::state::Cell;
use crate::time::Timestamp;

/// A place for a whole job.
pub(crate) struct Place {
    pub(crate) model: Option<ModelId>,
    pub(crate) members: SmallVec<[Placement; 1]>,
}

/// Why there is no place.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// Nothing free serves it.
    NoRoom,
    /// An account's quota is in the way, and perhaps something else.
    Quota { account: AccountId, mixed: bool },
}

/// Nodes that were found for a gang, by model and rack.
#[derive(Default)]
struct GangSearch {
    by_rack: BTreeMap<(ModelId, RackId), Vec<NodeId>>,
    by_model: BTreeMap<ModelId, usize>,
}

impl GangSearch {
    /// Adds a node; answers with the nodes of its rack if they are enough now.
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
    /// The instant by which a job that is placed now will be gone, as others must assume.
    pub(crate) fn gone_by(&self, now: Timestamp, job: &Job) -> Timestamp {
        let occupancy = self.requests.get(job.request).occupancy.limit_ms(&self.config);
        now.plus_millis(occupancy.saturating_add(self.config.start_allowance_ms))
    }

    /// A job that asks for a place now.
    pub(crate) fn visit(&self, now: Timestamp, job: &Job, as_guest: bool) -> Visit {
        let named = self.requests.get(job.request).occupancy != Occupancy::Unlimited;
        let until = self.gone_by(now, job);
        Visit { job: job.spec.job, class: job.class(), until, named, as_guest }
    }

    /// The best place for a job now: one that it can keep, or else one that it has as a guest.
    pub(crate) fn find_place(&self, now: Timestamp, job: &Job) -> Result<Place, Obstacle> {
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
        let members = nodes.into_iter().map(|node| {
            let gpus = self.inventory.node(node).node.pick_gpus(shape.gpu);
            Placement { node, gpus: gpus.expect("the node was found because the shape fits") }
        });
        Ok(Place { model, members: members.collect() })
    }

    fn find_nodes(
        &self,
        visit: &Visit,
        job: &Job,
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
            // A model that the user likes better wins over a better rack of another.
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

    /// The best node among the best of each model, those that the user likes most first. What a
    /// model's scarcity costs is the same for all its nodes, so it is added here.
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

    /// Every quota on a job's path that is in the way of one of these models.
    pub(crate) fn quota_blocks(&self, job: &Job, model: Option<ModelId>) -> Vec<QuotaBlock> {
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

/// What the quotas on a job's path say to each model that it may get.
struct QuotaView {
    /// The highest account in the way of each model that has one.
    blocked: SmallVec<[(Option<ModelId>, AccountId); 2]>,
    /// How many models the job may get.
    models: usize,
}

impl QuotaView {
    fn new(cell: &Cell, job: &Job) -> QuotaView {
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

    /// Why nothing was found. Of several accounts in the way, the deepest: only what is below it
    /// meets them all.
    fn obstacle(&self) -> Obstacle {
        let Some(account) = self.blocked.iter().map(|(_, account)| *account).max() else {
            return Obstacle::NoRoom;
        };
        let same = self.blocked.iter().all(|(_, other)| *other == account);
        Obstacle::Quota { account, mixed: !(same && self.blocks_everything()) }
    }
}
