//! The messages between the ledger and the cells.
//!
//! Machines communicate only by messages. A message is an event of its sender's journal, numbered
//! densely from 1 for each receiver. The courier delivers messages in order until the receiver has
//! them. The receiver keeps one mark for each sender, in the same commit as the effect. The ledger
//! is the linearization point of a job: a cell proposes, the ledger confirms once, and only then is
//! the start ordered.

use compact_str::CompactString;
use smallvec::SmallVec;

use crate::cell::command::{AccountPolicy, JobSpec, Verdict};
use crate::cell::event::{AttemptOutcome, JobOutcome, StopReason};
use crate::cell::ids::{AttemptId, JobId};
use crate::name::GpuModel;
use crate::time::Timestamp;

/// The last message that a receiver has taken from one sender.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mark {
    /// Its number; 0 before the first.
    pub number: u64,
    /// The record of the sender's journal that it came from; 0 before the first.
    pub position: u64,
}

/// A message from a ledger to a cell.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ToCell {
    /// The new weight, freeze and quota of an account.
    AccountPolicyChanged(Box<AccountPolicy>),
    /// A job whose hold is placed may be scheduled. Also sent when a job that waited for funds has
    /// them again.
    JobAdmitted(Box<JobSpec>),
    /// A proposed placement may start.
    PlacementConfirmed {
        /// The attempt.
        attempt: AttemptId,
        /// The pinned price, in micro-credits per GPU-hour.
        price: u64,
        /// The running time that is paid for; `None` if all of it is.
        funded_ms: Option<i64>,
    },
    /// A proposed placement may not start.
    PlacementRefused {
        /// The attempt.
        attempt: AttemptId,
        /// What happens to the job in this cell.
        verdict: Verdict,
    },
    /// The running time that is paid for changed.
    FundingChanged {
        /// The attempt.
        attempt: AttemptId,
        /// The total running time that is paid for; `None` if all of it is.
        funded_ms: Option<i64>,
    },
    /// No more running time can be paid for.
    FundsRefused {
        /// The attempt.
        attempt: AttemptId,
    },
    /// The job is cancelled, in whatever state it is.
    CancelRequested {
        /// The job.
        job: JobId,
    },
    /// The job runs in another region or has ended. The cell forgets it and sends no message.
    JobWithdrawn {
        /// The job.
        job: JobId,
    },
}

/// One node of a proposed attempt, by the name that users see.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProposedNode {
    /// The node.
    pub node: CompactString,
    /// The number of GPUs on it.
    pub gpus: u16,
}

/// A message from a cell to a ledger.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ToLedger {
    /// A placement was found. Its GPUs are kept until the ledger answers.
    PlacementProposed {
        /// The attempt that would start.
        attempt: AttemptId,
        /// The GPU model. `None` for a job without GPUs.
        gpu_type: Option<GpuModel>,
        /// The nodes.
        nodes: SmallVec<[ProposedNode; 1]>,
    },
    /// An attempt was reported running for the first time. Metering has started.
    AttemptStarted {
        /// The attempt.
        attempt: AttemptId,
    },
    /// The cumulative billable GPU-milliseconds of attempts, one entry for each. One report of a
    /// node makes one message for each ledger.
    UsageMetered(Vec<(AttemptId, u64)>),
    /// Half of the running time that was paid for last is left.
    FundsNeeded {
        /// The attempt.
        attempt: AttemptId,
    },
    /// The stop of an attempt was ordered. Usage counts up to now.
    StopOrdered {
        /// The attempt.
        attempt: AttemptId,
        /// The reason.
        reason: StopReason,
    },
    /// An attempt has ended.
    AttemptEnded {
        /// The attempt.
        attempt: AttemptId,
        /// How it ended.
        outcome: AttemptOutcome,
        /// The total of billable GPU-milliseconds.
        gpu_ms: u64,
        /// The exit code of its process, if one was reported.
        exit_code: Option<i32>,
        /// When the job may be placed again in this cell; `None` if it is not requeued, and its end
        /// follows.
        requeued: Option<Timestamp>,
    },
    /// A job left the cell.
    JobEnded {
        /// The job.
        job: JobId,
        /// How it ended.
        outcome: JobOutcome,
    },
}
