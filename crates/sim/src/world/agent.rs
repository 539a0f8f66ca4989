//! Agents as they should be: they start what they are told once, report everything until they are
//! told to forget it, and stop all of it when nobody has answered them for too long.

use std::collections::BTreeMap;

use bursar_core::cell::command::{Heartbeat, NodeOffer, Report, ReportState};
use bursar_core::cell::jobs::orders::{Order, OrderKind};
use bursar_core::cell::{AttemptId, JobId, NodeKey};

use crate::random::Dice;

/// An agent stops everything when no answer has come for so long: less than a node's lease.
const AGENT_LEASE_MS: i64 = 60_000;

/// How a process would end if it were left alone.
#[derive(Copy, Clone, Debug)]
pub(super) struct Fate {
    pub(super) runs_ms: i64,
    pub(super) succeeds: bool,
}

/// A process of an attempt on a node.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) since: i64,
    pub(super) devices: u64,
    pub(super) gpus: u64,
    fate: Fate,
    /// When it ends because it was told to.
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

/// What became of an attempt on a node.
#[derive(Copy, Clone, Debug)]
struct Done {
    state: ReportState,
    gpu_ms: u64,
}

/// A report on its way to a cell.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) agent: usize,
    pub(super) heartbeat: Heartbeat,
    pub(super) sent_at: i64,
}

/// An agent and the node that it runs on.
pub(super) struct Agent {
    pub(super) cell: usize,
    pub(super) offer: NodeOffer,
    /// `None`: it must register.
    pub(super) incarnation: Option<u32>,
    seq: u64,
    pub(super) running: BTreeMap<AttemptId, Process>,
    done: BTreeMap<AttemptId, Done>,
    /// When the last report that was answered was sent.
    heard_at: i64,
    pub(super) next_report: i64,
    /// Nothing goes in or out before.
    pub(super) cut_off_until: i64,
    /// How fast its clock runs, in per cent.
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

    /// The cell knows this start of the agent from now on.
    pub(super) fn registered(&mut self, now: i64, incarnation: u32) {
        self.incarnation = Some(incarnation);
        self.seq = 0;
        self.heard_at = now;
        self.next_report = now;
    }

    /// The machine starts again: every process is gone, and the agent knows nothing.
    pub(super) fn reboot(&mut self, now: i64) {
        self.settle(now);
        for (attempt, process) in std::mem::take(&mut self.running) {
            self.note_truth(attempt, &process, now);
        }
        self.done.clear();
        self.incarnation = None;
    }

    fn note_truth(&mut self, attempt: AttemptId, process: &Process, end: i64) {
        let used = (end - process.since).max(0).unsigned_abs() * process.devices;
        *self.truth.entry(attempt).or_default() += used;
    }

    /// GPU time that an attempt has really used here by now.
    pub(super) fn used(&self, now: i64, attempt: AttemptId) -> u64 {
        let running = self.running.get(&attempt).map_or(0, |process| {
            (process.end().0.min(now) - process.since).max(0).unsigned_abs() * process.devices
        });
        self.truth.get(&attempt).copied().unwrap_or(0) + running
    }

    /// Lets processes end whose time has come.
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
            self.note_truth(attempt, &process, end);
            let gpu_ms = self.measured(&process, end);
            self.done.insert(attempt, Done { state, gpu_ms });
        }
    }

    fn measured(&self, process: &Process, until: i64) -> u64 {
        let wall = (until - process.since).max(0).unsigned_abs();
        wall * process.devices * self.clock_percent / 100
    }

    /// The next report. `None`: it must register first.
    pub(super) fn report(&mut self, now: i64) -> Option<Heartbeat> {
        self.settle(now);
        let incarnation = self.incarnation?;
        self.seq += 1;
        let running = self.running.iter().map(|(attempt, process)| Report {
            attempt: *attempt,
            state: ReportState::Running,
            gpu_ms_total: self.measured(process, now),
            exit_code: None,
        });
        let done = self.done.iter().map(|(attempt, done)| Report {
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

    /// Whether an answer is to the last report; any other is dropped.
    pub(super) fn awaits(&self, heartbeat: &Heartbeat) -> bool {
        self.incarnation == Some(heartbeat.incarnation) && self.seq == heartbeat.seq
    }

    /// Does what it is told; says which attempts it started.
    pub(super) fn obey(
        &mut self,
        now: i64,
        sent_at: i64,
        orders: Vec<Order>,
        dice: &mut Dice,
        fate: impl Fn(JobId) -> Fate,
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
                    let patience = (kill_at.millis() - now).max(0) + 20_000;
                    let takes = dice.below(usize::try_from(patience).unwrap_or(1).max(1)) as i64;
                    self.stop(attempt, now + takes);
                }
                OrderKind::Kill { .. } => self.stop(attempt, now),
                OrderKind::Forget => {
                    if let Some(process) = self.running.remove(&attempt) {
                        self.note_truth(attempt, &process, now);
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
