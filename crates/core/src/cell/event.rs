//! What happens in a cell: all that is ever stored, and all that others are told.
//!
//! What the ledgers are told is read off the events of a decision and follows them as
//! [`Event::LedgerTold`], which the courier delivers.

use compact_str::CompactString;
use smallvec::SmallVec;

use super::command::{AccountPolicy, Answer, FundsBlocker, JobSpec, NodeOffer, Request};
use super::config::CellConfig;
use super::ids::{AccountId, AttemptId, ClassRank, JobId, MaintenanceId, RequestId};
use super::index::aside::Aside;
use super::nodes::node::{GpuSet, NodeId};
use super::schedule::shape::ModelId;
use crate::message::ToLedger;
use crate::time::Timestamp;

/// Something that happened in a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A ledger's message was received; what it caused follows.
    MessageReceived {
        /// The shard that sent it.
        shard: u16,
        /// Its number.
        number: u64,
        /// Its position in the shard's journal.
        position: u64,
    },
    /// A ledger is told something.
    LedgerTold {
        /// The shard that is told.
        shard: u16,
        /// The message's number among those to this shard, dense from 1.
        number: u64,
        /// What it is told.
        message: Box<ToLedger>,
    },
    /// The cell's settings changed.
    Configured(Box<CellConfig>),
    /// A GPU model's list price changed.
    PriceSet {
        /// The model.
        model: CompactString,
        /// Micro-credits per GPU-hour.
        price: u64,
    },
    /// The classes that a class may take from changed.
    ClassSet {
        /// The class.
        class: CompactString,
        /// Those classes. `None`: every lower one.
        preempts: Option<Vec<CompactString>>,
    },
    /// What the cell knows of an account changed.
    AccountSet(Box<AccountPolicy>),

    /// A node joined, or its agent started again.
    NodeRegistered {
        /// The node's number in this cell.
        node: NodeId,
        /// What it has.
        offer: Box<NodeOffer>,
        /// The number of this start of its agent.
        incarnation: u32,
        /// When its lease ends.
        lease_until: Timestamp,
        /// After a restore: nothing is placed on it before. An agent of the future that was lost may
        /// still run something there.
        kept_until: Option<Timestamp>,
    },
    /// A node's agent reported.
    NodeReported {
        /// The node.
        node: NodeId,
        /// The report's number.
        seq: u64,
        /// When its lease now ends.
        lease_until: Timestamp,
    },
    /// A node was silent for too long. What ran there ends in the events before this one.
    NodeLost {
        /// The node.
        node: NodeId,
    },
    /// A node takes no new work.
    NodeDrained {
        /// The node.
        node: NodeId,
    },
    /// A node takes new work again.
    NodeResumed {
        /// The node.
        node: NodeId,
    },
    /// A node left for good.
    NodeRemoved {
        /// The node.
        node: NodeId,
    },
    /// Nodes will not work for a while.
    MaintenancePlanned {
        /// The window.
        id: MaintenanceId,
        /// When it begins.
        from: Timestamp,
        /// When it ends.
        to: Timestamp,
        /// The nodes.
        nodes: Vec<NodeId>,
    },
    /// A maintenance window began.
    MaintenanceBegan {
        /// The window.
        id: MaintenanceId,
    },
    /// A maintenance window ended, or was cancelled.
    MaintenanceEnded {
        /// The window.
        id: MaintenanceId,
    },

    /// A job joined the queue.
    JobQueued(Box<JobSpec>),
    /// A job that is here was admitted again; if it waited for funds it competes again.
    JobFunded {
        /// The job.
        job: JobId,
        /// Numbers of attempts that other admissions may have used.
        attempts_before: u32,
    },
    /// A job may be placed again: its delay after an operator's preemption is over.
    JobReleased {
        /// The job.
        job: JobId,
    },
    /// A job's group is full. It competes again when the group has a place for it.
    JobHeldByGroup {
        /// The job.
        job: JobId,
    },
    /// A job left the cell. Unless the ledger withdrew it, the ledger is told.
    JobEnded {
        /// The job.
        job: JobId,
        /// How.
        outcome: JobOutcome,
    },

    /// A place was found and its GPUs are kept for the job. The ledger is told.
    PlacementProposed {
        /// The attempt that would start.
        attempt: AttemptId,
        /// The GPU model. `None` for a job without GPUs.
        model: Option<ModelId>,
        /// Where.
        members: SmallVec<[Placement; 1]>,
    },
    /// The ledger agreed: the nodes are ordered to start.
    PlacementConfirmed {
        /// The attempt.
        attempt: AttemptId,
        /// The pinned price, in micro-credits per GPU-hour.
        price: u64,
        /// The running time that is paid for. `None`: all of it.
        funded_ms: Option<i64>,
    },
    /// The ledger did not agree: the GPUs are free again and the job waits for funds.
    PlacementRefused {
        /// The attempt.
        attempt: AttemptId,
        /// What the job waits for.
        blocker: FundsBlocker,
    },
    /// An attempt was reported running on a node for the first time. Of the first node the ledger is
    /// told.
    MemberStarted {
        /// The attempt.
        attempt: AttemptId,
        /// The node.
        node: NodeId,
    },
    /// Attempts used GPUs on a node, as one report says. The ledger is told.
    UsageMetered {
        /// The node.
        node: NodeId,
        /// GPU-milliseconds on this node in all that count, of each attempt that used some.
        usage: Vec<(AttemptId, u64)>,
    },
    /// An attempt ended on one of its nodes, whose GPUs are free again.
    MemberEnded {
        /// The attempt.
        attempt: AttemptId,
        /// The node.
        node: NodeId,
        /// How it ended there.
        end: MemberEnd,
        /// What its process there ended with, where that was reported.
        exit_code: Option<i32>,
    },
    /// The running time that is paid for changed.
    FundingSet {
        /// The attempt.
        attempt: AttemptId,
        /// The running time that is paid for in all. `None`: all of it.
        funded_ms: Option<i64>,
    },
    /// Half of the running time last paid for is left. The ledger is told.
    FundsNeeded {
        /// The attempt.
        attempt: AttemptId,
    },
    /// No more running time will be paid for.
    FundingEnded {
        /// The attempt.
        attempt: AttemptId,
    },
    /// An attempt is asked to stop. Usage counts up to now. The ledger is told.
    StopOrdered {
        /// The attempt.
        attempt: AttemptId,
        /// Why.
        reason: StopReason,
        /// When it will be killed.
        kill_at: Timestamp,
    },
    /// A job whose attempt is being stopped was cancelled: it ends with the attempt.
    CancelNoted {
        /// The attempt.
        attempt: AttemptId,
    },
    /// An attempt did not stop in time and is killed.
    KillOrdered {
        /// The attempt.
        attempt: AttemptId,
        /// When it ends even if its nodes do not report.
        end_at: Timestamp,
    },
    /// An attempt is over. GPUs that were not reported free stay fenced. The ledger is told.
    AttemptEnded {
        /// The attempt.
        attempt: AttemptId,
        /// How.
        outcome: AttemptOutcome,
        /// GPU-milliseconds in all that count.
        gpu_ms: u64,
        /// What its process ended with, where one was reported.
        exit_code: Option<i32>,
        /// When the job may be placed again. `None`: it is not queued again, and its end follows.
        requeued: Option<Timestamp>,
    },
    /// GPUs of an attempt that is over were reported free.
    FenceLifted {
        /// The attempt.
        attempt: AttemptId,
        /// The node.
        node: NodeId,
    },

    /// Nothing free serves a request of a class: its jobs wait for an event that can help.
    RequestParked {
        /// The class.
        class: ClassRank,
        /// The request.
        request: RequestId,
    },
    /// A quota of an account leaves no room for a request: its jobs below that account wait until
    /// the account uses less.
    RequestBlocked {
        /// The account whose quota it is.
        account: AccountId,
        /// The request.
        request: RequestId,
        /// Whether something else, such as free GPUs of another model, would help as well.
        mixed: bool,
    },
    /// Nodes are kept for a job from an instant on.
    ReservationMade {
        /// The job.
        job: JobId,
        /// The GPU model. `None` for a job without GPUs.
        model: Option<ModelId>,
        /// The nodes.
        nodes: SmallVec<[NodeId; 1]>,
        /// When the job can start at the latest, if all goes as announced.
        start_at: Timestamp,
        /// Whether attempts are preempted to make the place.
        preempting: bool,
        /// Whether preemptible jobs may use the nodes meanwhile, because nobody knows when the whole
        /// place will be free.
        guests: bool,
    },
    /// A job could not start yet on the nodes that are kept for it.
    ReservationKept {
        /// The job.
        job: JobId,
    },
    /// No waiting job of a class that asks for a model first needs a reservation now.
    ReservationsDone {
        /// The class.
        class: ClassRank,
        /// The model. `None`: jobs that take any.
        model: Option<ModelId>,
    },
    /// Nodes are no longer kept for a job.
    ReservationDropped {
        /// The job.
        job: JobId,
    },
    /// The waiting jobs will be looked at again for preemption.
    ReviewBegan,
    /// A waiting job was looked at and nobody may be preempted for it now.
    ReviewPassed {
        /// The class whose turn is over.
        class: ClassRank,
    },
    /// There is nothing more to place until something changes.
    PassEnded,

    /// A request was carried out under its idempotency key, in the events before this one.
    RequestDone {
        /// The request.
        request: Request,
    },
    /// The answer to a request is kept.
    AnswerKept {
        /// The request.
        request: Request,
        /// What it was answered with.
        answer: Box<Answer>,
    },
    /// The oldest requests under idempotency keys are forgotten.
    RequestsForgotten {
        /// How many.
        requests: u32,
    },
    /// Something failed again and again; it is skipped from now on.
    SetAside {
        /// What.
        what: Aside,
        /// A hash of it.
        digest: u128,
    },
    /// The store was restored: the cell was set back to an earlier time. No agent is heard before it
    /// registers again.
    Rewound {
        /// The generation of the store.
        generation: u32,
        /// Whether it was served since. Then agents were fenced by the manifest, and go on.
        served: bool,
    },
    /// Nothing of a future that was lost can run on a node any more: it takes work.
    NodeCleared {
        /// The node.
        node: NodeId,
    },
}

/// A node and the devices taken there.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placement {
    /// The node.
    pub node: NodeId,
    /// The devices.
    pub gpus: GpuSet,
}

/// Why an attempt is asked to stop.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopReason {
    /// The job was cancelled.
    Cancelled,
    /// A job of a higher class, or of an account under its fair share, needs the place.
    Preempted {
        /// The job that needs it.
        by: JobId,
        /// Whether for the fair share, not the class.
        for_share: bool,
    },
    /// An operator asked for it.
    Operator {
        /// Whether with a key of the platform, not of a tenant.
        by_platform: bool,
    },
    /// Its node is being emptied.
    Drained,
    /// It ran as long as it may.
    MaxRuntime,
    /// Nobody pays for more.
    OutOfCredits,
}

/// How an attempt ended on one of its nodes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemberEnd {
    /// It ended well.
    Succeeded,
    /// It ended badly.
    Failed,
    /// It was stopped or killed, or is gone.
    Stopped,
}

/// How an attempt ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttemptOutcome {
    /// All its nodes reported success.
    Succeeded,
    /// One of its nodes reported failure. A gang ends with its first failure.
    Failed,
    /// It was stopped.
    Stopped(StopReason),
    /// One of its nodes fell silent, came back without it, or stopped it without being told to.
    Lost,
}

/// How a job left the cell.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobOutcome {
    /// It ended well.
    Succeeded,
    /// It ended badly.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// Its node was lost and it may not be queued again.
    Lost,
    /// Nobody paid for more.
    OutOfCredits,
    /// It ran as long as it may.
    TimedOut,
    /// The ledger withdrew it.
    Withdrawn,
    /// Its account may not have one more job waiting.
    WaitingQuota,
}
