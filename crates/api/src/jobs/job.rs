//! Jobs: what is asked for, and what became of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::amount::{Amount, Sum};
use crate::problem::Blocker;
use crate::time::Time;

/// The most jobs of one array.
pub const MAX_ARRAY: u32 = 1000;

/// The GPUs that a job needs on each of its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobGpus {
    /// Types that will do, the preferred one first; each that has a price if absent.
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

/// How much of a run is set aside before it starts.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reserve {
    /// The longest run at the dearest type that will do.
    #[default]
    Full,
    /// The next hour, topped up while it runs.
    Rolling,
}

/// What happens when no more running time can be paid for.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnExhausted {
    /// The job gets its grace and is stopped.
    #[default]
    Stop,
    /// It runs on, up to the account's overdraft limit.
    Overdraft,
}

/// Jobs of one tenant of which only so many run at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConcurrencyGroup {
    /// Its name.
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub name: String,
    /// How many of its jobs have GPUs at once. The job submitted last sets it for all.
    #[schema(minimum = 1)]
    pub limit: u32,
}

/// Submits a job, or an array of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "account": "acme:nlp", "name": "finetune", "gpus": {"types": ["H100", "A100"], "count": 4},
    "max_runtime_seconds": 14400, "command": ["python", "train.py"]
}))]
pub struct SubmitJob {
    /// The caller's own id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub id: Option<String>,
    /// The account that pays.
    pub account: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256)]
    pub name: Option<String>,
    /// The GPUs that it needs on each of its nodes.
    pub gpus: JobGpus,
    /// How many nodes, all at once or none; 1 if absent.
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
    /// The longest it may run. Needed unless `reserve` is `rolling`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 315360000)]
    pub max_runtime_seconds: Option<u64>,
    /// The priority class; `normal` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Whether it may be stopped for others and queued again; as its class says if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemptible: Option<bool>,
    /// Whether it saves its work and goes on where it was when it is started again; no if absent. The share of an
    /// account is held more closely by such jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumable: Option<bool>,
    /// How long it has to save its work when it is stopped; as its class says if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 86400)]
    pub grace_seconds: Option<u32>,
    /// Where it may run; everywhere if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 64)]
    pub regions: Option<Vec<String>>,
    /// How much is set aside before it starts; `full` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<Reserve>,
    /// What happens when no more can be paid; `stop` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_exhausted: Option<OnExhausted>,
    /// How long before the end of what is paid for an `exhaustion_warned` event tells of it, once a
    /// rolling reserve could not be filled up; 300 if absent, 0 for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 86400)]
    pub warn_ahead_seconds: Option<u32>,
    /// The group that it counts in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_group: Option<ConcurrencyGroup>,
    /// Submits so many jobs at once, `<id>.0` and on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub array: Option<u32>,
    /// Jobs that must have succeeded before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 64)]
    pub after: Option<Vec<String>>,
    /// What to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 1024)]
    pub command: Option<Vec<String>>,
    /// The environment that it gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, String>>,
    /// Where it runs on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 4096)]
    pub workdir: Option<String>,
    /// Labels to find it by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// How often it is queued again after its node was lost; 3 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1000)]
    pub max_requeues: Option<u32>,
}

/// Where a job is in its life.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It waits.
    Queued,
    /// Its nodes were told to start it.
    Starting,
    /// It runs.
    Running,
    /// It is being stopped.
    Stopping,
    /// It ended well.
    Succeeded,
    /// It ended badly.
    Failed,
    /// Somebody ended it.
    Cancelled,
    /// Its node was lost too often.
    Lost,
    /// No more running time could be paid for.
    OutOfCredits,
    /// It ran as long as it may.
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

    /// The state as it is written.
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

    /// Whether nothing more can happen to it.
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
    /// It ended well.
    Succeeded,
    /// It ended badly.
    Failed,
    /// The job was cancelled.
    Cancelled,
    /// A job that comes first needed the place, or an operator asked for it.
    Preempted,
    /// Its node was emptied.
    Drained,
    /// It ran as long as it may.
    TimedOut,
    /// No more running time could be paid for.
    OutOfCredits,
    /// Its node fell silent or came back without it.
    Lost,
}

/// The hold of a job, in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobHold {
    /// Its id.
    pub id: String,
    /// How much was set aside.
    pub amount: Sum,
    /// How much of that was captured.
    pub captured: Sum,
}

/// One start of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    /// Its id.
    pub id: String,
    /// Where.
    pub region: String,
    /// The nodes.
    pub nodes: Vec<String>,
    /// The GPU type that it got.
    pub gpu_type: String,
    /// The price that counts for it: credits per hour of one whole GPU.
    pub per_gpu_hour: Sum,
    /// When it was first reported running.
    pub started_at: Option<Time>,
    /// When it was over.
    pub ended_at: Option<Time>,
    /// How it ended.
    pub end_reason: Option<EndReason>,
    /// What its process ended with.
    pub exit_code: Option<i32>,
    /// What its agent had to say about the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// GPU-milliseconds that count: wall time by devices.
    pub gpu_ms: u64,
    /// What it cost.
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
    /// Where it is in its life.
    pub state: JobState,
    /// What was asked for, with the defaults that apply.
    pub spec: SubmitJob,
    /// Where it runs or ran last.
    pub region: Option<String>,
    /// Its current hold, or the last one.
    pub hold: Option<JobHold>,
    /// Its starts, oldest first.
    pub attempts: Vec<Attempt>,
    /// What all attempts cost.
    pub charged: Sum,
    /// What went back to the grants.
    pub returned: Sum,
    /// Usage that no credits could be found for.
    pub uncollected: Sum,
    /// Its place in the queue from 1, while it waits for GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// When it can start, if everybody leaves when they said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_start_at: Option<Time>,
    /// Everything that keeps it waiting.
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
}

/// Why a job waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// The job.
    pub job: String,
    /// Where it is in its life.
    pub state: JobState,
    /// Its place in the queue from 1, while it waits for GPUs.
    pub position: Option<u64>,
    /// When it can start, if everybody leaves when they said.
    pub estimated_start_at: Option<Time>,
    /// Everything that keeps it waiting; never empty while it waits.
    pub blockers: Vec<Blocker>,
}

/// Asks a job to end.
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
    /// Where to go on.
    pub cursor: Option<String>,
}

/// Which logs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LogQuery {
    /// Whether to go on until the job has ended.
    pub follow: Option<bool>,
    /// The attempt; the last one if absent.
    pub attempt: Option<String>,
    /// Which of a gang's nodes, as `BURSAR_RANK` counts them; the first, 0, if absent.
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
    fn a_spec_is_written_without_what_was_not_said() {
        let text = r#"{"account":"acme","gpus":{"types":["H100"],"share":"0.25"}}"#;
        let spec: SubmitJob = serde_json::from_str(text).expect("a valid body");
        assert_eq!(serde_json::to_string(&spec).expect("plain fields"), text);
    }
}
