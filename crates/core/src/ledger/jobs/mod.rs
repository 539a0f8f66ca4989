//! Jobs: admitted and ended by the ledger, placed by the cells.
//!
//! The ledger is the linearization point of a job: a cell proposes a placement, the ledger confirms
//! it once, and the reports of the cells change the job's hold. [`submit`] places the first hold,
//! [`start`] answers proposals, [`meter`] turns usage into captures, [`fund`] pays for more time,
//! [`warn`] warns before the paid time ends, [`end`] closes holds and places the next ones,
//! [`wait`] reviews blocked jobs, [`external`] takes usage measured outside Bursar, [`table`] keeps
//! the indexes, [`view`] answers queries, and `invariant` checks the invariants.

pub mod apply;
pub mod end;
pub mod external;
pub mod fund;
pub(super) mod invariant;
pub mod meter;
pub mod money;
pub mod start;
pub mod submit;
pub mod table;
pub mod view;
pub mod wait;
pub mod warn;

use std::sync::Arc;

use smallvec::SmallVec;

use super::command::Context;
use super::credits::price::{Rate, Rounding, WHOLE_GPU};
use super::id::{AccountNo, CellNo, HoldNo, JobNo, Name};
use crate::cell::command::{GroupSpec, JobSpec};
use crate::cell::event::{AttemptOutcome, StopReason};
use crate::cell::ids::{AttemptId, ClassRank, JobId};
use crate::cell::schedule::shape::GpuDemand;
use crate::credits::Credits;
use crate::message::ProposedMember;
use crate::name::{AccountPath, ClassName, GpuModel, HoldId, JobName, Region};
use crate::opaque::Opaque;
use crate::time::Timestamp;

/// The state of a job.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobState {
    /// It waits for a placement, for credits, or for another job.
    Queued,
    /// Its placement is confirmed; no node has reported it yet.
    Starting,
    /// It runs and is metered.
    Running,
    /// Its stop was ordered; metering has stopped.
    Stopping,
    /// Its command succeeded.
    Succeeded,
    /// Its command failed.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// Its node or region stopped reporting, and it may not be requeued.
    Lost,
    /// The credits were exhausted.
    OutOfCredits,
    /// It reached its longest runtime.
    TimedOut,
}

impl JobState {
    /// Whether the state is final.
    pub fn is_ended(self) -> bool {
        match self {
            JobState::Queued | JobState::Starting | JobState::Running | JobState::Stopping => false,
            JobState::Succeeded
            | JobState::Failed
            | JobState::Cancelled
            | JobState::Lost
            | JobState::OutOfCredits
            | JobState::TimedOut => true,
        }
    }
}

/// How much of a job is paid for in advance.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reserve {
    /// The whole run.
    Full,
    /// The next window, and another one when half of it is left.
    Rolling {
        /// The length of a window.
        window_ms: i64,
    },
}

/// The default window of a rolling reserve.
pub const ROLLING_WINDOW_MS: i64 = 3_600_000;

/// The default time between the warning and the end of the paid running time.
pub const WARN_AHEAD_MS: i64 = 300_000;

/// What happens when a window of a rolling reserve cannot be filled.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum OnExhausted {
    /// The job stops when the paid running time ends.
    Stop,
    /// The job continues, with usage that is uncollected up to the overdraft limit of the account.
    Overdraft,
}

/// The price of a GPU type in a region. The price at submission applies to all attempts, so that a
/// charge never exceeds a full hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Offer {
    /// The GPU type.
    pub gpu_type: GpuModel,
    /// The region.
    pub region: Region,
    /// Micro-credits per hour of a whole GPU, class multiplier included.
    pub per_gpu_hour: Credits,
}

/// The terms of a job for credits and placement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobTerms {
    /// The priority class.
    pub class: ClassName,
    /// Its rank.
    pub rank: ClassRank,
    /// GPUs on each node.
    pub gpu: GpuDemand,
    /// Acceptable GPU types, the most preferred first.
    pub gpu_types: Vec<GpuModel>,
    /// The number of nodes; all start or none.
    pub nodes: u16,
    /// The least memory of each GPU, in MiB.
    pub gpu_memory_mib: u32,
    /// Thousandths of a core on each node.
    pub cpu_milli: u32,
    /// Main memory on each node, in MiB.
    pub memory_mib: u32,
    /// Labels that each node must carry, such as `zone=a`.
    pub labels: Vec<Name>,
    /// The longest runtime; absent only with a rolling reserve.
    pub max_runtime_ms: Option<i64>,
    /// Whether it may be preempted and requeued.
    pub preemptible: bool,
    /// Whether its command continues where it stopped.
    pub resumable: bool,
    /// The time between the request to stop and the kill.
    pub grace_ms: i64,
    /// How much is paid for in advance.
    pub reserve: Reserve,
    /// What happens when a window cannot be filled.
    pub on_exhausted: OnExhausted,
    /// The concurrency group that it counts in.
    pub group: Option<GroupSpec>,
    /// How often it is requeued after a node was lost.
    pub max_requeues: u32,
    /// The time between the warning and the end of the paid running time; zero for no warning.
    pub warn_ahead_ms: i64,
    /// Whether it runs outside Bursar: no cell places it, and all its usage is reported.
    pub external: bool,
}

/// A job as it was submitted. Never changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobOrder {
    /// Its name.
    pub id: JobName,
    /// The account that pays.
    pub account: AccountNo,
    /// Its terms for credits and placement.
    pub terms: JobTerms,
    /// Its price for each GPU type and region.
    pub offers: Vec<Offer>,
    /// What the agent needs to start it.
    pub payload: Opaque,
    /// The job as it was submitted, for queries.
    pub submitted: Opaque,
    /// The name of its first hold.
    pub hold: HoldId,
    /// The hash of the request that submitted it.
    pub fingerprint: u128,
}

/// One job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Job {
    /// What was submitted.
    pub order: Arc<JobOrder>,
    /// Its state.
    pub state: JobState,
    /// When it was submitted.
    pub submitted_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The amount of its first hold.
    pub reserved: Credits,
    /// Its open hold; `None` if it has ended, costs nothing, or waits for credits.
    pub hold: Option<HoldNo>,
    /// The name of its current or last hold.
    pub hold_name: Option<HoldId>,
    /// How many holds it has had.
    pub holds: u32,
    /// Jobs that must succeed first and have not yet.
    pub after: Vec<JobNo>,
    /// The cells where it is admitted.
    pub standings: SmallVec<[Standing; 1]>,
    /// Its attempts, in order; the last one may be live.
    pub attempts: Vec<Attempt>,
    /// The highest attempt number that any cell has proposed or was sent as a starting point. No
    /// cell has proposed more than the next one.
    pub highest: u32,
    /// Whether its cancellation was requested.
    pub cancel_asked: bool,
}

/// The admission of a job to a cell.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Standing {
    /// The cell.
    pub cell: CellNo,
    /// Only attempts with a higher number belong to this admission.
    pub after: u32,
    /// Whether the cell must wait until the job is admitted again.
    pub waits: bool,
}

/// One start of a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attempt {
    /// The cell that placed it; `None` if it runs outside Bursar.
    pub cell: Option<CellNo>,
    /// Its number there.
    pub number: u32,
    /// The GPU type.
    pub gpu_type: Option<GpuModel>,
    /// Where it runs.
    pub members: SmallVec<[ProposedMember; 1]>,
    /// The pinned price.
    pub per_gpu_hour: Credits,
    /// The name of the hold that pays for it.
    pub hold: Option<HoldId>,
    /// When it was confirmed.
    pub confirmed_at: Timestamp,
    /// When it was first reported running.
    pub started_at: Option<Timestamp>,
    /// The running time that is paid for; `None` if all of it is.
    pub funded_ms: Option<i64>,
    /// The usage that it may leave unpaid.
    pub overdraft: u64,
    /// Whether the last window could not be filled.
    pub short: bool,
    /// The running time that credits pay for, if the rest is an overdraft.
    pub credits_ms: Option<i64>,
    /// The consequence of the last warning, while the end is near.
    pub warned: Option<OnExhausted>,
    /// Its end, if it has ended.
    pub end: Option<AttemptEnd>,
}

/// How an attempt ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct AttemptEnd {
    /// When.
    pub at: Timestamp,
    /// Why.
    pub reason: EndReason,
    /// The exit code of its process.
    pub exit_code: Option<i32>,
    /// The billable GPU time, in GPU-milliseconds.
    pub gpu_ms: u64,
    /// The charge, collected or not.
    pub charged: u64,
    /// The part of the charge for which no credits were found.
    pub uncollected: u64,
    /// The amount that its hold returned when it was closed.
    pub returned: u64,
}

/// Why an attempt ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EndReason {
    /// Its command succeeded.
    Succeeded,
    /// Its command failed.
    Failed,
    /// The job was cancelled.
    Cancelled,
    /// It was preempted.
    Preempted,
    /// An operator stopped it.
    Operator,
    /// Its node was drained.
    Drained,
    /// It reached its longest runtime.
    TimedOut,
    /// The credits were exhausted.
    OutOfCredits,
    /// Its node or region stopped reporting.
    Lost,
}

impl EndReason {
    /// The reason that corresponds to an outcome in a cell.
    pub(super) fn of(outcome: AttemptOutcome) -> EndReason {
        match outcome {
            AttemptOutcome::Succeeded => EndReason::Succeeded,
            AttemptOutcome::Failed => EndReason::Failed,
            AttemptOutcome::Lost => EndReason::Lost,
            AttemptOutcome::Stopped(reason) => match reason {
                StopReason::Cancelled => EndReason::Cancelled,
                StopReason::Preempted { .. } => EndReason::Preempted,
                StopReason::Operator { .. } => EndReason::Operator,
                StopReason::Drained => EndReason::Drained,
                StopReason::MaxRuntime => EndReason::TimedOut,
                StopReason::OutOfCredits => EndReason::OutOfCredits,
            },
        }
    }

    /// The final state of the job if it is not requeued.
    pub(super) fn job_state(self) -> JobState {
        match self {
            EndReason::Succeeded => JobState::Succeeded,
            EndReason::Failed => JobState::Failed,
            EndReason::Cancelled => JobState::Cancelled,
            EndReason::TimedOut => JobState::TimedOut,
            EndReason::OutOfCredits => JobState::OutOfCredits,
            EndReason::Preempted | EndReason::Operator | EndReason::Drained | EndReason::Lost => {
                JobState::Lost
            }
        }
    }
}

/// The most running time that is charged to a job without a longest runtime: a century.
const CENTURY_MS: i64 = 3_153_600_000_000;

impl JobTerms {
    /// The GPU-milliseconds of `runtime_ms` of running time.
    pub(super) fn gpu_ms(&self, runtime_ms: i64) -> u64 {
        let devices = u64::from(self.gpu.devices()) * u64::from(self.nodes);
        devices.saturating_mul(runtime_ms.max(0).unsigned_abs())
    }

    /// The most GPU time that is ever charged to one attempt.
    pub(in crate::ledger) fn gpu_ms_limit(&self) -> u64 {
        self.gpu_ms(self.max_runtime_ms.unwrap_or(CENTURY_MS))
    }

    /// The rate at a price.
    pub(super) fn rate(&self, per_gpu_hour: Credits) -> Rate {
        let share_milli = match self.gpu {
            GpuDemand::None => WHOLE_GPU,
            GpuDemand::Share(_) | GpuDemand::Whole(_) => self.gpu.per_device(),
        };
        // What runs outside is not stopped at its longest runtime, and its usage counts.
        let gpu_ms_limit =
            if self.external { self.gpu_ms(CENTURY_MS) } else { self.gpu_ms_limit() };
        Rate { per_gpu_hour, share_milli, gpu_ms_limit }
    }

    /// The running time that the first hold pays for; `None` if it pays for all.
    pub(super) fn first_window(&self) -> Option<i64> {
        self.window_after(0)
    }

    /// The running time that is paid for with one more window; `None` if all of it is.
    pub(super) fn window_after(&self, funded_ms: i64) -> Option<i64> {
        match self.reserve {
            Reserve::Full => None,
            Reserve::Rolling { window_ms } => {
                let funded = funded_ms.saturating_add(window_ms);
                self.max_runtime_ms.is_none_or(|longest| funded < longest).then_some(funded)
            }
        }
    }

    /// The GPU time of a running time; the limit if the running time is `None`.
    pub(super) fn funded_gpu_ms(&self, funded_ms: Option<i64>) -> u64 {
        funded_ms.map_or(self.gpu_ms_limit(), |funded| self.gpu_ms(funded))
    }

    /// The cost of GPU time at a price, to the nearest micro-credit; at most [`Credits::MAX`].
    pub(super) fn hourly(&self, per_gpu_hour: Credits, gpu_ms: u64) -> Credits {
        let rate = Rate { gpu_ms_limit: gpu_ms, ..self.rate(per_gpu_hour) };
        rate.charge(gpu_ms, Rounding::HalfEven).unwrap_or(Credits::MAX)
    }

    /// The amount of a hold that covers a running time at a price; `None` if it exceeds
    /// [`Credits::MAX`].
    pub(super) fn hold_at(&self, per_gpu_hour: Credits, funded_ms: Option<i64>) -> Option<Credits> {
        self.rate(per_gpu_hour).charge(self.funded_gpu_ms(funded_ms), Rounding::Ceil)
    }
}

impl JobOrder {
    /// The highest price of its offers.
    pub fn costliest(&self) -> Credits {
        self.offers.iter().map(|offer| offer.per_gpu_hour).max().unwrap_or(Credits::ZERO)
    }

    /// The amount of its first hold and of each later one.
    pub fn need(&self) -> Credits {
        let need = self.terms.hold_at(self.costliest(), self.terms.first_window());
        // Checked at submission.
        need.unwrap_or(Credits::MAX)
    }

    /// The context of its holds: every acceptable GPU type and region.
    pub fn context(&self) -> Context {
        context(&self.terms, &self.offers)
    }

    /// The offer for a GPU type in a region. A job without GPUs takes any offer.
    pub(super) fn offer(&self, gpu_type: Option<&str>, region: &str) -> Option<&Offer> {
        let mut here = self.offers.iter().filter(|offer| offer.region == region);
        here.find(|offer| gpu_type.is_none_or(|gpu_type| offer.gpu_type == gpu_type))
    }

    /// The GPU types that have a price in a region, the most preferred first.
    fn models_in(&self, region: &str) -> SmallVec<[GpuModel; 2]> {
        let mut models: SmallVec<[GpuModel; 2]> = SmallVec::new();
        let wanted = self.terms.gpu_types.iter();
        for model in wanted.chain(self.offers.iter().map(|offer| &offer.gpu_type)) {
            if !models.contains(model) && self.offer(Some(model), region).is_some() {
                models.push(model.clone());
            }
        }
        models
    }

    /// The specification that the cell of a region receives.
    pub(super) fn spec(
        &self,
        id: JobId,
        region: &str,
        account: &AccountPath,
        submitted_at: Timestamp,
        attempts_before: u32,
    ) -> JobSpec {
        JobSpec {
            models: self.models_in(region),
            submitted_at,
            attempts_before,
            payload: self.payload.clone(),
            ..self.terms.spec(id, account.clone())
        }
    }
}

impl JobTerms {
    /// The specification of a job with these terms, for a cell. The caller adds the GPU models and
    /// what the job needs to run.
    pub fn spec(&self, job: JobId, account: AccountPath) -> JobSpec {
        JobSpec {
            class: self.rank,
            class_name: self.class.clone(),
            gpu_memory_mib: self.gpu_memory_mib,
            cpu_milli: self.cpu_milli,
            memory_mib: self.memory_mib,
            labels: self.labels.iter().cloned().collect(),
            nodes: self.nodes,
            max_runtime_ms: self.max_runtime_ms,
            preemptible: self.preemptible,
            resumable: self.resumable,
            grace_ms: self.grace_ms,
            group: self.group.clone(),
            max_requeues: self.max_requeues,
            ..JobSpec::new(job, account, self.gpu)
        }
    }
}

/// Everything that the offers allow, sorted.
pub(super) fn context(terms: &JobTerms, offers: &[Offer]) -> Context {
    Context {
        gpu_types: Some(sorted(offers.iter().map(|offer| offer.gpu_type.clone()).collect())),
        regions: Some(sorted(offers.iter().map(|offer| offer.region.clone()).collect())),
        class: Some(terms.class.clone()),
    }
}

fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort_unstable();
    list.dedup();
    list
}

impl Job {
    /// The attempt that has not ended.
    pub fn live_attempt(&self) -> Option<&Attempt> {
        self.attempts.last().filter(|attempt| attempt.end.is_none())
    }

    /// The attempt that a cell reports on, unless it has ended.
    pub(super) fn attempt_of(&self, cell: CellNo, attempt: AttemptId) -> Option<&Attempt> {
        self.live_attempt().filter(|live| live.cell == Some(cell) && live.number == attempt.number)
    }

    /// Whether it waits for a hold.
    pub fn is_unfunded(&self) -> bool {
        !self.state.is_ended() && self.hold.is_none() && !self.order.need().is_zero()
    }

    /// Whether it is blocked: it waits for credits, a cell waits for its admission, or it runs on
    /// less than a full window.
    pub(super) fn is_held_up(&self) -> bool {
        let waits = self.standings.iter().any(|standing| standing.waits);
        self.state == JobState::Queued && (self.is_unfunded() || waits) || self.is_short()
    }

    /// Whether it runs and its last window was not filled.
    pub(super) fn is_short(&self) -> bool {
        let runs = self.state == JobState::Starting || self.state == JobState::Running;
        runs && self.live_attempt().is_some_and(|live| live.short)
    }

    /// The charges of its ended attempts.
    pub fn charged(&self) -> u128 {
        let ends = self.attempts.iter().filter_map(|attempt| attempt.end);
        ends.map(|end| u128::from(end.charged)).sum()
    }
}
