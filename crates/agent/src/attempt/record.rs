//! The stored state of an attempt: what to start, and how it ended.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::attempt::process::Identity;
use crate::clock::BootTime;

/// Everything that is needed to start an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// The attempt.
    pub attempt: String,
    /// Its job.
    pub job: String,
    /// The node that it runs on.
    pub node: String,
    /// The rank of this node in the job, from 0.
    pub rank: u32,
    /// The names of the job's nodes, by rank.
    pub nodes: Vec<String>,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Variables of the job.
    pub env: BTreeMap<String, String>,
    /// The working directory; the agent's one for jobs if absent.
    pub workdir: Option<PathBuf>,
    /// The devices that it may use, by their ids.
    pub gpus: Vec<String>,
    /// The user that it runs as; the agent's own if not given.
    pub run_as: Option<String>,
    /// The control group that it runs in, if any.
    pub cgroup: Option<PathBuf>,
    /// The most bytes of output that are kept.
    pub output_limit: u64,
    /// Variables of the machine that the job inherits. They are stored here and not in the environment
    /// of supervisors, which may run as root and have an empty one.
    #[serde(default)]
    pub machine_env: BTreeMap<String, String>,
    /// The size of its private folders for temporary files; `None` if it uses the machine's.
    #[serde(default)]
    pub tmp_bytes: Option<u64>,
}

#[cfg(test)]
impl Launch {
    /// An attempt of one node that runs `true`.
    pub(crate) fn example(gpus: &[&str]) -> Launch {
        Launch {
            attempt: "att_1".into(),
            job: "job_1".into(),
            node: "n1".into(),
            rank: 0,
            nodes: vec!["n1".into()],
            command: vec!["true".into()],
            env: Default::default(),
            workdir: None,
            gpus: gpus.iter().map(|gpu| (*gpu).to_owned()).collect(),
            run_as: None,
            cgroup: None,
            output_limit: 1,
            machine_env: Default::default(),
            tmp_bytes: None,
        }
    }
}

/// The state of an attempt. Its supervisor writes it, unless there never was one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRecord {
    /// The boot of the machine that the instants belong to.
    pub boot_id: String,
    /// The supervisor; none if the attempt was never started.
    pub supervisor: Option<Identity>,
    /// The process of the job.
    pub child: Option<Identity>,
    /// When it started.
    pub started: Option<BootTime>,
    /// The last instant at which it was known to run.
    pub seen: BootTime,
    /// Why it was stopped, if it was.
    pub stop: Option<StopCause>,
    /// Whether it was killed.
    pub killed: bool,
    /// How its process ended. Processes that it started may still run.
    pub exit: Option<Exit>,
    /// Whether all its processes have ended.
    pub ended: bool,
    /// Bytes of output that were lost because the disk was full.
    #[serde(default)]
    pub output_lost: u64,
    /// Whether its supervisor accepts notes and an end for idle GPUs. Those of earlier versions take
    /// lines that they do not know for an order to kill.
    #[serde(default)]
    pub takes_notes: bool,
}

/// Why an attempt was stopped.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    /// The server ordered it.
    Ordered,
    /// The lease ran out without an answer of the server, so other jobs may get the GPUs.
    LeaseRanOut,
    /// Its GPUs did nothing for longer than the node allows.
    Idle,
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// With an exit code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// It could not be started.
    NotStarted(String),
}

impl Exit {
    /// The exit code that a shell would show.
    pub fn code(&self) -> Option<i32> {
        match self {
            Exit::Code(code) => Some(*code),
            Exit::Signal(signal) => Some(128 + signal),
            Exit::NotStarted(_) => None,
        }
    }
}

impl AttemptRecord {
    /// The first record of a supervisor.
    pub fn claimed(boot_id: String, supervisor: Identity, now: BootTime) -> AttemptRecord {
        AttemptRecord {
            boot_id,
            supervisor: Some(supervisor),
            child: None,
            started: None,
            seen: now,
            stop: None,
            killed: false,
            exit: None,
            ended: false,
            output_lost: 0,
            takes_notes: true,
        }
    }

    /// The record of an attempt whose record was lost.
    pub fn unknown(boot_id: String, now: BootTime) -> AttemptRecord {
        AttemptRecord {
            boot_id,
            supervisor: None,
            child: None,
            started: None,
            seen: now,
            stop: None,
            killed: true,
            exit: None,
            ended: false,
            output_lost: 0,
            takes_notes: false,
        }
    }

    /// The record of an attempt that never ran here and never will.
    pub fn declined(boot_id: String, why: &str, now: BootTime) -> AttemptRecord {
        AttemptRecord {
            stop: Some(StopCause::Ordered),
            killed: false,
            exit: Some(Exit::NotStarted(why.to_owned())),
            ended: true,
            ..AttemptRecord::unknown(boot_id, now)
        }
    }

    /// How long it has run: until now while its supervisor runs, afterwards until it was
    /// last seen.
    pub fn running_time(&self, now: BootTime, is_supervised: bool) -> Duration {
        let Some(started) = self.started else { return Duration::ZERO };
        let runs = is_supervised && self.exit.is_none();
        let until = if runs { now } else { self.seen };
        until.since(started)
    }
}

/// Until when attempts may run without an answer of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptLease {
    /// The boot of the machine that the instants belong to.
    pub boot_id: String,
    /// Attempts are stopped at this instant.
    pub stop_at: BootTime,
    /// Attempts are killed at this instant, whatever their grace period.
    pub kill_at: BootTime,
}

impl AttemptLease {
    /// The lease of a heartbeat that was sent at `sent` and accepted: the server gives
    /// up the node `length` after it arrived, which was later. A third is left for the attempts to
    /// end, and a tenth for clock drift and slow termination of processes.
    pub fn granted(boot_id: String, sent: BootTime, length: Duration) -> AttemptLease {
        let stop_at = sent.plus(length / 3 * 2);
        AttemptLease { boot_id, stop_at, kill_at: sent.plus(length / 10 * 9) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> BootTime {
        BootTime::from_millis(millis)
    }

    #[test]
    fn an_attempt_is_gone_before_the_server_gives_up_its_node() {
        let length = Duration::from_secs(90);
        let lease = AttemptLease::granted("boot".into(), at(1000), length);
        assert_eq!((lease.stop_at, lease.kill_at), (at(61_000), at(82_000)));
        assert!(lease.kill_at < at(1000).plus(length));
    }

    #[test]
    fn time_counts_until_the_end_or_until_it_was_last_seen() {
        let supervisor = Identity { pid: 1, start_ticks: 1 };
        let mut record = AttemptRecord::claimed("boot".into(), supervisor, at(10));
        let runtime = |record: &AttemptRecord, supervised| {
            u64::try_from(record.running_time(at(500), supervised).as_millis()).expect("short")
        };
        assert_eq!(runtime(&record, true), 0);
        record.started = Some(at(100));
        record.seen = at(300);
        assert_eq!(runtime(&record, true), 400);
        assert_eq!(runtime(&record, false), 200);
        record.exit = Some(Exit::Code(0));
        assert_eq!(runtime(&record, true), 200);
    }

    #[test]
    fn an_exit_is_shown_as_a_shell_would() {
        assert_eq!(Exit::Code(3).code(), Some(3));
        assert_eq!(Exit::Signal(9).code(), Some(137));
        assert_eq!(Exit::NotStarted("no".into()).code(), None);
    }
}
