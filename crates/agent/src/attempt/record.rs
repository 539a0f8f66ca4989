//! What is written down of an attempt: what to start, and what became of it.

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
    /// Which of the job's nodes this is, from 0.
    pub rank: u32,
    /// The names of the job's nodes, by rank.
    pub nodes: Vec<String>,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Variables of the job.
    pub env: BTreeMap<String, String>,
    /// Where it starts; the agent's working folder for jobs if not given.
    pub workdir: Option<PathBuf>,
    /// The devices that it may use, by their ids.
    pub gpus: Vec<String>,
    /// The user that it runs as; the agent's own if not given.
    pub run_as: Option<String>,
    /// The control group that it runs in, where there is one.
    pub cgroup: Option<PathBuf>,
    /// So many bytes of output are kept.
    pub output_limit: u64,
    /// Variables of the machine that the job inherits. They travel here and not in the environment
    /// of supervisors, which may be root's processes and have none.
    #[serde(default)]
    pub machine_env: BTreeMap<String, String>,
    /// The size of the folders for temporary files that it has for itself; none: the machine's.
    #[serde(default)]
    pub tmp_bytes: Option<u64>,
}

/// What became of an attempt. Its supervisor writes it, unless there never was one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The boot of the machine in which the instants mean something.
    pub boot_id: String,
    /// The supervisor; none if the attempt was never started.
    pub supervisor: Option<Identity>,
    /// The process of the job.
    pub child: Option<Identity>,
    /// When it started.
    pub started: Option<BootTime>,
    /// Until when it is known to have run.
    pub seen: BootTime,
    /// Why it was told to end, if it was.
    pub stop: Option<StopCause>,
    /// Whether it was killed.
    pub killed: bool,
    /// How its process ended. Others that it started may still run.
    pub exit: Option<Exit>,
    /// Whether nothing of it is left.
    pub ended: bool,
    /// So many bytes of its output could not be kept: the disk was full.
    #[serde(default)]
    pub output_lost: u64,
}

/// Why an attempt was told to end.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    /// The server said so.
    Ordered,
    /// Nothing was heard of the server for so long that others may get the GPUs.
    LeaseRanOut,
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// By itself.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// It could not be started.
    NotStarted(String),
}

impl Exit {
    /// The number that a shell would show.
    pub fn code(&self) -> Option<i32> {
        match self {
            Exit::Code(code) => Some(*code),
            Exit::Signal(signal) => Some(128 + signal),
            Exit::NotStarted(_) => None,
        }
    }
}

impl Record {
    /// The first record of a supervisor.
    pub fn claimed(boot_id: String, supervisor: Identity, now: BootTime) -> Record {
        Record {
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
        }
    }

    /// The record of an attempt of which nothing is known but that it was here.
    pub fn unknown(boot_id: String, now: BootTime) -> Record {
        Record {
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
        }
    }

    /// The record of an attempt that never ran here and never will.
    pub fn declined(boot_id: String, why: &str, now: BootTime) -> Record {
        Record {
            boot_id,
            supervisor: None,
            child: None,
            started: None,
            seen: now,
            stop: Some(StopCause::Ordered),
            killed: false,
            exit: Some(Exit::NotStarted(why.to_owned())),
            ended: true,
            output_lost: 0,
        }
    }

    /// How long it has run. While its supervisor lives that is until now, afterwards until it was
    /// last seen.
    pub fn running_time(&self, now: BootTime, is_supervised: bool) -> Duration {
        let Some(started) = self.started else { return Duration::ZERO };
        let runs = is_supervised && self.exit.is_none();
        let until = if runs { now } else { self.seen };
        until.since(started)
    }
}

/// Until when attempts may run without news from the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The boot of the machine in which the instants mean something.
    pub boot_id: String,
    /// They are asked to end at this instant.
    pub stop_at: BootTime,
    /// They are killed at this instant, whatever their grace.
    pub kill_at: BootTime,
}

impl Lease {
    /// The lease that follows from a report that was sent at `sent` and accepted: the server gives
    /// up the node `length` after it arrived, which was later. A third is left for the attempts to
    /// end, and a tenth for clocks that do not run equally fast and processes that die slowly.
    pub fn granted(boot_id: String, sent: BootTime, length: Duration) -> Lease {
        let stop_at = sent.plus(length / 3 * 2);
        Lease { boot_id, stop_at, kill_at: sent.plus(length / 10 * 9) }
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
        let lease = Lease::granted("boot".into(), at(1000), length);
        assert_eq!((lease.stop_at, lease.kill_at), (at(61_000), at(82_000)));
        assert!(lease.kill_at < at(1000).plus(length));
    }

    #[test]
    fn time_counts_until_the_end_or_until_it_was_last_seen() {
        let supervisor = Identity { pid: 1, start_ticks: 1 };
        let mut record = Record::claimed("boot".into(), supervisor, at(10));
        let runtime = |record: &Record, supervised| {
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
