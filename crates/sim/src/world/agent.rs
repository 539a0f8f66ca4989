//! Correct agents: they start every ordered attempt once, report it until they are ordered to
//! forget it, and stop all attempts when no answer has arrived for too long.

use std::collections::BTreeMap;

use bursar_core::cell::command::{AttemptReport, Heartbeat, NodeOffer, ReportState};
use bursar_core::cell::jobs::orders::{Order, OrderKind};
use bursar_core::cell::{AttemptId, JobId, NodeKey};

use crate::random::Dice;

/// An agent stops all attempts when no answer has arrived for this time. It is shorter than a
/// node's lease.
const AGENT_LEASE_MS: i64 = 60_000;

/// How a process ends if it is not stopped.
#[derive(Copy, Clone, Debug)]
pub(super) struct ProcessEnd {
    pub(super) runs_ms: i64,
    pub(super) succeeds: bool,
}

/// A process of an attempt on a node.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) since: i64,
    pub(super) devices: u64,
    pub(super) gpus: u64,
    fate: ProcessEnd,
    /// When it ends because it was stopped.
    stop_at: Option<i64>,
}

impl Process {
    fn end(&self) -> (i64, ReportState) {
        let alone = self.since + self.fate.runs_ms;
        match self.stop_at {
            Some(stop_at) if stop_at < alone => (stop_at, ReportState::Stopped),
            _ if self.fate.succeeds => (alone, ReportState::Succeeded),
            _ => (alone, ReportState::Failed),
        }
    }
}

/// The result of an attempt on a node.
#[derive(Copy, Clone, Debug)]
struct Done {
    state: ReportState,
    gpu_ms: u64,
}

/// A heartbeat in flight to a cell.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) agent: usize,
    pub(super) heartbeat: Heartbeat,
    pub(super) sent_at: i64,
}

/// An agent and its node.
pub(super) struct Agent {
    pub(super) cell: usize,
    pub(super) offer: NodeOffer,
    /// `None` if it must register.
    pub(super) incarnation: Option<u32>,
    seq: u64,
    pub(super) running: BTreeMap<AttemptId, Process>,
    done: BTreeMap<AttemptId, Done>,
    /// When the last answered heartbeat was sent.
    heard_at: i64,
    pub(super) next_report: i64,
    /// Messages in both directions are lost before this instant.
    pub(super) cut_off_until: i64,
    /// The speed of its clock, in per cent.
    pub(super) clock_percent: u64,
    /// GPU time that was really used, by attempt.
    pub(super) truth: BTreeMap<AttemptId, u64>,
}

impl Agent {
    pub(super) fn new(cell: usize, offer: NodeOffer, clock_percent: u64) -> Agent {
        Agent {
            cell,
            offer,
            incarnation: None,
            seq: 0,
            running: BTreeMap::new(),
            done: BTreeMap::new(),
            heard_at: 0,
            next_report: 0,
            cut_off_until: 0,
            clock_percent,
            truth: BTreeMap::new(),
        }
    }

    /// Records that the cell registered the agent.
    pub(super) fn registered(&mut self, now: i64, incarnation: u32) {
        self.incarnation = Some(incarnation);
        self.seq = 0;
        self.heard_at = now;
        self.next_report = now;
    }

    /// Restarts the machine: all processes and the state of the agent are lost.
    pub(super) fn reboot(&mut self, now: i64) {
        self.settle(now);
        for (attempt, process) in std::mem::take(&mut self.running) {
            self.note_true_usage(attempt, &process, now);
        }
        self.done.clear();
        self.incarnation = None;
    }

    fn note_true_usage(&mut self, attempt: AttemptId, process: &Process, end: i64) {
        let used = (end - process.since).max(0).unsigned_abs() * process.devices;
        *self.truth.entry(attempt).or_default() += used;
    }

    /// GPU time that an attempt has really used on this node so far.
    pub(super) fn used(&self, now: i64, attempt: AttemptId) -> u64 {
        let running = self.running.get(&attempt).map_or(0, |process| {
            (process.end().0.min(now) - process.since).max(0).unsigned_abs() * process.devices
        });
        self.truth.get(&attempt).copied().unwrap_or(0) + running
    }

    /// Ends processes whose time is over.
    pub(super) fn settle(&mut self, now: i64) {
        let lease_end = self.heard_at + AGENT_LEASE_MS;
        let mut ended = Vec::new();
        for (attempt, process) in &mut self.running {
            if lease_end <= now {
                let stop_at = process.stop_at.unwrap_or(i64::MAX).min(lease_end);
                process.stop_at = Some(stop_at.max(process.since));
            }
            if process.end().0 <= now {
                ended.push(*attempt);
            }
        }
        for attempt in ended {
            let process = self.running.remove(&attempt).expect("found above");
            let (end, state) = process.end();
            self.note_true_usage(attempt, &process, end);
            let gpu_ms = self.measured(&process, end);
            self.done.insert(attempt, Done { state, gpu_ms });
        }
    }

    fn measured(&self, process: &Process, until: i64) -> u64 {
        let wall = (until - process.since).max(0).unsigned_abs();
        wall * process.devices * self.clock_percent / 100
    }

    /// The next heartbeat; `None` if it must register first.
    pub(super) fn report(&mut self, now: i64) -> Option<Heartbeat> {
        self.settle(now);
        let incarnation = self.incarnation?;
        self.seq += 1;
        let running = self.running.iter().map(|(attempt, process)| AttemptReport {
            attempt: *attempt,
            state: ReportState::Running,
            gpu_ms_total: self.measured(process, now),
            exit_code: None,
        });
        let done = self.done.iter().map(|(attempt, done)| AttemptReport {
            attempt: *attempt,
            state: done.state,
            gpu_ms_total: done.gpu_ms,
            exit_code: match done.state {
                ReportState::Succeeded => Some(0),
                ReportState::Failed => Some(1),
                ReportState::Running | ReportState::Stopped => None,
            },
        });
        Some(Heartbeat {
            node: NodeKey::of(&self.offer),
            incarnation,
            seq: self.seq,
            reports: running.chain(done).collect(),
        })
    }

    /// Whether this is the last heartbeat. Answers to earlier ones are dropped.
    pub(super) fn awaits(&self, heartbeat: &Heartbeat) -> bool {
        self.incarnation == Some(heartbeat.incarnation) && self.seq == heartbeat.seq
    }

    /// Follows orders. Returns the attempts that it started.
    pub(super) fn follow_orders(
        &mut self,
        now: i64,
        sent_at: i64,
        orders: Vec<Order>,
        dice: &mut Dice,
        fate: impl Fn(JobId) -> ProcessEnd,
    ) -> Vec<AttemptId> {
        self.settle(now);
        self.heard_at = self.heard_at.max(sent_at);
        let mut started = Vec::new();
        for Order { attempt, kind } in orders {
            match kind {
                OrderKind::Start(start) => {
                    let known =
                        self.running.contains_key(&attempt) || self.done.contains_key(&attempt);
                    if !known {
                        let process = Process {
                            since: now,
                            devices: u64::from(start.gpus.count_ones()),
                            gpus: start.gpus,
                            fate: fate(attempt.job),
                            stop_at: None,
                        };
                        self.running.insert(attempt, process);
                        started.push(attempt);
                    }
                }
                OrderKind::Stop { kill_at, .. } => {
                    let limit_ms = (kill_at.millis() - now).max(0) + 20_000;
                    let takes = dice.below(usize::try_from(limit_ms).unwrap_or(1).max(1)) as i64;
                    self.stop(attempt, now + takes);
                }
                OrderKind::Kill { .. } => self.stop(attempt, now),
                OrderKind::Forget => {
                    if let Some(process) = self.running.remove(&attempt) {
                        self.note_true_usage(attempt, &process, now);
                    }
                    self.done.remove(&attempt);
                }
            }
        }
        self.settle(now);
        started
    }

    fn stop(&mut self, attempt: AttemptId, at: i64) {
        match self.running.get_mut(&attempt) {
            Some(process) => {
                process.stop_at = Some(process.stop_at.unwrap_or(i64::MAX).min(at));
            }
            None => {
                let never = Done { state: ReportState::Stopped, gpu_ms: 0 };
                self.done.entry(attempt).or_insert(never);
            }
        }
    }
}
