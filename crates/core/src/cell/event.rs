//! The events of a cell. Only events are stored.
//!
//! Messages to the ledgers are derived from the events of a decision and follow them as
//! [`Event::LedgerMessageSent`], which the courier delivers.

use smallvec::SmallVec;

use super::command::{AccountPolicy, FundsBlocker, JobSpec, NodeOffer, RequestKey, StoredAnswer};
use super::config::CellConfig;
use super::ids::{AccountId, AttemptId, ClassRank, JobId, MaintenanceId, RequestId};
use super::index::aside::CellAside;
use super::nodes::node::{GpuSet, NodeId};
use super::schedule::preemption::cause::PreemptionCause;
use super::schedule::shape::ModelId;
use crate::message::ToLedger;
use crate::name::{ClassName, GpuModel};
use crate::time::Timestamp;

/// Something that happened in a cell.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A ledger's message was received; its effects follow.
    MessageReceived {
        /// The shard that sent it.
        shard: u16,
        /// Its number.
        number: u64,
        /// Its position in the shard's journal.
        position: u64,
    },
    /// A message was sent to a ledger.
    LedgerMessageSent {
        /// The receiving shard.
        shard: u16,
        /// The message's number among those to this shard, dense from 1.
        number: u64,
        /// The message.
        message: Box<ToLedger>,
    },
    /// The cell's settings changed.
    Configured(Box<CellConfig>),
    /// A GPU model's list price changed.
    PriceSet {
        /// The model.
        model: GpuModel,
        /// Micro-credits per GPU-hour.
        price: u64,
    },
    /// The classes that a class may preempt changed.
    ClassSet {
        /// The class.
        class: ClassName,
        /// The classes. `None`: every lower one.
        preempts: Option<Vec<ClassName>>,
    },
    /// The policy of an account changed.
    AccountSet(Box<AccountPolicy>),

    /// A node was added, or its agent started again.
    NodeRegistered {
        /// The node's number in this cell.
        node: NodeId,
        /// What it has.
        offer: Box<NodeOffer>,
        /// The incarnation: the number of this start of its agent.
        incarnation: u32,
        /// When its lease ends.
        lease_until: Timestamp,
        /// After a restore: nothing is placed on it before this instant, because its agent may
        /// still run attempts that the restored cell does not know.
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
    /// A node's lease ended. The ends of its attempts are part of the same decision.
    NodeLost {
        /// The node.
        node: NodeId,
    },
    /// A node was drained: it takes no new work.
    NodeDrained {
        /// The node.
        node: NodeId,
    },
    /// A node takes new work again.
    NodeResumed {
        /// The node.
        node: NodeId,
    },
    /// A node was removed.
    NodeRemoved {
        /// The node.
        node: NodeId,
    },
    /// Maintenance of nodes was scheduled.
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

    /// A job was queued.
    JobQueued(Box<JobSpec>),
    /// A job in this cell was admitted again; if it waited for funds it competes again.
    JobFunded {
        /// The job.
        job: JobId,
        /// Attempt numbers that other admissions may have used.
        attempts_before: u32,
    },
    /// A job may be placed again: its delay after an operator's preemption is over.
    JobReleased {
        /// The job.
        job: JobId,
    },
    /// A job's group is full. The job competes again when the group has room.
    JobHeldByGroup {
        /// The job.
        job: JobId,
    },
    /// A job left the cell. The ledger is notified, unless it withdrew the job itself.
    JobEnded {
        /// The job.
        job: JobId,
        /// How.
        outcome: JobOutcome,
    },

    /// A placement was found, and its GPUs are nominated for the job. The ledger is notified.
    PlacementProposed {
        /// The attempt that would start.
        attempt: AttemptId,
        /// The GPU model. `None` for a job without GPUs.
        model: Option<ModelId>,
        /// Its nodes and devices.
        placements: SmallVec<[Placement; 1]>,
    },
    /// The ledger confirmed: the nodes are ordered to start.
    PlacementConfirmed {
        /// The attempt.
        attempt: AttemptId,
        /// The pinned price, in micro-credits per GPU-hour.
        price: u64,
        /// The running time that is paid for. `None`: unlimited.
        funded_ms: Option<i64>,
    },
    /// The ledger refused: the GPUs are free again and the job waits for funds.
    PlacementRefused {
        /// The attempt.
        attempt: AttemptId,
        /// What the job waits for.
        blocker: FundsBlocker,
    },
    /// An attempt was first reported running on a node. The ledger is notified for the first node.
    AttemptStartedOnNode {
        /// The attempt.
        attempt: AttemptId,
        /// The node.
        node: NodeId,
    },
    /// A report contained GPU usage of attempts on a node. The ledger is notified.
    UsageMetered {
        /// The node.
        node: NodeId,
        /// Total accepted GPU-milliseconds on this node, for each attempt that used some.
        usage: Vec<(AttemptId, u64)>,
    },
    /// An attempt ended on one of its nodes; its GPUs there are free.
    AttemptEndedOnNode {
        /// The attempt.
        attempt: AttemptId,
        /// The node.
        node: NodeId,
        /// How it ended there.
        end: AttemptNodeEnd,
        /// The exit code of its process there, if it was reported.
        exit_code: Option<i32>,
    },
    /// The running time that is paid for changed.
    FundingSet {
        /// The attempt.
        attempt: AttemptId,
        /// The total running time that is paid for. `None`: unlimited.
        funded_ms: Option<i64>,
    },
    /// Half of the last window of paid running time is left. The ledger is notified.
    FundsNeeded {
        /// The attempt.
        attempt: AttemptId,
    },
    /// No more running time will be paid for.
    FundingEnded {
        /// The attempt.
        attempt: AttemptId,
    },
    /// An attempt was ordered to stop. Usage counts up to now. The ledger is notified.
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
    /// An attempt ended. GPUs that were not reported free stay fenced. The ledger is notified.
    AttemptEnded {
        /// The attempt.
        attempt: AttemptId,
        /// How.
        outcome: AttemptOutcome,
        /// Total accepted GPU-milliseconds.
        gpu_ms: u64,
        /// The exit code of its process, if one was reported.
        exit_code: Option<i32>,
        /// When the job may be placed again. `None`: it is not requeued, and its end follows.
        requeued: Option<Timestamp>,
    },
    /// GPUs of an ended attempt were reported free.
    FenceLifted {
        /// The attempt.
        attempt: AttemptId,
        /// The node.
        node: NodeId,
    },

    /// A request of a class fits nowhere: its jobs are parked until an event can help.
    RequestParked {
        /// The class.
        class: ClassRank,
        /// The request.
        request: RequestId,
    },
    /// An account's quota blocks a request: its jobs below that account wait until the account uses
    /// less.
    RequestBlocked {
        /// The account that has the quota.
        account: AccountId,
        /// The request.
        request: RequestId,
        /// Whether another change, such as free GPUs of another model, would help as well.
        mixed: bool,
    },
    /// Nodes were reserved for a job from an instant on.
    ReservationMade {
        /// The job.
        job: JobId,
        /// The GPU model. `None` for a job without GPUs.
        model: Option<ModelId>,
        /// The nodes.
        nodes: SmallVec<[NodeId; 1]>,
        /// The reserved start: when the job can start at the latest, if every attempt ends as
        /// announced.
        start_at: Timestamp,
        /// Whether attempts are preempted for it.
        preempting: bool,
        /// Whether preemptible jobs may use the nodes as guests meanwhile, because the reserved
        /// start is an estimate.
        guests: bool,
    },
    /// A job could not start yet on its reserved nodes.
    ReservationKept {
        /// The job.
        job: JobId,
    },
    /// No waiting job of a class whose first choice is this model needs a reservation now.
    ReservationsDone {
        /// The class.
        class: ClassRank,
        /// The model. `None`: jobs that accept any.
        model: Option<ModelId>,
    },
    /// A reservation was dropped.
    ReservationDropped {
        /// The job.
        job: JobId,
    },
    /// A review began: blocked jobs will be examined for preemption.
    ReviewBegan,
    /// The blocked jobs of a class were examined, and none may preempt now.
    ReviewPassed {
        /// The class.
        class: ClassRank,
    },
    /// No further job can be placed until something changes.
    PassEnded,

    /// A request under an idempotency key was carried out by the preceding events.
    RequestDone {
        /// The request.
        request: RequestKey,
    },
    /// The answer to a request was stored.
    AnswerKept {
        /// The request.
        request: RequestKey,
        /// The answer.
        answer: Box<StoredAnswer>,
    },
    /// The oldest requests under idempotency keys were forgotten.
    RequestsForgotten {
        /// The number of requests.
        requests: u32,
    },
    /// A timer, message or pass failed repeatedly; it is skipped from now on.
    SetAside {
        /// What is skipped.
        what: CellAside,
        /// A hash of it.
        digest: u128,
    },
    /// The store was restored and the cell set back to an earlier time. Reports of an agent are
    /// ignored until it registers again.
    Rewound {
        /// The generation of the store.
        generation: u32,
        /// Whether it was served since the restore. Then the manifest fenced the agents, and they
        /// continue.
        served: bool,
    },
    /// A node takes work again after a restore: no unknown attempt can run there any more.
    NodeCleared {
        /// The node.
        node: NodeId,
    },
}

/// A node and the devices taken there.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Placement {
    /// The node.
    pub node: NodeId,
    /// The devices.
    pub gpus: GpuSet,
}

/// Why an attempt is stopped.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StopReason {
    /// The job was cancelled.
    Cancelled,
    /// A job of a higher class, or of an account under its fair share, takes its GPUs.
    Preempted {
        /// The taker.
        by: JobId,
        /// Whether the trigger is fair share, not class.
        for_share: bool,
        /// The rule and its numbers. `None`: written before they were recorded.
        cause: Option<PreemptionCause>,
    },
    /// An operator preempted it.
    Operator {
        /// Whether the request used a key of the platform, not of a tenant.
        by_platform: bool,
    },
    /// Its node is drained by force, or in maintenance.
    Drained,
    /// It reached its longest runtime.
    MaxRuntime,
    /// Its paid running time ended.
    OutOfCredits,
}

/// How an attempt ended on one of its nodes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttemptNodeEnd {
    /// It succeeded.
    Succeeded,
    /// It failed.
    Failed,
    /// It was stopped or killed, or is gone.
    Stopped,
}

/// How an attempt ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttemptOutcome {
    /// All its nodes reported success.
    Succeeded,
    /// One of its nodes reported failure. A gang ends with its first failure.
    Failed,
    /// It was stopped.
    Stopped(StopReason),
    /// One of its nodes was lost, restarted without it, or stopped it without an order.
    Lost,
}

/// How a job left the cell.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobOutcome {
    /// It succeeded.
    Succeeded,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// Its node was lost and it may not be requeued.
    Lost,
    /// Its paid running time ended.
    OutOfCredits,
    /// It reached its longest runtime.
    TimedOut,
    /// The ledger withdrew it.
    Withdrawn,
    /// Its account's quota of waiting jobs is exhausted.
    WaitingQuota,
    /// The jobs of its tenant have had too many different demands.
    TooManyDemands,
}
