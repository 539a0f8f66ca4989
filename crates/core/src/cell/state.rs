//! The state of a cell, and small changes that many events share.

use std::collections::{BTreeMap, BTreeSet};

use compact_str::CompactString;
use smallvec::SmallVec;

use super::config::CellConfig;
use super::ids::{AccountId, ClassRank, JobId, MaintenanceId, RequestId};
use super::index::aside::CellAside;
use super::index::bitset::Bits;
use super::index::interner::{InternedId, Interner};
use super::index::timers::{Timer, Timers};
use super::jobs::demands::UsedDemands;
use super::jobs::idempotency::Done;
use super::jobs::job::{CellJob, Phase, Request, Waiting, when_free};
use super::jobs::table::Jobs;
use super::nodes::inventory::{Inventory, NodeRecord};
use super::nodes::maintenance::MaintenanceWindow;
use super::nodes::node::{NodeId, RackId, Room};
use super::nodes::used_names::UsedNames;
use super::schedule::demand::Demand;
use super::schedule::preemption::rules::{Rule, Rules};
use super::schedule::reservation::Reservation;
use super::schedule::shape::{LabelId, ModelId, Shapes};
use super::share::accounts::{Accounts, ROOT};
use super::share::decay::Decay;
use super::share::group::Groups;
use super::share::lanes::Ticket;
use super::share::quota::CellQuota;
use crate::message::Mark;
use crate::name::{AccountPath, ClassName, GpuModel};
use crate::time::Timestamp;

/// Micro-credits per GPU-hour of a model that has no price.
const DEFAULT_PRICE: u64 = 1_000_000;

/// With more hot nodes than this, trying the woken requests is cheaper than parking them again.
const HOT_NODES_LOOKED_AT: usize = 8;

/// The queue of one class.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClassQueue {
    /// Parked requests: they fit nowhere.
    pub(crate) parked: Bits,
    /// Parked requests that may fit on a node of [`Cell::hot`] now.
    pub(crate) woken: Bits,
    /// Competing jobs in the order of submission.
    pub(crate) by_age: BTreeSet<(Ticket, JobId)>,
    /// Placements since the last one of an aged job.
    pub(crate) since_aged: u32,
    /// Models (`None`: any) for which the best blocked job needs a reservation.
    pub(crate) unreserved: BTreeSet<Option<ModelId>>,
    /// Models (`None`: any) for which a job has a reservation.
    pub(crate) reserved: BTreeMap<Option<ModelId>, JobId>,
    /// Whether its best blocked jobs are to be examined for preemption.
    pub(crate) review: bool,
}

/// A cell: nodes, queue, shares and placement of one region.
#[derive(Clone, Debug)]
pub struct Cell {
    pub(crate) config: CellConfig,
    pub(crate) now: Timestamp,
    /// The last message received from each ledger shard.
    pub(crate) marks: BTreeMap<u16, Mark>,
    /// The number of the last message to each ledger shard.
    pub(crate) sent: BTreeMap<u16, u64>,
    pub(crate) models: Interner<GpuModel, ModelId>,
    pub(crate) labels: Interner<CompactString, LabelId>,
    pub(crate) racks: Interner<CompactString, RackId>,
    /// Micro-credits per GPU-hour, by model.
    pub(crate) prices: BTreeMap<ModelId, u64>,
    /// The classes that a class may preempt. A class that is absent may preempt every lower one.
    pub(crate) preempts: BTreeMap<ClassName, Vec<ClassName>>,
    pub(crate) shapes: Shapes,
    pub(crate) requests: Interner<Request, RequestId>,
    pub(crate) demand: Demand,
    pub(crate) accounts: Accounts,
    /// Requests that were made under an idempotency key.
    pub(crate) requests_done: Done,
    /// The names that nodes of each tenant have used.
    pub(crate) used_names: BTreeMap<AccountPath, UsedNames>,
    /// Drained nodes that were removed while their lease was valid, by full name, with its end. An
    /// agent that still runs registers its node again, and the drain stays.
    pub(crate) left_drained: BTreeMap<CompactString, Timestamp>,
    /// The highest incarnation that a removed node of each owner had; the platform's path is empty.
    pub(crate) removed_incarnations: BTreeMap<AccountPath, u32>,
    /// The demands of the jobs of each tenant.
    pub(crate) used_demands: BTreeMap<AccountPath, UsedDemands>,
    /// Accounts that are or were scopes of nodes.
    pub(crate) scopes: BTreeSet<AccountId>,
    pub(crate) inventory: Inventory,
    pub(crate) jobs: Jobs,
    pub(crate) classes: BTreeMap<ClassRank, ClassQueue>,
    pub(crate) groups: Groups,
    pub(crate) reservations: BTreeMap<JobId, Reservation>,
    /// Nodes with more free resources or fewer claims since the last pass ended.
    pub(crate) hot: BTreeSet<NodeId>,
    /// Reservations whose nodes may be free now.
    pub(crate) ready: BTreeSet<JobId>,
    /// Requests blocked by a quota that another change would help as well.
    pub(crate) mixed: BTreeSet<(RequestId, AccountId)>,
    pub(crate) maintenance: BTreeMap<MaintenanceId, MaintenanceWindow>,
    pub(crate) timers: Timers,
    /// Timers, messages and passes that failed repeatedly and are skipped.
    pub(crate) aside: BTreeSet<CellAside>,
    /// Whether no job can be placed until something changes.
    pub(crate) idle: bool,
    /// When the next review is due, if one is scheduled.
    pub(crate) review_at: Option<Timestamp>,
    /// Attempts preempted since the last review began.
    pub(crate) victims: u32,
    /// The generation of the store: higher after each restore.
    pub(crate) generation: u32,
    /// On how many nodes GPUs of a job's ended attempts are fenced.
    pub(crate) fences: BTreeMap<JobId, u32>,
    /// Preemptible attempts that have GPUs, by class.
    pub(crate) preemptible: BTreeMap<ClassRank, u32>,
    /// The rules of its policy. Only studies switch some off.
    pub(crate) rules: Rules,
    pub(crate) saved: Option<Box<Cell>>,
}

impl Default for Cell {
    fn default() -> Cell {
        Cell::new()
    }
}

impl Cell {
    /// An empty cell with the default settings.
    pub fn new() -> Cell {
        let config = CellConfig::default();
        Cell {
            accounts: Accounts::new(Decay::new(config.half_life_ms, Timestamp::default())),
            config,
            now: Timestamp::MIN,
            marks: BTreeMap::new(),
            sent: BTreeMap::new(),
            models: Interner::new(),
            labels: Interner::new(),
            racks: Interner::new(),
            prices: BTreeMap::new(),
            preempts: BTreeMap::new(),
            shapes: Shapes::new(),
            requests: Interner::new(),
            demand: Demand::default(),
            requests_done: Done::default(),
            used_names: BTreeMap::new(),
            left_drained: BTreeMap::new(),
            removed_incarnations: BTreeMap::new(),
            used_demands: BTreeMap::new(),
            scopes: BTreeSet::new(),
            inventory: Inventory::default(),
            jobs: Jobs::default(),
            classes: BTreeMap::new(),
            groups: Groups::default(),
            reservations: BTreeMap::new(),
            hot: BTreeSet::new(),
            ready: BTreeSet::new(),
            mixed: BTreeSet::new(),
            maintenance: BTreeMap::new(),
            timers: Timers::default(),
            aside: BTreeSet::new(),
            idle: true,
            review_at: None,
            victims: 0,
            generation: 0,
            fences: BTreeMap::new(),
            preemptible: BTreeMap::new(),
            rules: Rules::ALL,
            saved: None,
        }
    }

    /// An empty cell that applies only some rules of its policy, for studies.
    pub fn with_rules(rules: Rules) -> Cell {
        Cell { rules, ..Cell::new() }
    }

    /// The list price of a model.
    pub(crate) fn price(&self, model: Option<ModelId>) -> u64 {
        match model {
            Some(model) => self.prices.get(&model).copied().unwrap_or(DEFAULT_PRICE),
            None => 0,
        }
    }

    pub(crate) fn job(&self, id: JobId) -> &CellJob {
        self.jobs.get(&id).expect("an event names only jobs that are here")
    }

    pub(crate) fn job_mut(&mut self, id: JobId) -> &mut CellJob {
        self.jobs.get_mut(&id).expect("an event names only jobs that are here")
    }

    pub(crate) fn class_mut(&mut self, class: ClassRank) -> &mut ClassQueue {
        self.classes.entry(class).or_default()
    }

    /// Lets a job compete, once no part of its earlier attempts can run any more.
    pub(crate) fn compete(&mut self, id: JobId) {
        if self.fences.contains_key(&id) {
            self.job_mut(id).phase = Phase::Waiting(Waiting::Delayed(when_free()));
            return;
        }
        let job = self.job_mut(id);
        job.phase = Phase::Waiting(Waiting::Competing);
        let waiter = job.waiter();
        let slot = self.slot_of(self.job(id));
        self.accounts.enqueue(waiter);
        let queue = self.class_mut(waiter.class);
        queue.by_age.insert((waiter.ticket, id));
        if !queue.parked.contains(waiter.request.index()) {
            self.idle = false;
        } else if !queue.reserved.contains_key(&slot) {
            queue.unreserved.insert(slot);
            self.idle = false;
        }
        self.take_over_reservations(id);
    }

    /// Drops the reservations of later jobs of the same kind. A job that was requeued, or came late
    /// from another region, goes before jobs that were submitted after it.
    fn take_over_reservations(&mut self, id: JobId) {
        let job = self.job(id);
        let kind = |job: &CellJob| (job.account, job.class(), job.request);
        let (own, ticket) = (kind(job), job.ticket);
        let later = |holder: &&JobId| {
            let holder = self.job(**holder);
            kind(holder) == own && holder.ticket > ticket
        };
        let later: Vec<JobId> = self.reservations.keys().filter(later).copied().collect();
        for holder in later {
            self.drop_reservation(holder);
        }
    }

    /// Removes a job without GPUs from the queue, group or timer that it waits in.
    pub(crate) fn stop_waiting(&mut self, id: JobId) {
        let job = self.job(id);
        let waiter = job.waiter();
        match job.waiting() {
            Some(Waiting::Competing) => {
                self.accounts.dequeue(waiter);
                self.class_mut(waiter.class).by_age.remove(&(waiter.ticket, id));
            }
            Some(Waiting::Group) => {
                let job = &self.jobs[&id];
                let group = job.group.expect("a job that its group holds has a group");
                self.groups.get_mut(group).forget(job);
            }
            Some(Waiting::Delayed(until)) => self.timers.clear(until, Timer::Release(id)),
            Some(Waiting::Funds(_) | Waiting::Nominated | Waiting::Moving) | None => {}
        }
        self.job_mut(id).phase = Phase::Waiting(Waiting::Moving);
    }

    /// Lets jobs that their group held compete, as far as the group has room.
    pub(crate) fn release_group(&mut self, id: JobId) {
        if let Some(group) = self.job(id).group {
            for job in self.groups.get_mut(group).release() {
                self.compete(job);
            }
            // A job with reserved nodes may have waited only for its group.
            let of_it = |job: &&JobId| self.job(**job).group == Some(group);
            let kept: Vec<JobId> = self.reservations.keys().filter(of_it).copied().collect();
            for job in kept {
                self.ready.insert(job);
                self.idle = false;
            }
        }
    }

    /// Wakes the parked requests that a node with more free resources may serve, and no others.
    pub(crate) fn wake_for(&mut self, node: NodeId) {
        let gathering = self.rules.has(Rule::Gathering);
        let Some(record) = self.inventory.get(node).filter(|record| record.is_open()) else {
            return;
        };
        self.hot.insert(node);
        for claim in &record.claims {
            if let Some(job) = claim.job {
                self.ready.insert(job);
                self.idle = false;
            }
        }
        // Few of the many parked requests fit, so free resources are compared first.
        let room = record.node.room();
        for (class, queue) in &mut self.classes {
            let mut woken = std::mem::take(&mut queue.woken);
            for index in queue.parked.iter() {
                let request = &self.requests.values()[index];
                let shape = self.shapes.get(request.shape);
                if room.holds(shape)
                    && record.node.accepts(shape)
                    && record.allows_some(*class, self.now, request, &self.config, gathering)
                {
                    woken.insert(index);
                    self.idle = false;
                }
            }
            woken.iter().for_each(|index| queue.parked.remove(index));
            queue.woken = woken;
        }
        self.unblock_mixed();
    }

    /// Parks woken requests again that no hot node can serve any more. They need not be tried,
    /// because no other node could serve them before.
    pub(crate) fn park_again(&mut self) {
        let gathering = self.rules.has(Rule::Gathering);
        if self.hot.len() > HOT_NODES_LOOKED_AT {
            return;
        }
        let hot = self.hot.iter().filter_map(|node| self.inventory.get(*node));
        let hot: SmallVec<[(&NodeRecord, Room); 1]> = hot
            .filter(|record| record.is_open())
            .map(|record| (record, record.node.room()))
            .collect();
        for (class, queue) in &mut self.classes {
            let mut parked = std::mem::take(&mut queue.parked);
            for index in queue.woken.iter() {
                let request = &self.requests.values()[index];
                let shape = self.shapes.get(request.shape);
                let served = hot.iter().any(|(record, room)| {
                    room.holds(shape)
                        && record.node.accepts(shape)
                        && record.allows_some(*class, self.now, request, &self.config, gathering)
                });
                if !served {
                    parked.insert(index);
                    let slot = shape.models.first().copied();
                    if !queue.reserved.contains_key(&slot) {
                        queue.unreserved.insert(slot);
                    }
                }
            }
            parked.iter().for_each(|index| queue.woken.remove(index));
            queue.parked = parked;
        }
    }

    /// Retries requests that wait for one of several changes, after any of them may have happened.
    pub(crate) fn unblock_mixed(&mut self) {
        for (request, account) in std::mem::take(&mut self.mixed) {
            self.accounts.get_mut(account).blocked.remove(request.index());
            self.idle = false;
        }
    }

    /// Lets requests compete for which the quotas of an account and its ancestors have room, after
    /// use fell or a limit rose.
    pub(crate) fn unblock(&mut self, account: AccountId) {
        let path: Vec<AccountId> = self.accounts.path(account).collect();
        for id in path {
            let account = self.accounts.get(id);
            if account.blocked.is_empty() {
                continue;
            }
            let open: Vec<usize> = account
                .blocked
                .iter()
                .filter(|index| {
                    let request = &self.requests.values()[*index];
                    let shape = self.shapes.get(request.shape);
                    let thousandths = shape.gpu.total() * u32::from(request.nodes);
                    let admits = |model| account.quota.admits(&account.in_use, model, thousandths);
                    self.models_of(shape.models.as_slice(), shape.gpu.devices()).any(admits)
                })
                .collect();
            for index in open {
                self.accounts.get_mut(id).blocked.remove(index);
                self.idle = false;
            }
        }
        if !self.mixed.is_empty() {
            self.unblock_mixed();
        }
        let limited = |id: &AccountId| self.accounts.get(*id).quota != CellQuota::default();
        let limited: Vec<AccountId> = self.accounts.path(account).filter(limited).collect();
        if !limited.is_empty() {
            self.retry_kept(&limited);
        }
    }

    /// Retries jobs with reserved nodes that one of these accounts may have blocked.
    pub(crate) fn retry_kept(&mut self, accounts: &[AccountId]) {
        let concerned = |job: &&JobId| {
            self.accounts.path(self.job(**job).account).any(|id| accounts.contains(&id))
        };
        let kept: Vec<JobId> = self.reservations.keys().filter(concerned).copied().collect();
        for job in kept {
            self.ready.insert(job);
            self.idle = false;
        }
    }

    /// The models that a shape may get: the listed ones, or all; none if it needs no GPU.
    pub(crate) fn models_of<'a>(
        &'a self,
        listed: &'a [ModelId],
        devices: u16,
    ) -> impl Iterator<Item = Option<ModelId>> + 'a {
        let any = listed.is_empty() && devices > 0;
        let all = if any { self.models.len() } else { 0 };
        let all = (0..all).map(|index| {
            ModelId::from_index(u32::try_from(index).expect("fewer than 2^32 models"))
        });
        let listed = if devices > 0 { listed } else { &[] };
        let none = (devices == 0).then_some(None);
        listed.iter().copied().chain(all).map(Some).chain(none)
    }

    /// How many jobs compete in a class.
    pub(crate) fn competing(&self, class: ClassRank) -> u32 {
        self.accounts.get(ROOT).lane(class).map_or(0, |lane| lane.waiting)
    }
}
