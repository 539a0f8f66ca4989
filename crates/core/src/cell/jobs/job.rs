//! Jobs, what they ask for, and where they stand.

use super::attempt::Attempt;
use crate::cell::command::{FundsBlocker, JobSpec, Refusal};
use crate::cell::config::CellConfig;
use crate::cell::event::AttemptOutcome;
use crate::cell::ids::{AccountId, AttemptId, ClassRank, GroupId, JobId, RequestId};
use crate::cell::nodes::node::MAX_GPUS;
use crate::cell::schedule::shape::{GpuDemand, ShapeId};
use crate::cell::share::lanes::{Ticket, Waiter};
use crate::time::Timestamp;

/// The longest path of an account.
const MAX_LEVELS: usize = 8;
/// A job that had to leave as a guest so often is nobody's guest any more.
const MOST_GUEST_TURNS: u32 = 5;
/// The most nodes of one job.
const MAX_NODES: u16 = 4096;

/// The time a job takes its place for, rounded up to five minutes times a power of two, so that
/// jobs that differ by little are one request.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Occupancy {
    /// At most five minutes times two to this power.
    Within(u8),
    /// For ever, if it likes.
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

    /// The longest it takes, by assumption if it does not say.
    pub(crate) fn limit_ms(self, config: &CellConfig) -> i64 {
        match self {
            Occupancy::Within(power) => Occupancy::STEP_MS << power,
            Occupancy::Unlimited => config.assumed_runtime_ms,
        }
    }
}

/// What jobs have in common that fit in the same places: everything that decides where and when.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    pub shape: ShapeId,
    pub nodes: u16,
    pub occupancy: Occupancy,
    /// Whether it may be a guest on nodes that are kept for somebody else.
    pub guest: bool,
}

/// A job that waits or has GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub spec: Box<JobSpec>,
    pub account: AccountId,
    pub request: RequestId,
    pub shape: ShapeId,
    pub group: Option<GroupId>,
    pub ticket: Ticket,
    pub submitted_at: Timestamp,
    /// How often it was started.
    pub attempts: u32,
    /// How often it was queued again after a loss.
    pub requeues: u32,
    /// How often it was preempted for the fair share.
    pub share_preemptions: u32,
    /// How often it had to leave nodes on which it was a guest.
    pub guest_turns: u32,
    /// The job that preempted it last, which it may not preempt in turn.
    pub preempted_by: Option<JobId>,
    /// Plans of preemption for it that did not lead to a start in time.
    pub failed_plans: u32,
    /// No plan of preemption is made for it before.
    pub plan_after: Timestamp,
    pub phase: Phase,
    /// The end of an attempt that the ledger is not told yet, because parts of it may still run: it
    /// could have the job started elsewhere.
    pub untold: Option<Box<EndedAttempt>>,
}

/// How an attempt ended after which its job is queued again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedAttempt {
    pub attempt: AttemptId,
    pub outcome: AttemptOutcome,
    pub gpu_ms: u64,
    pub exit_code: Option<i32>,
    pub requeued: Option<Timestamp>,
}

/// Where a job stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It has no GPUs.
    Waiting(Waiting),
    /// It has GPUs, at least proposed ones.
    Active(Box<Attempt>),
}

/// Stands for the instant at which the last node has said that an earlier attempt is gone.
pub(crate) fn when_free() -> Timestamp {
    Timestamp::MAX.plus_millis(-1)
}

/// Stands for the instant at which the ledger answers a proposal whose place is gone.
pub(crate) const WHEN_ANSWERED: Timestamp = Timestamp::MAX;

/// Why a job has no GPUs.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waiting {
    /// It competes with the others.
    Competing,
    /// Its group is full.
    Group,
    /// The ledger does not pay for it now.
    Funds(FundsBlocker),
    /// An operator preempted it a moment ago; or, at the end of time, a node has yet to say that an
    /// earlier attempt is gone, or the ledger to answer a proposal whose place is gone.
    Delayed(Timestamp),
    /// Others are being preempted for it.
    Nominated,
    /// It is between two phases, within one event.
    Moving,
}

impl Job {
    pub(crate) fn class(&self) -> ClassRank {
        self.spec.class
    }

    /// Whether it may be a guest on nodes that are kept for somebody else. Who had to leave such
    /// nodes again and again waits for a place that he can keep.
    pub(crate) fn may_be_guest(&self) -> bool {
        self.spec.preemptible && self.guest_turns < MOST_GUEST_TURNS
    }

    pub(crate) fn attempt(&self) -> Option<&Attempt> {
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

    /// Whether another job of the same account asks for the same.
    pub(crate) fn is_like(&self, other: &Job) -> bool {
        (self.account, self.shape, self.spec.nodes)
            == (other.account, other.shape, other.spec.nodes)
    }

    /// Thousandths of GPUs that it takes on all its nodes.
    pub(crate) fn thousandths(&self) -> u32 {
        self.spec.gpu.total() * u32::from(self.spec.nodes)
    }

    /// Devices that it touches on all its nodes.
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
        self.account.split(':').next().unwrap_or_default()
    }

    /// Refuses what has no meaning.
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

/// Refuses what is no account path.
pub(crate) fn check_path(path: &str) -> Result<(), Refusal> {
    let segments = path.split(':');
    let fine = segments.clone().count() <= MAX_LEVELS
        && segments.clone().all(|segment| {
            let first = segment.bytes().next();
            first.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
                && segment.len() <= 63
                && segment.bytes().all(|byte| {
                    byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte)
                })
        });
    if fine {
        Ok(())
    } else {
        Err(Refusal::Invalid {
            field: "account",
            must: "1 to 8 segments [a-z0-9][a-z0-9._-]{0,62} joined by colons",
        })
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
    fn paths_follow_the_grammar_of_accounts() {
        for path in ["a", "acme:nlp:pre-train:al.ice_2"] {
            assert_eq!(check_path(path), Ok(()));
        }
        for path in ["", ":", "a:", "A", "a b", "-a", "a:b:c:d:e:f:g:h:i"] {
            assert!(check_path(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn jobs_without_meaning_are_refused_by_field() {
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
