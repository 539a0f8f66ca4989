//! The terms under which a job runs: GPUs, prices, runtime and reserve.

use crate::cell::command::{GroupSpec, JobSpec};
use crate::cell::ids::{ClassRank, JobId};
use crate::cell::schedule::shape::GpuDemand;
use crate::credits::Credits;
use crate::ledger::credits::price::{Rate, Rounding, WHOLE_GPU};
use crate::ledger::id::Name;
use crate::name::{AccountPath, ClassName, GpuModel, Region};

/// The most running time that is charged to a job without a longest runtime: a century.
pub(super) const CENTURY_MS: i64 = 3_153_600_000_000;

/// How much of a job is paid for in advance.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reserve {
    /// The whole run.
    Full,
    /// The next window, and another one when half of it is left.
    Rolling {
        /// The length of a window.
        window_ms: i64,
    },
}

/// The default window of a rolling reserve.
pub const ROLLING_WINDOW_MS: i64 = 3_600_000;

/// The default time between the warning and the end of the paid running time.
pub const WARN_AHEAD_MS: i64 = 300_000;

/// What happens when a window of a rolling reserve cannot be filled.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum OnExhausted {
    /// The job stops when the paid running time ends.
    Stop,
    /// The job continues, with usage that is uncollected up to the overdraft limit of the account.
    Overdraft,
}

/// The price of a GPU type in a region. The price at submission applies to all attempts, so that a
/// charge never exceeds a full hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Offer {
    /// The GPU type.
    pub gpu_type: GpuModel,
    /// The region.
    pub region: Region,
    /// Micro-credits per hour of a whole GPU, class multiplier included.
    pub per_gpu_hour: Credits,
}

/// The terms of a job for credits and placement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobTerms {
    /// The priority class.
    pub class: ClassName,
    /// Its rank.
    pub rank: ClassRank,
    /// GPUs on each node.
    pub gpu: GpuDemand,
    /// Acceptable GPU types, the most preferred first.
    pub gpu_types: Vec<GpuModel>,
    /// The number of nodes; all start or none.
    pub nodes: u16,
    /// The least memory of each GPU, in MiB.
    pub gpu_memory_mib: u32,
    /// Thousandths of a core on each node.
    pub cpu_milli: u32,
    /// Main memory on each node, in MiB.
    pub memory_mib: u32,
    /// Labels that each node must carry, such as `zone=a`.
    pub labels: Vec<Name>,
    /// The longest runtime; absent only with a rolling reserve.
    pub max_runtime_ms: Option<i64>,
    /// Whether it may be preempted and requeued.
    pub preemptible: bool,
    /// Whether its command continues where it stopped.
    pub resumable: bool,
    /// The time between the request to stop and the kill.
    pub grace_ms: i64,
    /// How much is paid for in advance.
    pub reserve: Reserve,
    /// What happens when a window cannot be filled.
    pub on_exhausted: OnExhausted,
    /// The concurrency group that it counts in.
    pub group: Option<GroupSpec>,
    /// How often it is requeued after a node was lost.
    pub max_requeues: u32,
    /// The time between the warning and the end of the paid running time; zero for no warning.
    pub warn_ahead_ms: i64,
    /// Whether it runs outside Bursar: no cell places it, and all its usage is reported.
    pub external: bool,
}

impl JobTerms {
    /// The terms of a preemptible job of the usual class on one node, paid for in whole.
    pub fn new(gpu: GpuDemand) -> JobTerms {
        JobTerms {
            class: "normal".into(),
            rank: ClassRank::NORMAL,
            gpu,
            gpu_types: Vec::new(),
            nodes: 1,
            gpu_memory_mib: 0,
            cpu_milli: 0,
            memory_mib: 0,
            labels: Vec::new(),
            max_runtime_ms: None,
            preemptible: true,
            resumable: false,
            grace_ms: 0,
            reserve: Reserve::Full,
            on_exhausted: OnExhausted::Stop,
            group: None,
            max_requeues: 0,
            warn_ahead_ms: WARN_AHEAD_MS,
            external: false,
        }
    }
}

impl JobTerms {
    /// The GPU-milliseconds of `runtime_ms` of running time.
    pub(in crate::ledger) fn gpu_ms(&self, runtime_ms: i64) -> u64 {
        let devices = u64::from(self.gpu.devices()) * u64::from(self.nodes);
        devices.saturating_mul(runtime_ms.max(0).unsigned_abs())
    }

    /// The most GPU time that is ever charged to one attempt.
    pub(in crate::ledger) fn gpu_ms_limit(&self) -> u64 {
        self.gpu_ms(self.max_runtime_ms.unwrap_or(CENTURY_MS))
    }

    /// The rate at a price.
    pub(in crate::ledger) fn rate(&self, per_gpu_hour: Credits) -> Rate {
        let share_milli = match self.gpu {
            GpuDemand::None => WHOLE_GPU,
            GpuDemand::Share(_) | GpuDemand::Whole(_) => self.gpu.per_device(),
        };
        // What runs outside is not stopped at its longest runtime, and its usage counts.
        let gpu_ms_limit =
            if self.external { self.gpu_ms(CENTURY_MS) } else { self.gpu_ms_limit() };
        Rate { per_gpu_hour, share_milli, gpu_ms_limit }
    }

    /// The running time that the first hold pays for; `None` if it pays for all.
    pub(in crate::ledger) fn first_window(&self) -> Option<i64> {
        self.window_after(0)
    }

    /// The running time that is paid for with one more window; `None` if all of it is.
    pub(in crate::ledger) fn window_after(&self, funded_ms: i64) -> Option<i64> {
        match self.reserve {
            Reserve::Full => None,
            Reserve::Rolling { window_ms } => {
                let funded = funded_ms.saturating_add(window_ms);
                self.max_runtime_ms.is_none_or(|longest| funded < longest).then_some(funded)
            }
        }
    }

    /// The GPU time of a running time; the limit if the running time is `None`.
    pub(in crate::ledger) fn funded_gpu_ms(&self, funded_ms: Option<i64>) -> u64 {
        funded_ms.map_or(self.gpu_ms_limit(), |funded| self.gpu_ms(funded))
    }

    /// The cost of GPU time at a price, to the nearest micro-credit; at most [`Credits::MAX`].
    pub(in crate::ledger) fn hourly(&self, per_gpu_hour: Credits, gpu_ms: u64) -> Credits {
        let rate = Rate { gpu_ms_limit: gpu_ms, ..self.rate(per_gpu_hour) };
        rate.charge(gpu_ms, Rounding::HalfEven).unwrap_or(Credits::MAX)
    }

    /// The amount of a hold that covers a running time at a price; `None` if it exceeds
    /// [`Credits::MAX`].
    pub(in crate::ledger) fn hold_at(
        &self,
        per_gpu_hour: Credits,
        funded_ms: Option<i64>,
    ) -> Option<Credits> {
        self.rate(per_gpu_hour).charge(self.funded_gpu_ms(funded_ms), Rounding::Ceil)
    }
}

impl JobTerms {
    /// The specification of a job with these terms, for a cell. The caller adds the GPU models and
    /// what the job needs to run.
    pub fn spec(&self, job: JobId, account: AccountPath) -> JobSpec {
        JobSpec {
            class: self.rank,
            class_name: self.class.clone(),
            gpu_memory_mib: self.gpu_memory_mib,
            cpu_milli: self.cpu_milli,
            memory_mib: self.memory_mib,
            labels: self.labels.iter().cloned().collect(),
            nodes: self.nodes,
            max_runtime_ms: self.max_runtime_ms,
            preemptible: self.preemptible,
            resumable: self.resumable,
            grace_ms: self.grace_ms,
            group: self.group.clone(),
            max_requeues: self.max_requeues,
            ..JobSpec::new(job, account, self.gpu)
        }
    }
}
