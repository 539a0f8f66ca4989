//! One attempt of a job, and how it ended.

use smallvec::SmallVec;

use super::JobState;
use super::terms::OnExhausted;
use crate::cell::event::{AttemptOutcome, StopReason};
use crate::credits::Credits;
use crate::ledger::id::CellNo;
use crate::message::ProposedNode;
use crate::name::{GpuModel, HoldId};
use crate::time::Timestamp;

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
    pub nodes: SmallVec<[ProposedNode; 1]>,
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
    /// The instant of the end.
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
    pub(in crate::ledger) fn of(outcome: AttemptOutcome) -> EndReason {
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
    pub(in crate::ledger) fn job_state(self) -> JobState {
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
