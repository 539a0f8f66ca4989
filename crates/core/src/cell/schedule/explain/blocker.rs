//! The reasons why a job waits.

use compact_str::CompactString;

use crate::cell::ids::JobId;
use crate::cell::schedule::preemption::cause::PolicyRule;
use crate::name::{AccountPath, GpuModel};
use crate::time::Timestamp;

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
    /// No node of an accepted model has so many GPUs.
    GpuCount {
        /// GPUs that the job needs on one node.
        wanted: u16,
        /// The most that a node of an accepted model has.
        most: u16,
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
    pub(super) fn has_no_known_end(&self) -> bool {
        match self {
            PlacementBlocker::Credits
            | PlacementBlocker::Budget
            | PlacementBlocker::Frozen { .. }
            | PlacementBlocker::Quota { .. }
            | PlacementBlocker::Group { .. } => true,
            PlacementBlocker::GpuType { .. }
            | PlacementBlocker::Scope { .. }
            | PlacementBlocker::GpuCount { .. }
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
    pub(super) fn is_lack_of_room(&self) -> bool {
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
            | PlacementBlocker::GpuCount { .. }
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
            PlacementBlocker::GpuType { .. }
            | PlacementBlocker::Scope { .. }
            | PlacementBlocker::GpuCount { .. } => "gpu_type",
            PlacementBlocker::Memory { .. } => "memory",
            PlacementBlocker::Capacity { .. } | PlacementBlocker::Lost { .. } => "capacity",
            PlacementBlocker::Gang { .. } => "gang",
            PlacementBlocker::Reservation { .. } => "reservation",
            PlacementBlocker::Drain { .. } => "drain",
            PlacementBlocker::Priority { .. } | PlacementBlocker::Delayed { .. } => "priority",
        }
    }
}
