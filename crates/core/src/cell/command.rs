//! What may be asked of a cell, and what it answers.

use compact_str::CompactString;
use smallvec::SmallVec;

use super::config::CellConfig;
use super::ids::{AttemptId, ClassRank, JobId, MaintenanceId};
use super::nodes::owner::NodeKey;
use super::schedule::shape::GpuDemand;
use crate::time::Timestamp;

/// Who sends a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An operator or an agent, through the server.
    Shell {
        /// The API key or component that asks.
        actor: CompactString,
        /// The request under an idempotency key, if it has one.
        request: Option<Request>,
    },
    /// A ledger, through the courier: the next message is taken, one that was taken before changes
    /// nothing, and a later one is refused.
    Ledger {
        /// The shard that sends.
        shard: u16,
        /// The message's number among those of the shard to this cell, dense from 1.
        number: u64,
        /// The record of the shard's journal that it comes from.
        position: u64,
    },
}

impl Origin {
    /// A component of this program that asks on its own account.
    pub fn component(name: &'static str) -> Origin {
        Origin::Shell { actor: CompactString::const_new(name), request: None }
    }
}

/// A request that is carried out once, however often it is made.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// A hash of the idempotency key and its scope.
    pub key: u128,
    /// A hash of the whole request (method, path, body): equal requests have equal ones.
    pub fingerprint: u128,
}

/// What may be asked of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Changes the cell's settings.
    Configure(CellConfig),
    /// Sets the list price of a GPU model, in micro-credits per GPU-hour. It weighs usage in the
    /// fair share until the ledger confirms a placement at its pinned price.
    SetPrice {
        /// The GPU model.
        model: CompactString,
        /// Micro-credits per GPU-hour.
        price: u64,
    },
    /// Sets the classes whose jobs may be stopped for jobs of a class. Those of the same class, and
    /// those of higher ones, never are.
    SetClass {
        /// The class.
        class: CompactString,
        /// Those classes. `None`: every lower one.
        preempts: Option<Vec<CompactString>>,
    },
    /// Sets what the cell must know of an account. From the ledger: `AccountPolicyChanged`.
    SetAccount(AccountPolicy),
    /// Adds a node, or announces that its agent started again.
    RegisterNode(NodeOffer),
    /// An agent's report.
    Heartbeat(Heartbeat),
    /// Stops placing work on a node.
    DrainNode {
        /// The node.
        node: NodeKey,
        /// Whether what runs there is stopped, even what is not preemptible.
        force: bool,
    },
    /// Places work on a drained node again.
    ResumeNode {
        /// The node.
        node: NodeKey,
    },
    /// Forgets a node on which nothing runs.
    RemoveNode {
        /// The node.
        node: NodeKey,
    },
    /// Plans a time in which nodes do not work, in place of an earlier plan of the same id.
    PlanMaintenance {
        /// The window's id.
        id: MaintenanceId,
        /// When it begins.
        from: Timestamp,
        /// When it ends.
        to: Timestamp,
        /// The nodes. Empty: all that are registered now.
        nodes: Vec<NodeKey>,
    },
    /// Ends a maintenance window early, or before it begins.
    CancelMaintenance {
        /// The window's id.
        id: MaintenanceId,
    },
    /// Queues a job whose hold was placed. From the ledger: `JobAdmitted`. For a job that waits
    /// because a placement was refused for want of funds, this ends the waiting.
    AdmitJob(JobSpec),
    /// Ends a job wherever it is. From the ledger: `CancelRequested`.
    CancelJob {
        /// The job.
        job: JobId,
    },
    /// Forgets a job without a word: it runs in another region or has ended. From the ledger:
    /// `JobWithdrawn`.
    WithdrawJob {
        /// The job.
        job: JobId,
    },
    /// Stops a running job and queues it again. From an operator.
    PreemptJob {
        /// The job.
        job: JobId,
        /// Whether with a key of the platform, not of a tenant.
        by_platform: bool,
    },
    /// Keeps what a request was answered with, unless an answer is kept already.
    KeepAnswer(Answer),
    /// Lets a proposed placement start. From the ledger: `PlacementConfirmed`.
    ConfirmPlacement {
        /// The attempt.
        attempt: AttemptId,
        /// The pinned price, in micro-credits per GPU-hour.
        price: u64,
        /// The running time that is paid for. `None`: all of it.
        funded_ms: Option<i64>,
    },
    /// Takes a proposed placement back. From the ledger: `PlacementRefused`.
    RefusePlacement {
        /// The attempt.
        attempt: AttemptId,
        /// What becomes of the job.
        verdict: Verdict,
    },
    /// More running time is paid for. From the ledger: `HoldExtended`, or `HoldShrunk`.
    SetFunding {
        /// The attempt.
        attempt: AttemptId,
        /// The running time that is paid for in all. `None`: all of it.
        funded_ms: Option<i64>,
    },
    /// The store was restored: what agents do now is of a future that was lost.
    Rewind {
        /// The generation of the store, higher after each restore.
        generation: u32,
        /// Whether it was served since: then only the generation is noted, and agents go on.
        served: bool,
    },
    /// No more running time can be paid for. From the ledger: `FundsRefused`. The attempt runs to
    /// the end of what was paid for.
    RefuseFunding {
        /// The attempt.
        attempt: AttemptId,
    },
}

/// The weight of an account that says nothing.
pub const USUAL_WEIGHT: u32 = 1000;

/// What the cell must know of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountPolicy {
    /// Its path, such as `acme:nlp`.
    pub path: CompactString,
    /// Its fair-share weight, in thousandths. Only the ratio between siblings counts. Zero: what
    /// nobody else wants.
    pub weight: u32,
    /// Whether nothing new may start below it.
    pub frozen: bool,
    /// Its quota in this region.
    pub quota: QuotaSpec,
}

impl AccountPolicy {
    /// The default policy of an account.
    pub fn new(path: impl Into<CompactString>) -> AccountPolicy {
        let (path, quota) = (path.into(), QuotaSpec::default());
        AccountPolicy { path, weight: USUAL_WEIGHT, frozen: false, quota }
    }
}

/// The most that an account and all below it may have at once. `None` and absent: no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaSpec {
    /// GPUs in use per model, in thousandths.
    pub gpus: Vec<(CompactString, u32)>,
    /// GPUs in use of all models together, in thousandths.
    pub total_gpus: Option<u32>,
    /// Jobs that have GPUs.
    pub running_jobs: Option<u32>,
    /// Jobs that wait. One more is refused at admission; those that are queued again after an
    /// attempt are let in.
    pub waiting_jobs: Option<u32>,
}

/// A job as the ledger admitted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSpec {
    /// The ledger's number for it.
    pub job: JobId,
    /// The account that pays, by path.
    pub account: CompactString,
    /// Its priority class.
    pub class: ClassRank,
    /// What its class is called. Empty: it was admitted before that was told.
    pub class_name: CompactString,
    /// GPUs on each of its nodes.
    pub gpu: GpuDemand,
    /// GPU models that will do, the dearest to the user first. Empty: any.
    pub models: SmallVec<[CompactString; 2]>,
    /// Least memory of each GPU, in MiB.
    pub gpu_memory_mib: u32,
    /// Thousandths of a core on each node.
    pub cpu_milli: u32,
    /// Main memory on each node, in MiB.
    pub memory_mib: u32,
    /// Labels that each node must carry, such as `zone=a`.
    pub labels: SmallVec<[CompactString; 1]>,
    /// How many nodes, all at once or none.
    pub nodes: u16,
    /// The longest it may run. `None`: for ever.
    pub max_runtime_ms: Option<i64>,
    /// Whether it may be stopped for others and queued again.
    pub preemptible: bool,
    /// Whether it goes on where it was when it is started again. Then its turns stay short.
    pub resumable: bool,
    /// How long it gets between the request to stop and the kill.
    pub grace_ms: i64,
    /// The concurrency group that it counts in.
    pub group: Option<GroupSpec>,
    /// How often it is queued again after a node was lost.
    pub max_requeues: u32,
    /// When it was submitted: its place among equals, kept when it is queued again. The epoch: now.
    pub submitted_at: Timestamp,
    /// Numbers of attempts that other admissions may have used: this one counts on from here.
    pub attempts_before: u32,
    /// What the agent must know to start it (name, command, environment), kept as it is.
    pub payload: Box<str>,
}

impl JobSpec {
    /// A normal, preemptible job with the default grace that asks for GPUs alone.
    pub fn new(job: JobId, account: impl Into<CompactString>, gpu: GpuDemand) -> JobSpec {
        JobSpec {
            job,
            account: account.into(),
            class: ClassRank::NORMAL,
            class_name: CompactString::const_new("normal"),
            gpu,
            models: SmallVec::new(),
            gpu_memory_mib: 0,
            cpu_milli: 0,
            memory_mib: 0,
            labels: SmallVec::new(),
            nodes: 1,
            max_runtime_ms: None,
            preemptible: true,
            resumable: false,
            grace_ms: 60_000,
            group: None,
            max_requeues: 3,
            submitted_at: Timestamp::from_millis(0),
            attempts_before: 0,
            payload: Box::default(),
        }
    }
}

/// A concurrency group of a tenant: at most `limit` of its jobs have GPUs at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSpec {
    /// Its name within the tenant.
    pub name: CompactString,
    /// How many at once, at least one. The job admitted last sets it for all.
    pub limit: u32,
}

/// What becomes of a job whose placement was refused.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The job leaves this cell: cancelled, lapsed, or placed in another region.
    Withdraw,
    /// The job waits until it is admitted again.
    Wait(FundsBlocker),
}

/// Why the ledger does not pay for a job now.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FundsBlocker {
    /// Too few credits.
    Credits,
    /// A budget would be exceeded.
    Budget,
    /// An account on its path is frozen.
    Frozen,
}

/// What an agent offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeOffer {
    /// The node's name, unique among the nodes of its owner.
    pub name: CompactString,
    /// Its rack: nodes that are close to each other.
    pub rack: CompactString,
    /// The model of its GPUs.
    pub model: CompactString,
    /// How many GPUs.
    pub gpus: u16,
    /// What tells its GPUs apart, in the order of their device indexes. Empty where nobody asks,
    /// as in simulations.
    pub uuids: Vec<CompactString>,
    /// Memory of each GPU, in MiB.
    pub gpu_memory_mib: u32,
    /// Thousandths of a core.
    pub cpu_milli: u32,
    /// Main memory, in MiB.
    pub memory_mib: u32,
    /// Labels, such as `zone=a`.
    pub labels: Vec<CompactString>,
    /// The account whose jobs it runs, with all below it; its tenant owns the node. `None`:
    /// everybody's, and the platform owns it.
    pub scope: Option<CompactString>,
}

/// An agent's report on everything it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The node.
    pub node: NodeKey,
    /// The number that registration answered.
    pub incarnation: u32,
    /// Rises by one with each report of an incarnation, from 1. A number that was seen changes
    /// nothing.
    pub seq: u64,
    /// Every attempt that the agent has and was not told to forget.
    pub reports: Vec<Report>,
}

/// What an agent says of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The attempt.
    pub attempt: AttemptId,
    /// What it does.
    pub state: ReportState,
    /// GPU-milliseconds since it runs here: wall milliseconds times devices.
    pub gpu_ms_total: u64,
    /// What its process ended with, if it has ended.
    pub exit_code: Option<i32>,
}

/// What an attempt does on a node.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReportState {
    /// It runs.
    Running,
    /// It ended well.
    Succeeded,
    /// It ended badly.
    Failed,
    /// It was stopped or killed, or was never started here.
    Stopped,
}

/// What a request was answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status of the interface.
    pub status: u16,
    /// The body, if there is one.
    pub body: Option<CompactString>,
}

/// The answer to a command that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It was done, or was done before.
    Done,
    /// A message from the ledger that was received before.
    Duplicate,
    /// The request was carried out before, under the same idempotency key.
    Repeated,
    /// The answer to a registration.
    Registered {
        /// The number that each report must carry.
        incarnation: u32,
        /// How often to report.
        heartbeat_ms: i64,
        /// The node's attempts are lost if it does not report by then.
        lease_until: Timestamp,
    },
    /// The answer to a report. What the node must do is asked for with `Cell::orders` once the
    /// report's events are applied.
    Reported {
        /// The node's attempts are lost if it does not report by then.
        lease_until: Timestamp,
    },
}

/// Why a command was not accepted, in the order in which it is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Messages of this ledger are missing between the last one taken and this one.
    MessageGap {
        /// The number that is next.
        expected: u64,
    },
    /// The idempotency key was used for another request.
    KeyReused,
    /// A field of the command has no meaning.
    Invalid {
        /// The field.
        field: &'static str,
        /// What it must be.
        must: &'static str,
    },
    /// The owner has no node of this name.
    UnknownNode,
    /// No job has this number.
    UnknownJob,
    /// The attempt is not the job's current one, or was decided on before.
    StaleAttempt,
    /// The report is of an earlier start of the agent, which must register again.
    StaleIncarnation {
        /// The current number.
        current: u32,
    },
    /// The node belongs to accounts that the agent does not speak for.
    NodeScope,
    /// The node runs something, so it can neither go away nor change its hardware.
    NodeBusy,
    /// Another node of the owner has one of the GPUs, and its lease runs: one GPU would be given out
    /// twice.
    GpuTaken {
        /// The GPU.
        uuid: CompactString,
        /// The node that has it.
        node: CompactString,
    },
    /// The job was admitted before.
    AlreadyAdmitted,
    /// No maintenance window has this id.
    UnknownMaintenance,
}

impl Refusal {
    /// Whether the same command may be accepted later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Refusal::MessageGap { .. } | Refusal::NodeBusy | Refusal::GpuTaken { .. } => true,
            Refusal::Invalid { .. }
            | Refusal::UnknownNode
            | Refusal::UnknownJob
            | Refusal::StaleAttempt
            | Refusal::StaleIncarnation { .. }
            | Refusal::NodeScope
            | Refusal::KeyReused
            | Refusal::AlreadyAdmitted
            | Refusal::UnknownMaintenance => false,
        }
    }
}
