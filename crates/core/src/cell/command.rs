//! The commands of a cell, its replies and its refusals.

mod answer;

use compact_str::CompactString;
use smallvec::SmallVec;

use super::config::CellConfig;
use super::ids::{AttemptId, ClassRank, JobId, MaintenanceId};
use super::nodes::owner::NodeKey;
use super::schedule::shape::GpuDemand;
use crate::name::{AccountPath, ClassName, GpuModel, NodeName};
use crate::opaque::Opaque;
use crate::time::Timestamp;
pub use answer::{Refusal, Reply, StoredAnswer};

/// The sender of a command.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// An operator or an agent, through the server.
    Shell {
        /// The API key or component that sends it.
        actor: CompactString,
        /// The request under an idempotency key, if it has one.
        request: Option<RequestKey>,
    },
    /// A ledger, through the courier. The next message is accepted, a duplicate changes nothing,
    /// and a message after a gap is refused.
    Ledger {
        /// The sending shard.
        shard: u16,
        /// The message's number among those of the shard to this cell, dense from 1.
        number: u64,
        /// The record of the shard's journal that contains it.
        position: u64,
    },
}

impl Origin {
    /// A component of this program that acts by itself.
    pub fn component(name: &'static str) -> Origin {
        Origin::Shell { actor: CompactString::const_new(name), request: None }
    }
}

/// A request that is carried out once, however often it is repeated.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestKey {
    /// A hash of the idempotency key and its scope.
    pub key: u128,
    /// A hash of the whole request (method, path, body), by which equal requests are recognised.
    pub fingerprint: u128,
}

/// A command to a cell.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Changes the cell's settings.
    Configure(CellConfig),
    /// Sets the list price of a GPU model, in micro-credits per GPU-hour. It weighs usage for fair
    /// share until the ledger confirms a placement with its pinned price.
    SetPrice {
        /// The GPU model.
        model: GpuModel,
        /// Micro-credits per GPU-hour.
        price: u64,
    },
    /// Sets the classes that a class may preempt. Jobs of the same class or of higher ones are
    /// never preempted for class.
    SetClass {
        /// The class.
        class: ClassName,
        /// The classes. `None`: every lower one.
        preempts: Option<Vec<ClassName>>,
    },
    /// Sets the policy of an account. From the ledger: `AccountPolicyChanged`.
    SetAccount(AccountPolicy),
    /// Adds a node, or reports a new start of its agent.
    RegisterNode(NodeOffer),
    /// An agent's report.
    Heartbeat(Heartbeat),
    /// Stops placing work on a node.
    DrainNode {
        /// The node.
        node: NodeKey,
        /// Whether all attempts there are stopped, preemptible or not.
        force: bool,
    },
    /// Resumes placing work on a drained node.
    ResumeNode {
        /// The node.
        node: NodeKey,
    },
    /// Removes a node on which nothing runs.
    RemoveNode {
        /// The node.
        node: NodeKey,
    },
    /// Schedules maintenance of nodes, replacing an earlier window with the same id.
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
    /// Queues a job whose hold was placed. From the ledger: `JobAdmitted`. A job that waits for
    /// funds after a refused placement competes again.
    AdmitJob(JobSpec),
    /// Ends a job, whether it waits or runs. From the ledger: `CancelRequested`.
    CancelJob {
        /// The job.
        job: JobId,
    },
    /// Removes a job without a message to the ledger: it runs in another region or has ended. From
    /// the ledger: `JobWithdrawn`.
    WithdrawJob {
        /// The job.
        job: JobId,
    },
    /// Stops a running job and requeues it. From an operator.
    PreemptJob {
        /// The job.
        job: JobId,
        /// Whether the request used a key of the platform, not of a tenant.
        by_platform: bool,
    },
    /// Stores the answer to a request, unless one is stored.
    KeepAnswer(StoredAnswer),
    /// Confirms a proposed placement. From the ledger: `PlacementConfirmed`.
    ConfirmPlacement {
        /// The attempt.
        attempt: AttemptId,
        /// The pinned price, in micro-credits per GPU-hour.
        price: u64,
        /// The running time that is paid for. `None`: unlimited.
        funded_ms: Option<i64>,
    },
    /// Refuses a proposed placement. From the ledger: `PlacementRefused`.
    RefusePlacement {
        /// The attempt.
        attempt: AttemptId,
        /// What happens to the job.
        verdict: Verdict,
    },
    /// Changes the running time that is paid for. From the ledger: `HoldExtended` or `HoldShrunk`.
    SetFunding {
        /// The attempt.
        attempt: AttemptId,
        /// The total running time that is paid for. `None`: unlimited.
        funded_ms: Option<i64>,
    },
    /// Records that the store was restored: agents may run attempts that this state does not know.
    Rewind {
        /// The generation of the store, higher after each restore.
        generation: u32,
        /// Whether it was served since the restore. Then only the generation is recorded, and
        /// agents continue.
        served: bool,
    },
    /// Refuses to pay for more running time. From the ledger: `FundsRefused`. The attempt runs to
    /// the end of its paid time.
    RefuseFunding {
        /// The attempt.
        attempt: AttemptId,
    },
}

/// The default weight of an account.
pub const DEFAULT_WEIGHT: u32 = 1000;

/// What the cell needs to know about an account.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AccountPolicy {
    /// Its path, such as `acme:nlp`.
    pub path: AccountPath,
    /// Its fair-share weight, in thousandths. Only the ratio between siblings matters. An account
    /// of weight zero comes after all others.
    pub weight: u32,
    /// Whether no job may start at or below it.
    pub frozen: bool,
    /// Its quota in this region.
    pub quota: QuotaSpec,
}

impl AccountPolicy {
    /// The default policy of an account.
    pub fn new(path: impl Into<AccountPath>) -> AccountPolicy {
        let (path, quota) = (path.into(), QuotaSpec::default());
        AccountPolicy { path, weight: DEFAULT_WEIGHT, frozen: false, quota }
    }
}

/// Limits on what an account and its subtree have at once. `None` and absent: no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct QuotaSpec {
    /// GPUs in use per model, in thousandths.
    pub gpus: Vec<(GpuModel, u32)>,
    /// GPUs in use of all models together, in thousandths.
    pub total_gpus: Option<u32>,
    /// Jobs that have GPUs.
    pub running_jobs: Option<u32>,
    /// Waiting jobs. One more is refused at admission; requeued jobs are always accepted.
    pub waiting_jobs: Option<u32>,
}

/// A job as the ledger admitted it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobSpec {
    /// The ledger's number of the job.
    pub job: JobId,
    /// The account that pays, by path.
    pub account: AccountPath,
    /// Its priority class.
    pub class: ClassRank,
    /// The name of its class. Empty: it was admitted before class names were sent.
    pub class_name: ClassName,
    /// GPUs on each of its nodes.
    pub gpu: GpuDemand,
    /// Accepted GPU models, the most preferred first. Empty: any.
    pub models: SmallVec<[GpuModel; 2]>,
    /// Least memory of each GPU, in MiB.
    pub gpu_memory_mib: u32,
    /// Thousandths of a core on each node.
    pub cpu_milli: u32,
    /// Main memory on each node, in MiB.
    pub memory_mib: u32,
    /// Labels that each node must have, such as `zone=a`.
    pub labels: SmallVec<[CompactString; 1]>,
    /// The number of nodes; all of them start or none.
    pub nodes: u16,
    /// The longest runtime. `None`: no limit.
    pub max_runtime_ms: Option<i64>,
    /// Whether it may be preempted and requeued.
    pub preemptible: bool,
    /// Whether its command continues where it stopped when it is started again. Then its quantum
    /// stays short.
    pub resumable: bool,
    /// The time between the stop signal and the kill.
    pub grace_ms: i64,
    /// The concurrency group that it counts in.
    pub group: Option<GroupSpec>,
    /// How often it is requeued after a node was lost.
    pub max_requeues: u32,
    /// When it was submitted: its order among equals, kept when it is requeued. The epoch: now.
    pub submitted_at: Timestamp,
    /// Attempt numbers that other admissions may have used. Attempts here continue from this
    /// number.
    pub attempts_before: u32,
    /// What the agent needs to start it (name, command, environment), stored unchanged.
    pub payload: Opaque,
}

impl JobSpec {
    /// A normal, preemptible job with the default grace that needs only GPUs.
    pub fn new(job: JobId, account: impl Into<AccountPath>, gpu: GpuDemand) -> JobSpec {
        JobSpec {
            job,
            account: account.into(),
            class: ClassRank::NORMAL,
            class_name: ClassName::from("normal"),
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
            payload: Opaque::default(),
        }
    }
}

/// A concurrency group of a tenant: at most `limit` of its jobs have GPUs at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupSpec {
    /// Its name within the tenant.
    pub name: CompactString,
    /// How many at once, at least one. The job admitted last sets it for all.
    pub limit: u32,
}

/// What happens to a job whose placement was refused.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// The job leaves this cell: cancelled, lapsed, or placed in another region.
    Withdraw,
    /// The job waits until it is admitted again.
    Wait(FundsBlocker),
}

/// Why the ledger does not pay for a job now.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FundsBlocker {
    /// Too few credits.
    Credits,
    /// A budget would be exceeded.
    Budget,
    /// An account on its path is frozen.
    Frozen,
}

/// A node as its agent offers it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeOffer {
    /// The node's name, unique among the nodes of its owner.
    pub name: NodeName,
    /// Its rack: nodes that are close to each other.
    pub rack: CompactString,
    /// The model of its GPUs.
    pub model: GpuModel,
    /// How many GPUs.
    pub gpus: u16,
    /// The uuids of its GPUs, in the order of their device indexes. Empty where they do not matter,
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
    /// The account at and below which it runs jobs; the account's tenant owns the node. `None`: all
    /// accounts, and the platform owns it.
    pub scope: Option<AccountPath>,
}

/// An agent's report on everything it runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Heartbeat {
    /// The node.
    pub node: NodeKey,
    /// The incarnation that registration returned.
    pub incarnation: u32,
    /// Rises by one with each report of an incarnation, from 1. A repeated number changes nothing.
    pub seq: u64,
    /// Every attempt that the agent has and has no order to forget.
    pub reports: Vec<AttemptReport>,
}

/// An agent's report on one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AttemptReport {
    /// The attempt.
    pub attempt: AttemptId,
    /// Its state on the node.
    pub state: ReportState,
    /// GPU-milliseconds since it started here: wall milliseconds times devices.
    pub gpu_ms_total: u64,
    /// The exit code of its process, if it has ended.
    pub exit_code: Option<i32>,
}

/// The state of an attempt on a node.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReportState {
    /// It runs.
    Running,
    /// It succeeded.
    Succeeded,
    /// It failed.
    Failed,
    /// It was stopped or killed, or was never started here.
    Stopped,
}
