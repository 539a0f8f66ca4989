//! Jobs: admitted here, placed by the cells, ended here.
//!
//! The ledger is the linearization point of a job: a cell proposes a placement, the ledger confirms
//! it once, and what the cells report moves the job's hold. [`submit`] places the first hold,
//! [`start`] answers proposals, [`meter`] turns usage into captures, [`fund`] pays for more time and
//! [`warn`] tells ahead when nobody does, [`end`] closes holds and places the next ones, [`wait`]
//! looks again at jobs that were held up, [`external`] takes usage that others measured, [`table`]
//! keeps the indexes, [`view`] reads, `invariant` says what must always be true.

pub mod apply;
pub mod end;
pub mod external;
pub mod fund;
pub(super) mod invariant;
pub mod meter;
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
use crate::time::Timestamp;

/// Where a job is in its life.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobState {
    /// It waits: for a place, for credits, or for another job.
    Queued,
    /// Its placement is confirmed; no node has reported it yet.
    Starting,
    /// It runs, and its meter too.
    Running,
    /// It was asked to stop; the meter stands still.
    Stopping,
    /// It ended well.
    Succeeded,
    /// It ended badly.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// Its node or its region fell silent, and it may not be queued again.
    Lost,
    /// Nobody paid for more.
    OutOfCredits,
    /// It ran as long as it may.
    TimedOut,
}

impl JobState {
    /// Whether nothing more will happen to it.
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
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// The whole run.
    Full,
    /// The next window, and the one after it when half of it is left.
    Rolling {
        /// How long a window is.
        window_ms: i64,
    },
}

/// The usual window of a rolling reserve.
pub const ROLLING_WINDOW_MS: i64 = 3_600_000;

/// How long before the end of what is paid for those who follow a job are usually warned.
pub const WARN_AHEAD_MS: i64 = 300_000;

/// What happens when a rolling reserve cannot be filled up.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum OnExhausted {
    /// The job ends with what is paid for.
    Stop,
    /// It runs on, owing up to the account's overdraft limit.
    Overdraft,
}

/// What it costs to run somewhere. The price of the submission holds for all attempts, so that a
/// charge never exceeds a full hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The GPU type.
    pub gpu_type: Name,
    /// The region.
    pub region: Name,
    /// Micro-credits per hour of a whole GPU, class multiplier included.
    pub per_gpu_hour: Credits,
}

/// What matters of a job to money and placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobTerms {
    /// The priority class.
    pub class: Name,
    /// Its rank.
    pub rank: ClassRank,
    /// GPUs on each node.
    pub gpu: GpuDemand,
    /// GPU types that will do, the dearest to the user first.
    pub gpu_types: Vec<Name>,
    /// Nodes, all at once or none.
    pub nodes: u16,
    /// Least memory of each GPU, in MiB.
    pub gpu_memory_mib: u32,
    /// Thousandths of a core on each node.
    pub cpu_milli: u32,
    /// Main memory on each node, in MiB.
    pub memory_mib: u32,
    /// Labels that each node must carry, such as `zone=a`.
    pub labels: Vec<Name>,
    /// The longest it may run; absent only with a rolling reserve.
    pub max_runtime_ms: Option<i64>,
    /// Whether it may be stopped for others and queued again.
    pub preemptible: bool,
    /// Whether it goes on where it was when it is started again.
    pub resumable: bool,
    /// How long it gets between the request to stop and the kill.
    pub grace_ms: i64,
    /// How much is paid for in advance.
    pub reserve: Reserve,
    /// What happens when that cannot be filled up.
    pub on_exhausted: OnExhausted,
    /// The concurrency group that it counts in.
    pub group: Option<GroupSpec>,
    /// How often it is queued again after a node was lost.
    pub max_requeues: u32,
    /// How long before the end of what is paid for those who follow it are warned. Zero: never.
    pub warn_ahead_ms: i64,
}

/// A job as it was submitted. Never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobOrder {
    /// Its name.
    pub id: Name,
    /// The account that pays.
    pub account: AccountNo,
    /// What matters to money and placement.
    pub terms: JobTerms,
    /// What it costs where.
    pub offers: Vec<Offer>,
    /// What the agent must know.
    pub payload: Box<str>,
    /// The job as it was submitted, for those who ask.
    pub shown: Box<str>,
    /// The name of its first hold.
    pub hold: Name,
    /// The hash of the request that submitted it.
    pub fingerprint: u128,
}

/// One job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// What was submitted.
    pub order: Arc<JobOrder>,
    /// Where it is in its life.
    pub state: JobState,
    /// When it was submitted.
    pub submitted_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// What its first hold set aside.
    pub reserved: Credits,
    /// Its open hold. `None`: it has ended, costs nothing, or waits for credits.
    pub hold: Option<HoldNo>,
    /// The name of its current or last hold.
    pub hold_name: Option<Name>,
    /// How many holds it has had.
    pub holds: u32,
    /// Jobs that have not succeeded yet and must.
    pub after: Vec<JobNo>,
    /// Where it competes.
    pub standings: SmallVec<[Standing; 1]>,
    /// Its starts, in order; the last one may still live.
    pub attempts: Vec<Attempt>,
    /// The highest number of an attempt that any cell has proposed, or was told to count on from:
    /// no cell has proposed more than the one after it.
    pub highest: u32,
    /// Whether its end was asked for.
    pub cancel_asked: bool,
}

/// How a job stands in a cell.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The cell.
    pub cell: CellNo,
    /// Only attempts with a higher number are of this admission.
    pub after: u32,
    /// Whether the cell was told to wait until the job is admitted again.
    pub waits: bool,
}

/// One start of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The cell that placed it; `None` if others measure it.
    pub cell: Option<CellNo>,
    /// Its number there.
    pub number: u32,
    /// The GPU type.
    pub gpu_type: Option<Name>,
    /// Where it runs.
    pub members: SmallVec<[ProposedMember; 1]>,
    /// The pinned price.
    pub per_gpu_hour: Credits,
    /// The name of the hold that pays for it.
    pub hold: Option<Name>,
    /// When it was confirmed.
    pub confirmed_at: Timestamp,
    /// When it was first reported running.
    pub started_at: Option<Timestamp>,
    /// The running time that is paid for. `None`: all of it.
    pub funded_ms: Option<i64>,
    /// What it may leave unpaid.
    pub overdraft: u64,
    /// Whether the last window could not be filled.
    pub short: bool,
    /// The running time that credits pay for, where the rest may stay unpaid.
    pub credits_ms: Option<i64>,
    /// What those who follow it were warned of, while that is near.
    pub warned: Option<OnExhausted>,
    /// How it ended, once it has.
    pub end: Option<AttemptEnd>,
}

/// How an attempt ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct AttemptEnd {
    /// When.
    pub at: Timestamp,
    /// Why.
    pub reason: EndReason,
    /// What its process ended with.
    pub exit_code: Option<i32>,
    /// GPU time that was credited, in GPU-milliseconds.
    pub gpu_ms: u64,
    /// What it was charged, collected or not.
    pub charged: u64,
    /// How much of that nothing could be found for.
    pub uncollected: u64,
    /// What came back of its hold when it was closed.
    pub returned: u64,
}

/// Why an attempt ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EndReason {
    /// It ended well.
    Succeeded,
    /// It ended badly.
    Failed,
    /// The job was cancelled.
    Cancelled,
    /// Others needed its place.
    Preempted,
    /// An operator asked for it.
    Operator,
    /// Its node was emptied.
    Drained,
    /// It ran as long as it may.
    TimedOut,
    /// Nobody paid for more.
    OutOfCredits,
    /// Its node or its region fell silent.
    Lost,
}

impl EndReason {
    /// What a cell's verdict means here.
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

    /// How the job ends with its attempt if it is not queued again.
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

/// No usage beyond a century is credited to a job without a longest runtime.
const CENTURY_MS: i64 = 3_153_600_000_000;

impl JobTerms {
    /// GPU-milliseconds that `runtime_ms` of running is at most.
    pub(super) fn gpu_ms(&self, runtime_ms: i64) -> u64 {
        let devices = u64::from(self.gpu.devices()) * u64::from(self.nodes);
        devices.saturating_mul(runtime_ms.max(0).unsigned_abs())
    }

    /// The most GPU time that is ever credited to one attempt.
    pub(in crate::ledger) fn gpu_ms_limit(&self) -> u64 {
        self.gpu_ms(self.max_runtime_ms.unwrap_or(CENTURY_MS))
    }

    /// The rate at a price.
    pub(super) fn rate(&self, per_gpu_hour: Credits) -> Rate {
        let share_milli = match self.gpu {
            GpuDemand::None => WHOLE_GPU,
            GpuDemand::Share(_) | GpuDemand::Whole(_) => self.gpu.per_device(),
        };
        Rate { per_gpu_hour, share_milli, gpu_ms_limit: self.gpu_ms_limit() }
    }

    /// The running time that the first hold pays for. `None`: all of it.
    pub(super) fn first_window(&self) -> Option<i64> {
        self.window_after(0)
    }

    /// The running time that is paid for with one more window. `None`: all of it.
    pub(super) fn window_after(&self, funded_ms: i64) -> Option<i64> {
        match self.reserve {
            Reserve::Full => None,
            Reserve::Rolling { window_ms } => {
                let funded = funded_ms.saturating_add(window_ms);
                self.max_runtime_ms.is_none_or(|longest| funded < longest).then_some(funded)
            }
        }
    }

    /// GPU time that a running time stands for, or all that is ever credited.
    pub(super) fn funded_gpu_ms(&self, funded_ms: Option<i64>) -> u64 {
        funded_ms.map_or(self.gpu_ms_limit(), |funded| self.gpu_ms(funded))
    }

    /// What GPU time costs at a price, to the nearest micro-credit; at most what an amount can be.
    pub(super) fn hourly(&self, per_gpu_hour: Credits, gpu_ms: u64) -> Credits {
        let rate = Rate { gpu_ms_limit: gpu_ms, ..self.rate(per_gpu_hour) };
        rate.charge(gpu_ms, Rounding::HalfEven).unwrap_or(Credits::MAX)
    }

    /// What a hold at a price must cover for a running time; `None` if no amount is that large.
    pub(super) fn hold_at(&self, per_gpu_hour: Credits, funded_ms: Option<i64>) -> Option<Credits> {
        self.rate(per_gpu_hour).charge(self.funded_gpu_ms(funded_ms), Rounding::Ceil)
    }
}

impl JobOrder {
    /// The dearest price that it may come to.
    pub fn dearest(&self) -> Credits {
        self.offers.iter().map(|offer| offer.per_gpu_hour).max().unwrap_or(Credits::ZERO)
    }

    /// What its first hold, and each after it, must set aside.
    pub fn need(&self) -> Credits {
        let need = self.terms.hold_at(self.dearest(), self.terms.first_window());
        // Checked at submission.
        need.unwrap_or(Credits::MAX)
    }

    /// What it may be spent on: everything that will do.
    pub fn context(&self) -> Context {
        context(&self.terms, &self.offers)
    }

    /// The price of a GPU type in a region. A job without GPUs takes any.
    pub(super) fn offer(&self, gpu_type: Option<&str>, region: &str) -> Option<&Offer> {
        let mut here = self.offers.iter().filter(|offer| offer.region == region);
        here.find(|offer| gpu_type.is_none_or(|gpu_type| offer.gpu_type == gpu_type))
    }

    /// The GPU types that have a price in a region, the dearest to the user first.
    fn models_in(&self, region: &str) -> SmallVec<[Name; 2]> {
        let mut models: SmallVec<[Name; 2]> = SmallVec::new();
        let wanted = self.terms.gpu_types.iter();
        for model in wanted.chain(self.offers.iter().map(|offer| &offer.gpu_type)) {
            if !models.contains(model) && self.offer(Some(model), region).is_some() {
                models.push(model.clone());
            }
        }
        models
    }

    /// What the cell of a region is told of it.
    pub(super) fn spec(
        &self,
        id: JobId,
        region: &str,
        account: &Name,
        submitted_at: Timestamp,
        attempts_before: u32,
    ) -> JobSpec {
        let terms = &self.terms;
        JobSpec {
            job: id,
            account: account.clone(),
            class: terms.rank,
            class_name: terms.class.clone(),
            gpu: terms.gpu,
            models: self.models_in(region),
            gpu_memory_mib: terms.gpu_memory_mib,
            cpu_milli: terms.cpu_milli,
            memory_mib: terms.memory_mib,
            labels: terms.labels.iter().cloned().collect(),
            nodes: terms.nodes,
            max_runtime_ms: terms.max_runtime_ms,
            preemptible: terms.preemptible,
            resumable: terms.resumable,
            grace_ms: terms.grace_ms,
            group: terms.group.clone(),
            max_requeues: terms.max_requeues,
            submitted_at,
            attempts_before,
            payload: self.payload.clone(),
        }
    }
}

/// Everything that offers allow, without order.
pub(super) fn context(terms: &JobTerms, offers: &[Offer]) -> Context {
    let sorted = |mut list: Vec<Name>| {
        list.sort_unstable();
        list.dedup();
        list
    };
    Context {
        gpu_types: Some(sorted(offers.iter().map(|offer| offer.gpu_type.clone()).collect())),
        regions: Some(sorted(offers.iter().map(|offer| offer.region.clone()).collect())),
        class: Some(terms.class.clone()),
    }
}

impl Job {
    /// The attempt that is not over.
    pub fn live_attempt(&self) -> Option<&Attempt> {
        self.attempts.last().filter(|attempt| attempt.end.is_none())
    }

    /// The attempt that a cell speaks of, unless it is over.
    pub(super) fn attempt_of(&self, cell: CellNo, attempt: AttemptId) -> Option<&Attempt> {
        self.live_attempt().filter(|live| live.cell == Some(cell) && live.number == attempt.number)
    }

    /// Whether it waits for a hold.
    pub fn is_unfunded(&self) -> bool {
        !self.state.is_ended() && self.hold.is_none() && !self.order.need().is_zero()
    }

    /// Whether it waits for credits, or a cell waits for its admission, or it runs on less than a
    /// window.
    pub(super) fn is_held_up(&self) -> bool {
        let told = self.standings.iter().any(|standing| standing.waits);
        self.state == JobState::Queued && (self.is_unfunded() || told) || self.is_short()
    }

    /// Whether it runs and its last window could not be filled.
    pub(super) fn is_short(&self) -> bool {
        let runs = self.state == JobState::Starting || self.state == JobState::Running;
        runs && self.live_attempt().is_some_and(|live| live.short)
    }

    /// What its attempts were charged.
    pub fn charged(&self) -> u128 {
        let ends = self.attempts.iter().filter_map(|attempt| attempt.end);
        ends.map(|end| u128::from(end.charged)).sum()
    }
}
