//! Why a job waits: all blockers as data. Also the fair shares of accounts and the queue.

mod blocker;
mod queue;
mod shares;
mod survey;

pub use blocker::PlacementBlocker;
pub use shares::FairShare;

use std::collections::BTreeMap;

use crate::cell::ids::{AttemptId, JobId};
use crate::cell::jobs::job::{CellJob, Waiting, when_free};
use crate::cell::nodes::inventory::{Held, NodeRecord};
use crate::cell::nodes::node::NodeId;
use crate::cell::schedule::forecast::fits_at;
use crate::cell::schedule::preemption::cause::PreemptionCause;
use crate::cell::schedule::reservation::Reservation;
use crate::cell::state::Cell;
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
            None => {
                let (at, _, nodes) = self.earliest(now, job)?;
                self.free_by(now, job, &nodes).unwrap_or(at)
            }
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
        let free = self.free_by(now, job, &kept.nodes).unwrap_or(kept.start_at);
        if kept.start_at > now { free.min(kept.start_at) } else { free }
    }

    /// When all of these nodes will have room for a job.
    fn free_by(&self, now: Timestamp, job: &CellJob, nodes: &[NodeId]) -> Option<Timestamp> {
        let shape = self.shapes.get(job.shape);
        let records = nodes.iter().filter_map(|id| self.inventory.get(*id));
        let free = records.filter_map(|record| {
            fits_at(&record.node, &self.announced(now, record), &self.shapes, shape, now)
        });
        free.max()
    }

    /// The attempts on a node. Until one runs, its request tells only a rounded runtime, which would
    /// make the estimate jump when it starts.
    fn announced(&self, now: Timestamp, record: &NodeRecord) -> BTreeMap<AttemptId, Held> {
        let mut attempts = record.attempts.clone();
        for (id, held) in &mut attempts {
            let Some((job, attempt)) = self.live(*id) else { continue };
            let starts = attempt.running_since.is_none() && attempt.stop.is_none();
            if let Some(longest) = job.spec.max_runtime_ms.filter(|_| starts) {
                let allowed = attempt.proposed_at.plus_millis(self.config.start_allowance_ms);
                let end = allowed.max(now).plus_millis(longest);
                held.until = end.plus_millis(job.spec.grace_ms);
            }
        }
        attempts
    }
}
