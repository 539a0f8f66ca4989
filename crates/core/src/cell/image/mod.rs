//! A whole cell as plain data, for snapshots: all that the digest covers, and nothing that can be
//! derived from it. [`Cell::from_image`] rebuilds counts, queues, claims and every index of nodes.

mod restore;

use std::fmt;

use compact_str::CompactString;

use super::command::NodeOffer;
use super::config::CellConfig;
use super::ids::{AccountId, AttemptId, ClassRank, JobId, MaintenanceId, RequestId};
pub use super::index::aside::CellAside;
pub use super::index::timers::Timer;
pub use super::jobs::attempt::{AttemptNode, AttemptNodePhase, CellAttempt};
pub use super::jobs::funding::Funded;
pub use super::jobs::idempotency::DoneRequest;
pub use super::jobs::job::{CellJob, EndedAttempt, Occupancy, Phase, Request, Waiting};
pub use super::jobs::stopping::Stop;
pub use super::nodes::inventory::Held;
pub use super::nodes::maintenance::MaintenanceWindow;
use super::nodes::node::{NodeId, RackId};
pub use super::schedule::demand::{DemandImage, KindImage, MixImage};
use super::schedule::shape::{LabelId, ModelId, Shape};
use super::share::decay::ScaledUsage;
pub use super::share::quota::CellQuota;
use super::state::Cell;
use crate::message::Mark;
use crate::name::{AccountPath, ClassName, GpuModel};
use crate::time::Timestamp;

/// A whole cell as plain data. Lists without another order are in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Image {
    /// The latest instant of any event.
    pub now: Timestamp,
    /// The settings.
    pub config: CellConfig,
    /// The last message received from each ledger shard.
    pub marks: Vec<(u16, Mark)>,
    /// The number of the last message to each ledger shard.
    pub sent: Vec<(u16, u64)>,
    /// GPU models.
    pub models: Vec<GpuModel>,
    /// Node labels.
    pub labels: Vec<CompactString>,
    /// Racks.
    pub racks: Vec<CompactString>,
    /// List prices.
    pub prices: Vec<(ModelId, u64)>,
    /// The classes that a class may preempt.
    pub preempts: Vec<(ClassName, Vec<ClassName>)>,
    /// Shapes of jobs.
    pub shapes: Vec<Shape>,
    /// Requests of jobs.
    pub requests: Vec<Request>,
    /// Typical work.
    pub demand: DemandImage,
    /// The half-life of usage and the instant from which its factor is counted.
    pub decay: (i64, Timestamp),
    /// Accounts; the root is the first.
    pub accounts: Vec<CellAccountImage>,
    /// Requests under idempotency keys, the oldest first.
    pub requests_done: Vec<DoneRequest>,
    /// Accounts that are or were scopes of nodes.
    pub scopes: Vec<AccountId>,
    /// The names that nodes of each tenant have used.
    pub used_names: Vec<NamesImage>,
    /// Drained nodes that were removed while their lease was valid, with its end.
    pub left_drained: Vec<(CompactString, Timestamp)>,
    /// The highest incarnation that a removed node of each owner had; the platform's path is empty.
    pub removed_incarnations: Vec<(AccountPath, u32)>,
    /// The demands of the jobs of each tenant.
    pub used_demands: Vec<(AccountPath, Vec<RequestId>)>,
    /// Nodes.
    pub nodes: Vec<NodeImage>,
    /// The number that the next new node gets.
    pub next_node: NodeId,
    /// The most memory that a GPU of each model ever had.
    pub memory_of_models: Vec<u32>,
    /// Concurrency groups.
    pub groups: Vec<GroupImage>,
    /// Jobs.
    pub jobs: Vec<CellJob>,
    /// Classes in which jobs wait or waited.
    pub classes: Vec<ClassImage>,
    /// Reservations.
    pub reservations: Vec<ReservationImage>,
    /// Nodes with more free resources or fewer claims since the last pass ended.
    pub hot: Vec<NodeId>,
    /// Reservations whose nodes may be free now.
    pub ready: Vec<JobId>,
    /// Requests blocked by a quota that another change would help as well.
    pub mixed: Vec<(RequestId, AccountId)>,
    /// Maintenance windows.
    pub maintenance: Vec<(MaintenanceId, MaintenanceWindow)>,
    /// All timers, in order.
    pub timers: Vec<(Timestamp, Timer)>,
    /// Whether no job can be placed until something changes.
    pub idle: bool,
    /// When the next review is due, if one is scheduled.
    pub review_at: Option<Timestamp>,
    /// Attempts preempted since the last review began.
    pub victims: u32,
    /// Timers, messages and passes that failed repeatedly and are skipped.
    pub aside: Vec<CellAside>,
    /// The generation of the store.
    pub generation: u32,
}

/// One account.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CellAccountImage {
    /// Its path; that of the root is empty.
    pub path: AccountPath,
    /// Its fair-share weight.
    pub weight: u32,
    /// Whether no job may start at or below it.
    pub frozen: bool,
    /// Its quota.
    pub quota: CellQuota,
    /// Usage of its own jobs and of all jobs below.
    pub usage: ScaledUsage,
    /// Usage of its own jobs only.
    pub own_usage: ScaledUsage,
    /// Requests that its quota blocks.
    pub blocked: Vec<RequestId>,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeImage {
    /// Its number.
    pub node: NodeId,
    /// What its agent offered.
    pub offer: Box<NodeOffer>,
    /// The number of its agent's last start.
    pub incarnation: u32,
    /// The number of the last report.
    pub seq: u64,
    /// When its lease ends.
    pub lease_until: Timestamp,
    /// Whether its lease is valid.
    pub alive: bool,
    /// Whether an operator drained it.
    pub drained: bool,
    /// What attempts have or fence there.
    pub attempts: Vec<(AttemptId, Held)>,
    /// After a restore: until when nothing is placed on it.
    pub kept_until: Option<Timestamp>,
}

/// The names that nodes of a tenant have used.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NamesImage {
    /// The tenant.
    pub owner: AccountPath,
    /// GPU models.
    pub models: Vec<ModelId>,
    /// Labels.
    pub labels: Vec<LabelId>,
    /// Racks.
    pub racks: Vec<RackId>,
}

/// One concurrency group. Its number is its place in the list; the number of a group without jobs is
/// free, and the group has no name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupImage {
    /// The tenant.
    pub tenant: AccountPath,
    /// Its name.
    pub name: CompactString,
    /// How many of its jobs may have GPUs at once.
    pub limit: u32,
}

/// The queue of one class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClassImage {
    /// The class.
    pub class: ClassRank,
    /// Parked requests: they fit nowhere.
    pub parked: Vec<RequestId>,
    /// Parked requests that may fit now.
    pub woken: Vec<RequestId>,
    /// Placements since the last one of an aged job.
    pub since_aged: u32,
    /// Models for which the best blocked job needs a reservation.
    pub unreserved: Vec<ModelSlot>,
    /// Whether its best blocked jobs are to be examined for preemption.
    pub review: bool,
}

/// The model under which a reservation is counted.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum ModelSlot {
    /// Its job accepts any model.
    Any,
    /// The most preferred model of its job.
    Model(ModelId),
}

impl From<Option<ModelId>> for ModelSlot {
    fn from(model: Option<ModelId>) -> ModelSlot {
        model.map_or(ModelSlot::Any, ModelSlot::Model)
    }
}

impl From<ModelSlot> for Option<ModelId> {
    fn from(slot: ModelSlot) -> Option<ModelId> {
        match slot {
            ModelSlot::Any => None,
            ModelSlot::Model(model) => Some(model),
        }
    }
}

/// A reservation of nodes for a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReservationImage {
    /// The job.
    pub job: JobId,
    /// Its class.
    pub class: ClassRank,
    /// The nodes.
    pub nodes: Vec<NodeId>,
    /// When it was made.
    pub made_at: Timestamp,
    /// The reserved start.
    pub start_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
    /// The model under which it is counted. `None`: made by a plan of preemption.
    pub slot: Option<ModelSlot>,
    /// Whether preemptible jobs may use the nodes as guests meanwhile.
    pub guests: bool,
}

/// Why an image is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ImageError(pub String);

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ImageError {}

/// The members of a set of requests.
pub(super) fn requests(bits: &super::index::bitset::Bits) -> Vec<RequestId> {
    let number = |index| u32::try_from(index).expect("fewer than 2^32 requests");
    bits.iter().map(|index| RequestId(number(index))).collect()
}

impl Cell {
    /// The whole cell as plain data.
    pub fn image(&self) -> Image {
        Image {
            now: self.now,
            config: self.config.clone(),
            marks: self.marks.iter().map(|(shard, mark)| (*shard, *mark)).collect(),
            sent: self.sent.iter().map(|(shard, number)| (*shard, *number)).collect(),
            models: self.models.values().iter().cloned().collect(),
            labels: self.labels.values().iter().cloned().collect(),
            racks: self.racks.values().iter().cloned().collect(),
            prices: self.prices.iter().map(|(model, price)| (*model, *price)).collect(),
            preempts: self.preempts.clone().into_iter().collect(),
            shapes: self.shapes.values().iter().cloned().collect(),
            requests: self.requests.values().iter().cloned().collect(),
            demand: self.demand.image(),
            decay: (self.accounts.decay.half_life_ms(), self.accounts.decay.epoch()),
            accounts: self.account_images(),
            requests_done: self.requests_done.iter().cloned().collect(),
            scopes: self.scopes.iter().copied().collect(),
            used_names: self.names_images(),
            left_drained: self.left_drained.iter().map(|(name, at)| (name.clone(), *at)).collect(),
            removed_incarnations: self
                .removed_incarnations
                .iter()
                .map(|(owner, highest)| (owner.clone(), *highest))
                .collect(),
            used_demands: self
                .used_demands
                .iter()
                .map(|(tenant, used)| (tenant.clone(), used.requests.iter().copied().collect()))
                .collect(),
            nodes: self.node_images(),
            next_node: self.inventory.next_id(),
            memory_of_models: self.inventory.supply().memory_of_models(),
            groups: self.group_images(),
            jobs: self.jobs.values().cloned().collect(),
            classes: self.class_images(),
            reservations: self.reservation_images(),
            hot: self.hot.iter().copied().collect(),
            ready: self.ready.iter().copied().collect(),
            mixed: self.mixed.iter().copied().collect(),
            maintenance: self.maintenance.iter().map(|(id, w)| (*id, w.clone())).collect(),
            timers: self.timers.iter().collect(),
            idle: self.idle,
            review_at: self.review_at,
            victims: self.victims,
            aside: self.aside.iter().copied().collect(),
            generation: self.generation,
        }
    }

    fn account_images(&self) -> Vec<CellAccountImage> {
        let accounts = self.accounts.iter();
        let accounts = accounts.map(|(_, account)| CellAccountImage {
            path: account.path.clone(),
            weight: account.weight,
            frozen: account.frozen,
            quota: account.quota.clone(),
            usage: account.usage,
            own_usage: account.own_usage,
            blocked: requests(&account.blocked),
        });
        accounts.collect()
    }

    fn node_images(&self) -> Vec<NodeImage> {
        let nodes = self.inventory.iter().map(|(node, record)| NodeImage {
            node,
            offer: record.offer.clone(),
            incarnation: record.incarnation,
            seq: record.seq,
            lease_until: record.lease_until,
            alive: record.alive,
            drained: record.drained,
            attempts: record.attempts.iter().map(|(id, held)| (*id, held.clone())).collect(),
            kept_until: record.kept_until,
        });
        nodes.collect()
    }

    fn names_images(&self) -> Vec<NamesImage> {
        let names = self.used_names.iter().map(|(owner, used)| NamesImage {
            owner: owner.clone(),
            models: used.models.iter().copied().collect(),
            labels: used.labels.iter().copied().collect(),
            racks: used.racks.iter().copied().collect(),
        });
        names.collect()
    }

    fn group_images(&self) -> Vec<GroupImage> {
        let groups = self.groups.iter().map(|group| GroupImage {
            tenant: group.tenant.clone(),
            name: group.name.clone(),
            limit: group.limit,
        });
        groups.collect()
    }

    fn reservation_images(&self) -> Vec<ReservationImage> {
        let reservations = self.reservations.iter().map(|(job, kept)| ReservationImage {
            job: *job,
            class: kept.class,
            nodes: kept.nodes.to_vec(),
            made_at: kept.made_at,
            start_at: kept.start_at,
            expires_at: kept.expires_at,
            slot: kept.slot.map(ModelSlot::from),
            guests: kept.guests,
        });
        reservations.collect()
    }

    fn class_images(&self) -> Vec<ClassImage> {
        let classes = self.classes.iter().map(|(class, queue)| ClassImage {
            class: *class,
            parked: requests(&queue.parked),
            woken: requests(&queue.woken),
            since_aged: queue.since_aged,
            unreserved: queue.unreserved.iter().copied().map(ModelSlot::from).collect(),
            review: queue.review,
        });
        classes.collect()
    }
}
