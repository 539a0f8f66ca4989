//! What the ledger and the cells tell each other.
//!
//! Between machines there are only messages. A message is an event of its sender's journal, numbered
//! densely from 1 for each receiver; the courier carries it in order until the receiver has it; the
//! receiver keeps one mark for each sender, in the same commit as the effect. The ledger is the
//! linearization point of a job: a cell proposes, the ledger confirms once, and only then is the
//! start ordered.

use compact_str::CompactString;
use smallvec::SmallVec;

use crate::cell::command::{AccountPolicy, JobSpec, Verdict};
use crate::cell::event::{AttemptOutcome, JobOutcome, StopReason};
use crate::cell::ids::{AttemptId, JobId};
use crate::time::Timestamp;

/// The last message that a receiver has taken from one sender.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Its number; 0 before the first.
    pub number: u64,
    /// The record of the sender's journal that it came from; 0 before the first.
    pub position: u64,
}

/// What a ledger tells a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToCell {
    /// An account's weight, freeze or quota is now this.
    AccountPolicyChanged(Box<AccountPolicy>),
    /// A job whose hold is placed may compete; one that waits for funds may compete again.
    JobAdmitted(Box<JobSpec>),
    /// A proposed placement may start.
    PlacementConfirmed {
        /// The attempt.
        attempt: AttemptId,
        /// The pinned price, in micro-credits per GPU-hour.
        price: u64,
        /// The running time that is paid for. `None`: all of it.
        funded_ms: Option<i64>,
    },
    /// A proposed placement may not start.
    PlacementRefused {
        /// The attempt.
        attempt: AttemptId,
        /// What becomes of the job in this cell.
        verdict: Verdict,
    },
    /// The running time that is paid for changed.
    FundingChanged {
        /// The attempt.
        attempt: AttemptId,
        /// The running time that is paid for in all. `None`: all of it.
        funded_ms: Option<i64>,
    },
    /// No more running time can be paid for.
    FundsRefused {
        /// The attempt.
        attempt: AttemptId,
    },
    /// The job is to end, wherever it is.
    CancelRequested {
        /// The job.
        job: JobId,
    },
    /// The job runs in another region, or has ended: this cell forgets it without a word.
    JobWithdrawn {
        /// The job.
        job: JobId,
    },
}

/// Where a proposed attempt would run, by the names that people know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedMember {
    /// The node.
    pub node: CompactString,
    /// How many devices of it.
    pub gpus: u16,
}

/// What a cell tells a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToLedger {
    /// A place was found; its GPUs are kept until the ledger answers.
    PlacementProposed {
        /// The attempt that would start.
        attempt: AttemptId,
        /// The GPU model. `None` for a job without GPUs.
        gpu_type: Option<CompactString>,
        /// Where.
        members: SmallVec<[ProposedMember; 1]>,
    },
    /// An attempt was reported running for the first time: its meter has started.
    AttemptStarted {
        /// The attempt.
        attempt: AttemptId,
    },
    /// Attempts used GPU time: the cumulative GPU-milliseconds that count, one entry for each. What
    /// one report of a node says to one ledger is one message.
    UsageMetered(Vec<(AttemptId, u64)>),
    /// Half of the running time last paid for is left.
    FundsNeeded {
        /// The attempt.
        attempt: AttemptId,
    },
    /// An attempt was asked to stop. Usage counts up to now.
    StopOrdered {
        /// The attempt.
        attempt: AttemptId,
        /// Why.
        reason: StopReason,
    },
    /// An attempt is over.
    AttemptEnded {
        /// The attempt.
        attempt: AttemptId,
        /// How.
        outcome: AttemptOutcome,
        /// GPU-milliseconds in all that count.
        gpu_ms: u64,
        /// What its process ended with, where one was reported.
        exit_code: Option<i32>,
        /// When the job may be placed again in this cell. `None`: it is not queued again, and its
        /// end follows.
        requeued: Option<Timestamp>,
    },
    /// A job left the cell.
    JobEnded {
        /// The job.
        job: JobId,
        /// How.
        outcome: JobOutcome,
    },
}
