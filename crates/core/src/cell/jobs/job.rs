//! Jobs, their requests and their phases.

use smallvec::SmallVec;

use super::attempt::CellAttempt;
use crate::cell::command::{FundsBlocker, JobSpec, Refusal};
use crate::cell::config::CellConfig;
use crate::cell::event::AttemptOutcome;
use crate::cell::ids::{AccountId, AttemptId, ClassRank, GroupId, JobId, RequestId};
use crate::cell::nodes::node::MAX_GPUS;
use crate::cell::schedule::preemption::cause::PreemptionCause;
use crate::cell::schedule::shape::{GpuDemand, Shape, ShapeId};
use crate::cell::share::lanes::{Ticket, Waiter};
use crate::name::{AccountPath, tenant_of};
use crate::time::Timestamp;

/// The most segments of an account path.
/// A job evicted this many times as a guest is no longer scheduled as a guest.
const MAX_GUEST_TURNS: u32 = 5;
/// The most nodes of one job.
const MAX_NODES: u16 = 4096;

/// The longest runtime of a job including its grace, rounded up to five minutes times a power of
/// two, so that jobs that differ little have one request.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Occupancy {
    /// At most five minutes times two to this power.
    Within(u8),
    /// No stated limit.
    Unlimited,
}

impl Occupancy {
    const STEP_MS: i64 = 300_000;

    fn of(spec: &JobSpec) -> Occupancy {
        let Some(runtime) = spec.max_runtime_ms else { return Occupancy::Unlimited };
        let total = runtime.saturating_add(spec.grace_ms);
        let power = (0..40).find(|power| Occupancy::STEP_MS << power >= total);
        power.map_or(Occupancy::Unlimited, Occupancy::Within)
    }

    /// The longest time, or the assumed one where none is stated.
    pub(crate) fn limit_ms(self, config: &CellConfig) -> i64 {
        match self {
            Occupancy::Within(power) => Occupancy::STEP_MS << power,
            Occupancy::Unlimited => config.assumed_runtime_ms,
        }
    }
}

/// Everything that decides where and when a job fits. Jobs with equal requests fit in the same
/// places.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    pub shape: ShapeId,
    pub nodes: u16,
    pub occupancy: Occupancy,
    /// Whether it may run as a guest on nodes reserved for another job.
    pub guest: bool,
}

/// A job that waits or has GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CellJob {
    pub spec: Box<JobSpec>,
    pub account: AccountId,
    pub request: RequestId,
    pub shape: ShapeId,
    pub group: Option<GroupId>,
    pub ticket: Ticket,
    pub submitted_at: Timestamp,
    /// How often it was started.
    pub attempts: u32,
    /// How often it was requeued after a loss.
    pub requeues: u32,
    /// How often it was preempted for fair share.
    pub share_preemptions: u32,
    /// How often it was evicted as a guest.
    pub guest_turns: u32,
    /// The job that preempted it last. It may not preempt that job in turn, with exceptions for
    /// resumable jobs (`preemption/fairness.rs`).
    pub preempted_by: Option<JobId>,
    /// The rule and the numbers of that preemption, until an attempt ends in another way.
    pub preemption: Option<PreemptionCause>,
    /// Plans of preemption for it that did not lead to a start in time.
    pub failed_plans: u32,
    /// No plan of preemption is made for it before this instant.
    pub plan_after: Timestamp,
    pub phase: Phase,
    /// The end of an attempt that was not yet sent to the ledger, because parts of the attempt may
    /// still run: the ledger could start the job elsewhere.
    pub unsent_end: Option<Box<EndedAttempt>>,
}

/// The end of an attempt whose job is requeued.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EndedAttempt {
    pub attempt: AttemptId,
    pub outcome: AttemptOutcome,
    pub gpu_ms: u64,
    pub exit_code: Option<i32>,
    pub requeued: Option<Timestamp>,
}

/// Whether a job waits or has GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It has no GPUs.
    Waiting(Waiting),
    /// It has GPUs, at least proposed ones.
    Active(Box<CellAttempt>),
}

/// Placeholder for the instant at which the last fence of an earlier attempt is lifted.
pub(crate) fn when_free() -> Timestamp {
    Timestamp::MAX.plus_millis(-1)
}

/// Placeholder for the instant at which the ledger answers a proposal that has ended.
pub(crate) const WHEN_ANSWERED: Timestamp = Timestamp::MAX;

/// Why a job has no GPUs.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Waiting {
    /// It competes with other jobs.
    Competing,
    /// Its group is full.
    Group,
    /// The ledger does not pay for it now.
    Funds(FundsBlocker),
    /// An operator preempted it a moment ago. Two values at the end of time are placeholders: a
    /// node has not yet reported an earlier attempt gone, or the ledger has not yet answered a
    /// proposal that has ended.
    Delayed(Timestamp),
    /// Attempts are being preempted for it.
    Nominated,
    /// It is between two phases, within one event.
    Moving,
}

impl CellJob {
    pub(crate) fn class(&self) -> ClassRank {
        self.spec.class
    }

    /// Whether it may run as a guest on nodes reserved for another job. A job that was evicted too
    /// often as a guest waits for a placement that it can keep.
    pub(crate) fn may_be_guest(&self) -> bool {
        self.spec.preemptible && self.guest_turns < MAX_GUEST_TURNS
    }

    pub(crate) fn attempt(&self) -> Option<&CellAttempt> {
        match &self.phase {
            Phase::Waiting(_) => None,
            Phase::Active(attempt) => Some(attempt),
        }
    }

    pub(crate) fn waiting(&self) -> Option<Waiting> {
        match &self.phase {
            Phase::Waiting(waiting) => Some(*waiting),
            Phase::Active(_) => None,
        }
    }

    pub(crate) fn waiter(&self) -> Waiter {
        Waiter {
            account: self.account,
            class: self.spec.class,
            request: self.request,
            ticket: self.ticket,
            job: self.spec.job,
        }
    }

    /// Thousandths of GPUs on all its nodes.
    pub(crate) fn thousandths(&self) -> u32 {
        self.spec.gpu.total() * u32::from(self.spec.nodes)
    }

    /// Devices used on all its nodes.
    pub(crate) fn devices(&self) -> u64 {
        u64::from(self.spec.gpu.devices()) * u64::from(self.spec.nodes)
    }
}

impl JobSpec {
    pub(crate) fn occupancy(&self) -> Occupancy {
        Occupancy::of(self)
    }

    /// The tenant: the first segment of the account's path.
    pub(crate) fn tenant(&self) -> &str {
        tenant_of(&self.account)
    }

    /// Its shape without labels and GPU types.
    pub(super) fn bare_shape(&self, scopes: SmallVec<[AccountId; 1]>) -> Shape {
        Shape {
            gpu: self.gpu,
            models: SmallVec::new(),
            gpu_memory_mib: self.gpu_memory_mib,
            cpu_milli: self.cpu_milli,
            memory_mib: self.memory_mib,
            labels: SmallVec::new(),
            scopes,
        }
    }

    /// Its request with this shape.
    pub(super) fn request(&self, shape: ShapeId) -> Request {
        let (nodes, occupancy, guest) = (self.nodes, self.occupancy(), self.preemptible);
        Request { shape, nodes, occupancy, guest }
    }

    /// Rejects out-of-range values.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let invalid = |field, must| Err(Refusal::Invalid { field, must });
        check_path(&self.account)?;
        match self.gpu {
            GpuDemand::None => {}
            GpuDemand::Share(share) if (1..1000).contains(&share) => {}
            GpuDemand::Share(_) => return invalid("gpu", "a share of 1 to 999 thousandths"),
            GpuDemand::Whole(count) if (1..=MAX_GPUS).contains(&usize::from(count)) => {}
            GpuDemand::Whole(_) => return invalid("gpu", "1 to 64 GPUs on each node"),
        }
        if self.nodes == 0 || self.nodes > MAX_NODES {
            return invalid("nodes", "1 to 4096");
        }
        if self.max_runtime_ms.is_some_and(|runtime| runtime <= 0) {
            return invalid("max_runtime_ms", "positive");
        }
        if self.grace_ms < 0 || self.grace_ms > 86_400_000 {
            return invalid("grace_ms", "between 0 and a day");
        }
        if self.group.as_ref().is_some_and(|group| group.limit == 0) {
            return invalid("group.limit", "at least 1");
        }
        Ok(())
    }
}

/// Refuses invalid account paths.
pub(crate) fn check_path(path: &str) -> Result<(), Refusal> {
    if AccountPath::is_valid(path) {
        Ok(())
    } else {
        Err(Refusal::Invalid { field: "account", must: AccountPath::FORM })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_are_rounded_up_with_the_grace_to_steps_that_double() {
        let mut spec = JobSpec::new(JobId(1), "a", GpuDemand::Whole(1));
        spec.grace_ms = 60_000;
        let config = CellConfig::default();
        for (minutes, rounded) in [(1, 5), (4, 5), (5, 10), (59, 80), (60 * 24, 2560)] {
            spec.max_runtime_ms = Some(minutes * 60_000);
            assert_eq!(spec.occupancy().limit_ms(&config), rounded * 60_000, "{minutes} min");
        }
        spec.max_runtime_ms = Some(i64::MAX);
        assert_eq!(spec.occupancy(), Occupancy::Unlimited);
    }

    #[test]
    fn invalid_jobs_are_refused_with_the_field() {
        let fine = JobSpec::new(JobId(1), "a", GpuDemand::Whole(1));
        assert_eq!(fine.check(), Ok(()));
        type Change = fn(&mut JobSpec);
        let changes: [(&str, Change); 6] = [
            ("account", |spec| spec.account = "".into()),
            ("gpu", |spec| spec.gpu = GpuDemand::Whole(0)),
            ("gpu", |spec| spec.gpu = GpuDemand::Share(1000)),
            ("nodes", |spec| spec.nodes = 0),
            ("max_runtime_ms", |spec| spec.max_runtime_ms = Some(0)),
            ("grace_ms", |spec| spec.grace_ms = -1),
        ];
        for (expected, change) in changes {
            let mut spec = fine.clone();
            change(&mut spec);
            assert!(
                matches!(spec.check(), Err(Refusal::Invalid { field, .. }) if field == expected),
                "{expected}"
            );
        }
    }
}
