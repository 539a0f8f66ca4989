//! Why a job waits: all blockers as data. Also the fair shares of accounts and the queue.

use std::cmp::Reverse;

use compact_str::CompactString;

use crate::cell::command::FundsBlocker;
use crate::cell::ids::{AccountId, ClassRank, JobId};
use crate::cell::jobs::job::{CellJob, Waiting, when_free};
use crate::cell::schedule::forecast::fits_at;
use crate::cell::schedule::preemption::cause::{PolicyRule, PreemptionCause};
use crate::cell::schedule::reservation::Reservation;
use crate::cell::share::accounts::ROOT;
use crate::cell::share::quota::QuotaLimit;
use crate::cell::state::Cell;
use crate::name::{AccountPath, GpuModel};
use crate::time::Timestamp;

/// The state of a job and, if it waits, all of its blockers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Why {
    pub state: PlacementState,
    /// Its position in the queue if all shares stayed as they are, from 1. `None` unless it
    /// competes.
    pub position: Option<u64>,
    /// When it can start. `None` if that is unknown: something other than time must change first, or
    /// an attempt in the way has no known end.
    pub estimate: Option<Estimate>,
    /// All blockers. Never empty while it waits (law L14).
    pub blockers: Vec<PlacementBlocker>,
    /// If it was preempted last: the taker, and the rule and its numbers.
    pub preempted: Option<(JobId, PreemptionCause)>,
}

/// The state of a job in its cell.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum PlacementState {
    /// It has no GPUs.
    Queued,
    /// It has GPUs and waits for the ledger's answer.
    Proposed,
    /// Its nodes were ordered to start it.
    Starting,
    /// It runs.
    Running,
    /// It is being stopped.
    Stopping,
}

/// When a job can start if every attempt ends by its longest runtime.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Estimate {
    /// The instant.
    pub at: Timestamp,
    /// Whether nodes are reserved for it from then on. Otherwise jobs ahead of it may take the
    /// nodes.
    pub reserved: bool,
}

/// A reason why a job waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PlacementBlocker {
    /// Too few credits.
    Credits,
    /// A budget would be exceeded.
    Budget,
    /// An account on its path is frozen.
    Frozen {
        /// The account, if the cell knows which.
        account: Option<AccountPath>,
    },
    /// A quota would be exceeded.
    Quota {
        /// The account that has the quota.
        account: AccountPath,
        /// The limited GPU model. `None`: all models together, or jobs.
        model: Option<GpuModel>,
        /// Whether the limit is on jobs, not GPUs.
        jobs: bool,
        /// The limit, in thousandths of GPUs or in jobs.
        limit: u32,
        /// What is in use.
        used: u32,
        /// What the job would add.
        requested: u32,
    },
    /// Its concurrency group is full.
    Group {
        /// The group.
        name: CompactString,
        /// How many of its jobs may have GPUs at once.
        limit: u32,
        /// How many of its jobs have GPUs.
        active: u32,
    },
    /// No node has GPUs of an accepted model.
    GpuType {
        /// The accepted models. Empty: any.
        models: Vec<GpuModel>,
    },
    /// Suitable nodes exist, but their scope excludes the job's account.
    Scope {
        /// The job's account.
        account: AccountPath,
        /// The accepted models. Empty: any.
        models: Vec<GpuModel>,
    },
    /// All nodes of an accepted model are too small or lack a label.
    Memory {
        /// Nodes of an accepted model.
        nodes: u32,
    },
    /// Too few nodes have room now.
    Capacity {
        /// Nodes that the job needs.
        wanted: u32,
        /// Nodes that have room.
        available: u32,
        /// Nodes that would have room if nothing ran on them.
        suitable: u32,
    },
    /// Some nodes have room, but not as many at once as the gang needs.
    Gang {
        /// Nodes that the gang needs.
        wanted: u32,
        /// Nodes that have room, or would have if nothing ran on them.
        available: u32,
    },
    /// Nodes with room are reserved for another job or for maintenance.
    Reservation {
        /// The job that they are reserved for. `None`: maintenance.
        job: Option<JobId>,
        /// When the reservation begins.
        from: Timestamp,
    },
    /// Suitable nodes take no work: drained or in maintenance.
    Drain {
        /// The number of such nodes.
        nodes: u32,
    },
    /// Suitable nodes are lost: their lease ended without a report.
    Lost {
        /// The number of such nodes.
        nodes: u32,
    },
    /// Other jobs are ahead in the queue.
    Priority {
        /// The number of jobs ahead.
        ahead: u64,
        /// How many of them have a higher class. The others go first by fair share.
        higher: u64,
    },
    /// An operator preempted it a moment ago.
    Delayed {
        /// When it may be placed again.
        until: Timestamp,
    },
}

impl PlacementBlocker {
    /// Whether the job can start only after something other than time has changed.
    fn has_no_known_end(&self) -> bool {
        match self {
            PlacementBlocker::Credits
            | PlacementBlocker::Budget
            | PlacementBlocker::Frozen { .. }
            | PlacementBlocker::Quota { .. }
            | PlacementBlocker::Group { .. } => true,
            PlacementBlocker::GpuType { .. }
            | PlacementBlocker::Scope { .. }
            | PlacementBlocker::Memory { .. }
            | PlacementBlocker::Capacity { .. }
            | PlacementBlocker::Gang { .. }
            | PlacementBlocker::Reservation { .. }
            | PlacementBlocker::Drain { .. }
            | PlacementBlocker::Lost { .. }
            | PlacementBlocker::Priority { .. }
            | PlacementBlocker::Delayed { .. } => false,
        }
    }

    /// Whether it says that too few nodes have room now.
    fn is_lack_of_room(&self) -> bool {
        matches!(self, PlacementBlocker::Capacity { .. } | PlacementBlocker::Gang { .. })
    }

    /// The rule of the policy that makes the job wait. `None`: the job waits for something other
    /// than its turn.
    pub fn rule(&self) -> Option<PolicyRule> {
        match self {
            PlacementBlocker::Priority { higher, .. } if *higher > 0 => Some(PolicyRule::Class),
            PlacementBlocker::Priority { ahead, .. } => (*ahead > 0).then_some(PolicyRule::Share),
            PlacementBlocker::Reservation { job, .. } => job.map(|_| PolicyRule::Reservation),
            PlacementBlocker::Credits
            | PlacementBlocker::Budget
            | PlacementBlocker::Frozen { .. }
            | PlacementBlocker::Quota { .. }
            | PlacementBlocker::Group { .. }
            | PlacementBlocker::GpuType { .. }
            | PlacementBlocker::Scope { .. }
            | PlacementBlocker::Memory { .. }
            | PlacementBlocker::Capacity { .. }
            | PlacementBlocker::Gang { .. }
            | PlacementBlocker::Drain { .. }
            | PlacementBlocker::Lost { .. }
            | PlacementBlocker::Delayed { .. } => None,
        }
    }

    /// The name of this kind of blocker in the API.
    pub fn kind(&self) -> &'static str {
        match self {
            PlacementBlocker::Credits => "credits",
            PlacementBlocker::Budget => "budget",
            PlacementBlocker::Frozen { .. } => "frozen",
            PlacementBlocker::Quota { .. } => "quota",
            PlacementBlocker::Group { .. } => "group",
            PlacementBlocker::GpuType { .. } | PlacementBlocker::Scope { .. } => "gpu_type",
            PlacementBlocker::Memory { .. } => "memory",
            PlacementBlocker::Capacity { .. } | PlacementBlocker::Lost { .. } => "capacity",
            PlacementBlocker::Gang { .. } => "gang",
            PlacementBlocker::Reservation { .. } => "reservation",
            PlacementBlocker::Drain { .. } => "drain",
            PlacementBlocker::Priority { .. } | PlacementBlocker::Delayed { .. } => "priority",
        }
    }
}

/// The fair share of an account. Shares are in millionths of the whole cell.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FairShare {
    /// The account's path.
    pub account: AccountPath,
    /// Its weight among its siblings.
    pub weight: u32,
    /// Usage of it and its subtree, decayed to now, in micro-credits.
    pub usage_micros: u128,
    /// Its entitlement while it competes with its active siblings.
    pub entitled_ppm: u64,
    /// Its part of all decayed usage.
    pub received_ppm: u64,
    /// Micro-credits per hour of the GPUs that it has now.
    pub rate: u64,
    /// Thousandths of GPUs that it has now.
    pub gpus: u32,
    /// Jobs that have GPUs.
    pub running_jobs: u32,
    /// Jobs that wait.
    pub waiting_jobs: u32,
}

/// How many nodes could serve a job, by what is in the way.
#[derive(Default)]
struct Survey {
    of_model: u32,
    suitable: u32,
    available: u32,
    closed: u32,
    /// Closed nodes whose lease ended.
    lost: u32,
    /// Suitable nodes whose scope excludes the job's account.
    foreign: u32,
    claims: Vec<(Option<JobId>, Timestamp)>,
}

impl Cell {
    /// Why a job waits, at `now`. `None`: the job is not in this cell.
    pub fn why(&self, id: JobId, now: Timestamp) -> Option<Why> {
        let job = self.jobs.get(&id)?;
        let Some(waiting) = job.waiting() else {
            let attempt = job.attempt().expect("a job waits or has an attempt");
            let state = if attempt.stop.is_some() {
                PlacementState::Stopping
            } else if attempt.running_since.is_some() {
                PlacementState::Running
            } else if attempt.confirmed {
                PlacementState::Starting
            } else {
                PlacementState::Proposed
            };
            let (position, estimate, preempted) = (None, None, None);
            return Some(Why { state, position, estimate, blockers: Vec::new(), preempted });
        };
        let ahead = (waiting == Waiting::Competing).then(|| self.ahead_of(job));
        let higher = ahead.map_or(0, |_| self.ahead_by_class(job));
        let mut blockers = Vec::new();
        self.push_policy_blockers(job, waiting, &mut blockers);
        self.push_room_blockers(now, job, &mut blockers);
        let estimate = self.estimate(now, job, waiting, &blockers);
        if let Some(ahead) = ahead.filter(|ahead| *ahead > 0 || blockers.is_empty()) {
            blockers.push(PlacementBlocker::Priority { ahead, higher });
        }
        if blockers.is_empty() {
            // Its reserved nodes are free; the pass that starts it is due.
            blockers.push(PlacementBlocker::Priority { ahead: 0, higher: 0 });
        }
        let position = ahead.map(|ahead| ahead + 1);
        let preempted = job.preempted_by.zip(job.preemption);
        Some(Why { state: PlacementState::Queued, position, estimate, blockers, preempted })
    }

    /// When a waiting job can start, as far as is known at `now`.
    fn estimate(
        &self,
        now: Timestamp,
        job: &CellJob,
        waiting: Waiting,
        blockers: &[PlacementBlocker],
    ) -> Option<Estimate> {
        if blockers.iter().any(PlacementBlocker::has_no_known_end) {
            return None;
        }
        let kept = self.reservations.get(&job.spec.job);
        let free_at = match kept {
            Some(kept) => self.reserved_start(now, job, kept),
            None => self.earliest(now, job).map(|(at, ..)| at)?,
        };
        let at = match waiting {
            Waiting::Delayed(until) if until < when_free() => free_at.max(until),
            Waiting::Delayed(_)
            | Waiting::Competing
            | Waiting::Group
            | Waiting::Funds(_)
            | Waiting::Nominated
            | Waiting::Moving => free_at,
        };
        // The attempts in the way should be gone and are not: their ends are not known.
        let is_overdue = at <= now && blockers.iter().any(PlacementBlocker::is_lack_of_room);
        (!is_overdue).then_some(Estimate { at, reserved: kept.is_some() })
    }

    /// When the nodes that are reserved for a job will be free: earlier than reserved if attempts
    /// have ended early, later if they should have ended and have not.
    fn reserved_start(&self, now: Timestamp, job: &CellJob, kept: &Reservation) -> Timestamp {
        let shape = self.shapes.get(job.shape);
        let nodes = kept.nodes.iter().filter_map(|id| self.inventory.get(*id));
        let free = nodes
            .filter_map(|record| fits_at(&record.node, &record.members, &self.shapes, shape, now));
        let free = free.max().unwrap_or(kept.start_at);
        if kept.start_at > now { free.min(kept.start_at) } else { free }
    }

    /// How many jobs are ahead of a competing one, if all shares stayed as they are.
    fn ahead_of(&self, job: &CellJob) -> u64 {
        self.accounts.ahead(job.waiter()) + self.ahead_by_class(job)
    }

    /// How many competing jobs have a higher class.
    fn ahead_by_class(&self, job: &CellJob) -> u64 {
        let higher = self.classes.iter().filter(|(class, _)| **class > job.class());
        higher.map(|(class, _)| u64::from(self.competing(*class))).sum()
    }

    fn push_policy_blockers(
        &self,
        job: &CellJob,
        waiting: Waiting,
        blockers: &mut Vec<PlacementBlocker>,
    ) {
        match waiting {
            Waiting::Funds(FundsBlocker::Credits) => blockers.push(PlacementBlocker::Credits),
            Waiting::Funds(FundsBlocker::Budget) => blockers.push(PlacementBlocker::Budget),
            Waiting::Funds(FundsBlocker::Frozen) => {
                blockers.push(PlacementBlocker::Frozen { account: None });
            }
            Waiting::Delayed(until) if until < when_free() => {
                blockers.push(PlacementBlocker::Delayed { until });
            }
            Waiting::Delayed(_)
            | Waiting::Competing
            | Waiting::Group
            | Waiting::Nominated
            | Waiting::Moving => {}
        }
        for id in self.accounts.path(job.account) {
            let account = self.accounts.get(id);
            if account.frozen {
                blockers.push(PlacementBlocker::Frozen { account: Some(account.path.clone()) });
            }
        }
        if let Some(group) = job.group.map(|group| self.groups.get(group))
            && group.is_full()
        {
            let (name, limit, active) = (group.name.clone(), group.limit, group.active);
            blockers.push(PlacementBlocker::Group { name, limit, active });
        }
        let shape = self.shapes.get(job.shape);
        let mut blocks: Vec<_> = self
            .models_of(&shape.models, shape.gpu.devices())
            .flat_map(|model| self.quota_blocks(job, model))
            .collect();
        blocks.sort_unstable();
        blocks.dedup();
        for block in blocks {
            let model = match block.limit {
                QuotaLimit::Model(model) => Some(self.models.get(model).clone()),
                QuotaLimit::TotalGpus | QuotaLimit::RunningJobs => None,
            };
            blockers.push(PlacementBlocker::Quota {
                account: self.accounts.get(block.account).path.clone(),
                model,
                jobs: block.limit == QuotaLimit::RunningJobs,
                limit: block.allowed,
                used: block.used,
                requested: block.requested,
            });
        }
    }

    fn survey(&self, now: Timestamp, job: &CellJob) -> Survey {
        let shape = self.shapes.get(job.shape);
        let visit = self.visit(now, job, job.may_be_guest());
        let mut survey = Survey::default();
        for (_, record) in self.inventory.iter() {
            let node = &record.node;
            if !node.admits(shape) {
                survey.foreign += u32::from(node.could_serve(shape));
                continue;
            }
            survey.of_model += u32::from(shape.allows(node.model()));
            if !node.could_ever_fit(shape) {
                continue;
            }
            survey.suitable += 1;
            if !record.is_open() {
                // Counted with or without room: it takes no new work after its attempts have ended.
                survey.closed += 1;
                survey.lost += u32::from(!record.alive);
            } else if !node.has_room(shape) {
                // The node is full; there is no other blocker to report.
            } else if record.allows(&visit) {
                survey.available += 1;
            } else {
                let claims = record.claims.iter().filter(|claim| !claim.allows(&visit));
                survey.claims.extend(claims.map(|claim| (claim.job, claim.from)));
            }
        }
        survey.claims.sort_unstable();
        survey.claims.dedup();
        survey
    }

    fn push_room_blockers(
        &self,
        now: Timestamp,
        job: &CellJob,
        blockers: &mut Vec<PlacementBlocker>,
    ) {
        let survey = self.survey(now, job);
        let wanted = u32::from(job.spec.nodes);
        let Survey { of_model, suitable, available, closed, lost, foreign, claims } = survey;
        if available >= wanted {
            return;
        }
        if suitable < wanted && foreign > 0 {
            let (account, models) = (job.spec.account.clone(), job.spec.models.to_vec());
            blockers.push(PlacementBlocker::Scope { account, models });
            if of_model == 0 {
                return;
            }
        }
        if of_model == 0 {
            let models = job.spec.models.to_vec();
            return blockers.push(PlacementBlocker::GpuType { models });
        }
        if suitable == 0 {
            return blockers.push(PlacementBlocker::Memory { nodes: of_model });
        }
        if suitable < wanted {
            return blockers.push(PlacementBlocker::Gang { wanted, available: suitable });
        }
        blockers.push(PlacementBlocker::Capacity { wanted, available, suitable });
        if wanted > 1 && available > 0 {
            blockers.push(PlacementBlocker::Gang { wanted, available });
        }
        if closed > lost {
            blockers.push(PlacementBlocker::Drain { nodes: closed - lost });
        }
        if lost > 0 {
            blockers.push(PlacementBlocker::Lost { nodes: lost });
        }
        for (job, from) in claims {
            blockers.push(PlacementBlocker::Reservation { job, from });
        }
    }

    /// The fair share of every account at `now`, parents before children, the root first.
    pub fn fair_shares(&self, now: Timestamp) -> Vec<FairShare> {
        const MILLION: u128 = 1_000_000;
        let decay = &self.accounts.decay;
        let whole = self.accounts.get(ROOT).usage.max(1);
        let active = |id: &AccountId| {
            let account = self.accounts.get(*id);
            account.rate > 0 || account.in_use.waiting_jobs > 0
        };
        // The weights of all competing children of each account.
        let mut competing: Vec<u128> = vec![0; self.accounts.iter().count()];
        for (id, account) in self.accounts.iter() {
            if let Some(parent) = account.parent.filter(|_| active(&id)) {
                competing[parent.0 as usize] += u128::from(account.weight);
            }
        }
        let mut entitled: Vec<u128> = Vec::new();
        let mut shares = Vec::new();
        for (id, account) in self.accounts.iter() {
            let part = account.parent.map_or(MILLION, |parent| {
                let own = if active(&id) { u128::from(account.weight) } else { 0 };
                entitled[parent.0 as usize] * own / competing[parent.0 as usize].max(1)
            });
            entitled.push(part);
            // Millionths.
            let ppm = |part: u128| u64::try_from(part).unwrap_or(u64::MAX);
            shares.push(FairShare {
                account: account.path.clone(),
                weight: account.weight,
                usage_micros: decay.unscale(account.usage, now),
                entitled_ppm: ppm(part),
                received_ppm: ppm(account.usage.saturating_mul(MILLION) / whole),
                rate: account.rate,
                gpus: account.in_use.total_gpus,
                running_jobs: account.in_use.running_jobs,
                waiting_jobs: account.in_use.waiting_jobs,
            });
        }
        shares
    }

    /// Waiting jobs, at most `limit`: first jobs for which others are being preempted, then
    /// competing jobs in the order in which they would start if all shares stayed as they are, then
    /// jobs that wait for something other than a placement.
    pub fn queue(&self, limit: usize) -> Vec<JobId> {
        let mut jobs = self.waiting_jobs(limit, |waiting| match waiting {
            Waiting::Nominated => true,
            Waiting::Competing
            | Waiting::Group
            | Waiting::Funds(_)
            | Waiting::Delayed(_)
            | Waiting::Moving => false,
        });
        for class in self.classes.keys().rev() {
            self.queue_below(ROOT, *class, limit, &mut jobs);
        }
        let room = limit - jobs.len();
        jobs.extend(self.waiting_jobs(room, |waiting| match waiting {
            Waiting::Nominated | Waiting::Competing => false,
            Waiting::Group | Waiting::Funds(_) | Waiting::Delayed(_) | Waiting::Moving => true,
        }));
        jobs
    }

    /// Jobs in some waiting states, the highest class and the earliest submission first.
    fn waiting_jobs(&self, limit: usize, which: impl Fn(Waiting) -> bool) -> Vec<JobId> {
        let waiting = self.jobs.values().filter(|job| job.waiting().is_some_and(&which));
        let mut waiting: Vec<_> =
            waiting.map(|job| (Reverse(job.class()), job.ticket, job.spec.job)).collect();
        waiting.sort_unstable();
        waiting.into_iter().take(limit).map(|(_, _, job)| job).collect()
    }

    fn queue_below(&self, id: AccountId, class: ClassRank, limit: usize, jobs: &mut Vec<JobId>) {
        let Some(lane) = self.accounts.get(id).lane(class) else { return };
        for (_, child) in lane.order() {
            if jobs.len() >= limit {
                return;
            }
            if *child == id {
                let mut own: Vec<_> = lane.own().values().flatten().collect();
                own.sort_unstable();
                let room = limit - jobs.len();
                jobs.extend(own.into_iter().take(room).map(|(_, job)| *job));
            } else {
                self.queue_below(*child, class, limit, jobs);
            }
        }
    }
}

#[cfg(test)]
mod tests;
