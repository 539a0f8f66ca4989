//! Jobs: their specification, state and attempts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::expand::JobReferences;
use super::timeline::Preemption;
use crate::amount::{Amount, Sum};
use crate::problem::Blocker;
use crate::time::Time;

/// The most jobs in one array.
pub const MAX_ARRAY: u32 = 1000;

/// The GPUs that a job needs on each of its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobGpus {
    /// Acceptable types, the preferred one first; every priced type if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 64)]
    pub types: Option<Vec<String>>,
    /// How many whole GPUs; 1 if neither `count` nor `share` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 64)]
    pub count: Option<u32>,
    /// Instead of `count`: a part of one GPU, such as `"0.25"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Amount>,
    /// The least memory of each GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 4096)]
    pub memory_gib: Option<u32>,
}

/// How much of a run's cost is held before it starts.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reserve {
    /// The cost of the longest run on the most expensive acceptable type.
    #[default]
    Full,
    /// The cost of the next hour, extended while the job runs.
    Rolling,
}

/// What happens when the credits run out.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnExhausted {
    /// The job is stopped after its grace period.
    #[default]
    Stop,
    /// The job keeps running, up to the account's overdraft limit.
    Overdraft,
}

/// A group of jobs of one tenant with a limit on concurrency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConcurrencyGroup {
    /// Its name.
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub name: String,
    /// How many of its jobs may have GPUs at once. The job submitted last sets it for the group.
    #[schema(minimum = 1)]
    pub limit: u32,
}

/// Submits a job, or an array of jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "account": "acme:nlp", "name": "finetune", "gpus": {"types": ["H100", "A100"], "count": 4},
    "max_runtime_seconds": 14400, "command": ["python", "train.py"]
}))]
pub struct SubmitJob {
    /// An id chosen by the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub id: Option<String>,
    /// The account that pays.
    pub account: String,
    /// Display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256)]
    pub name: Option<String>,
    /// The GPUs that it needs on each of its nodes.
    pub gpus: JobGpus,
    /// The number of nodes, allocated together; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 4096)]
    pub nodes: Option<u32>,
    /// Cores on each node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 65535)]
    pub cpus: Option<u32>,
    /// Main memory on each node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1048576)]
    pub memory_gib: Option<u32>,
    /// Labels that each node must carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_labels: Option<BTreeMap<String, String>>,
    /// The time limit. Required unless `reserve` is `rolling`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 315360000)]
    pub max_runtime_seconds: Option<u64>,
    /// The priority class; `normal` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Whether it runs outside Bursar, under Slurm for example; false if absent. Such a job is never
    /// placed: its first report of usage starts it, and a report with `ended` ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<bool>,
    /// Whether it may be preempted and queued again; the default of its class if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemptible: Option<bool>,
    /// Whether it saves its work and resumes when it is started again; false if absent.
    /// Fair share preempts resumable jobs more often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumable: Option<bool>,
    /// The grace period to save its work when it is stopped; the default of its class if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 86400)]
    pub grace_seconds: Option<u32>,
    /// Acceptable regions; every region if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 64)]
    pub regions: Option<Vec<String>>,
    /// How much is held before it starts; `full` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<Reserve>,
    /// What happens when the credits run out; `stop` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_exhausted: Option<OnExhausted>,
    /// How long before the paid time ends an `exhaustion_warned` event is emitted, once a
    /// rolling reserve could not be extended; 300 if absent, 0 for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 86400)]
    pub warn_ahead_seconds: Option<u32>,
    /// Its concurrency group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_group: Option<ConcurrencyGroup>,
    /// The number of array tasks, named `<id>.0`, `<id>.1` and so on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub array: Option<u32>,
    /// Jobs that must succeed first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 64)]
    pub after: Option<Vec<String>>,
    /// What to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 1024)]
    pub command: Option<Vec<String>>,
    /// Environment variables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, String>>,
    /// The working directory on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 4096)]
    pub workdir: Option<String>,
    /// Labels to find it by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// How often it is queued again after a lost node; 3 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1000)]
    pub max_requeues: Option<u32>,
}

/// The state of a job.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// The job waits.
    Queued,
    /// Its nodes were ordered to start it.
    Starting,
    /// It runs.
    Running,
    /// It is being stopped.
    Stopping,
    /// Its command succeeded.
    Succeeded,
    /// Its command failed.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// Its nodes were lost more often than `max_requeues` allows.
    Lost,
    /// The credits ran out.
    OutOfCredits,
    /// It reached its time limit.
    TimedOut,
}

impl JobState {
    /// Every state.
    pub const ALL: [JobState; 10] = [
        JobState::Queued,
        JobState::Starting,
        JobState::Running,
        JobState::Stopping,
        JobState::Succeeded,
        JobState::Failed,
        JobState::Cancelled,
        JobState::Lost,
        JobState::OutOfCredits,
        JobState::TimedOut,
    ];

    /// The name of the state.
    pub const fn as_str(self) -> &'static str {
        match self {
            JobState::Queued => "queued",
            JobState::Starting => "starting",
            JobState::Running => "running",
            JobState::Stopping => "stopping",
            JobState::Succeeded => "succeeded",
            JobState::Failed => "failed",
            JobState::Cancelled => "cancelled",
            JobState::Lost => "lost",
            JobState::OutOfCredits => "out_of_credits",
            JobState::TimedOut => "timed_out",
        }
    }

    /// Whether the state is final.
    pub const fn is_final(self) -> bool {
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

/// How an attempt ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// Its command succeeded.
    Succeeded,
    /// Its command failed.
    Failed,
    /// The job was cancelled.
    Cancelled,
    /// It was preempted by another job or by an operator.
    Preempted,
    /// Its node was drained.
    Drained,
    /// It reached its time limit.
    TimedOut,
    /// The credits ran out.
    OutOfCredits,
    /// Its node stopped reporting, or restarted without it.
    Lost,
}

/// A summary of a job's hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobHold {
    /// Its id.
    pub id: String,
    /// The reserved amount.
    pub amount: Sum,
    /// The captured part of it.
    pub captured: Sum,
}

/// One attempt to run a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    /// Its id.
    pub id: String,
    /// The region.
    pub region: String,
    /// The nodes.
    pub nodes: Vec<String>,
    /// The allocated GPU type.
    pub gpu_type: String,
    /// Its price: credits per hour of one whole GPU.
    pub per_gpu_hour: Sum,
    /// When it was first reported running.
    pub started_at: Option<Time>,
    /// When it ended.
    pub ended_at: Option<Time>,
    /// How it ended.
    pub end_reason: Option<EndReason>,
    /// The exit code of its process.
    pub exit_code: Option<i32>,
    /// The agent's message about the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Billed GPU-milliseconds: wall time multiplied by devices.
    pub gpu_ms: u64,
    /// Credits charged.
    pub charged: Sum,
    /// The hold that pays for it.
    pub hold: String,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// Its id.
    pub id: String,
    /// The account that pays.
    pub account: String,
    /// The state.
    pub state: JobState,
    /// The specification, with defaults filled in.
    pub spec: SubmitJob,
    /// The region where it runs or ran last.
    pub region: Option<String>,
    /// Its current hold, or the last one.
    pub hold: Option<JobHold>,
    /// Its attempts, oldest first.
    pub attempts: Vec<Attempt>,
    /// Credits charged for all attempts.
    pub charged: Sum,
    /// While it runs: `charged`, and the time since the last report at its price. Only on reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_so_far: Option<Sum>,
    /// Credits returned to their grants.
    pub returned: Sum,
    /// Usage that credits did not cover.
    pub uncollected: Sum,
    /// Its place in the queue from 1, while it waits for GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// When it can start if running jobs use their full time limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_start_at: Option<Time>,
    /// Everything that blocks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blockers: Option<Vec<Blocker>>,
    /// All jobs of the array that it belongs to; not in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<Vec<String>>,
    /// When it was submitted.
    pub created_at: Time,
    /// When it ended.
    pub ended_at: Option<Time>,
    /// The ledger's time.
    pub as_of: Time,
    /// The ledger's position; `position` is the place in the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger_position: Option<u64>,
    /// What `expand` asked for; absent without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expanded: Option<Box<JobReferences>>,
}

/// Why a job waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// The job.
    pub job: String,
    /// The state.
    pub state: JobState,
    /// Its place in the queue from 1, while it waits for GPUs.
    pub position: Option<u64>,
    /// When it can start if running jobs use their full time limits.
    pub estimated_start_at: Option<Time>,
    /// Everything that blocks it; never empty while it waits.
    pub blockers: Vec<Blocker>,
    /// Why its last attempt was preempted, if it was and the job waits again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempted: Option<Preemption>,
    /// The fair shares of its account and those above it that the key can see, in each region where
    /// it waits, parents before children. Of two accounts that compete, the one that received less of
    /// what it is entitled to goes first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<JobShare>,
}

/// The fair share of an account in a region where a job waits. Shares are parts of the whole region,
/// from `0` to `1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobShare {
    /// The region.
    pub region: String,
    /// The account.
    pub account: String,
    /// Its weight among its siblings.
    pub weight: Sum,
    /// Its target share while it and its siblings compete.
    pub entitled: Sum,
    /// Its actual share.
    pub received: Sum,
    /// Decayed usage of its subtree, in credits.
    pub usage: Sum,
    /// The time in which that usage counts half.
    pub half_life_seconds: u64,
}

/// Cancels a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelJob {}

/// Stops a job and queues it again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PreemptJob {}

/// Which jobs to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct JobFilter {
    /// Only those of this account and all below it.
    pub account: Option<String>,
    /// Only those in this state.
    #[param(inline)]
    pub state: Option<JobState>,
    /// Only those with this label: `key`, or `key=value`.
    pub label: Option<String>,
    /// How many entries at most: 1 to 100, 25 if absent.
    #[param(minimum = 1, maximum = 100)]
    pub limit: Option<u32>,
    /// The cursor of the next page.
    pub cursor: Option<String>,
}

/// Which logs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LogQuery {
    /// Whether to stream until the job has ended.
    pub follow: Option<bool>,
    /// The attempt; the last one if absent.
    pub attempt: Option<String>,
    /// The rank of the node in a multi-node job, as in `BURSAR_RANK`; 0 if absent.
    #[param(minimum = 0, maximum = 4095)]
    pub rank: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_written_as_its_name_everywhere() {
        for state in JobState::ALL {
            let written = serde_json::to_value(state).expect("a plain string");
            assert_eq!(written, state.as_str());
        }
    }

    #[test]
    fn a_spec_is_written_without_absent_fields() {
        let text = r#"{"account":"acme","gpus":{"types":["H100"],"share":"0.25"}}"#;
        let spec: SubmitJob = serde_json::from_str(text).expect("a valid body");
        assert_eq!(serde_json::to_string(&spec).expect("plain fields"), text);
    }
}
