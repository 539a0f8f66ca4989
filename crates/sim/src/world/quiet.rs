//! The end of a world: the faults stop, and all jobs must end.

use bursar_core::ledger::Ledger;
use bursar_core::ledger::jobs::Job;

use bursar_engine::LedgerCodec;

use super::host::MachineHost;
use super::{REGIONS, World};
use crate::auditor::AuditFinding;

/// The length of a round without faults.
const ROUND_MS: i64 = 10_000;
/// The number of rounds after which all jobs must have ended: longer than all jobs in sequence.
const ROUNDS: u32 = 6 * 60 * 12;

impl World {
    /// Runs the world without faults: first with all obstacles in place, then without them.
    pub(super) fn run_without_faults(&mut self) -> Result<(), AuditFinding> {
        self.faults = false;
        for agent in &mut self.agents {
            agent.cut_off_until = 0;
        }
        self.packets.clear();
        self.rest(60)?;
        self.check_waiting()?;
        self.remove_obstacles();
        self.rest(ROUNDS)?;
        self.check_ended()?;
        self.ledgers.iter().try_for_each(MachineHost::check_replay)?;
        self.cells.iter().try_for_each(MachineHost::check_replay)?;
        self.check(true)
    }

    fn rest(&mut self, rounds: u32) -> Result<(), AuditFinding> {
        for round in 0..rounds {
            self.now += ROUND_MS;
            self.advance_all();
            self.deliver_everything();
            for agent in 0..self.agents.len() {
                self.agent_reports(agent);
            }
            while let Some(packet) = self.packets.pop() {
                self.deliver_packet(packet);
            }
            self.deliver_everything();
            if round % 6 == 0 {
                self.check(round % 360 == 0)?;
            }
            if self.open_jobs() == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Delivers messages until there are none.
    pub(super) fn deliver_everything(&mut self) {
        loop {
            let before = self.records();
            for ledger in 0..self.ledgers.len() {
                for cell in 0..REGIONS.len() {
                    self.deliver_to_cell(ledger, cell);
                    self.deliver_to_ledger(cell, ledger);
                }
            }
            if self.records() == before {
                break;
            }
        }
    }

    fn records(&self) -> usize {
        let summary = self.summary();
        summary.records
    }

    /// Jobs that can end and have not.
    fn open_jobs(&self) -> usize {
        let open = |host: &MachineHost<LedgerCodec>| {
            let jobs = host.machine.jobs_before(None);
            jobs.filter(|(_, job)| !job.state.is_ended() && is_possible(&host.machine, job)).count()
        };
        self.ledgers.iter().map(open).sum()
    }

    /// Checks that every waiting job has a reason, in its ledger or in a cell where it is queued.
    fn check_waiting(&self) -> Result<(), AuditFinding> {
        for (ledger, host) in self.ledgers.iter().enumerate() {
            for (number, job) in host.machine.jobs_before(None) {
                if job.state.is_ended() || job.live_attempt().is_some() {
                    continue;
                }
                let shard = u16::try_from(ledger).expect("few ledgers");
                let reason = job.is_unfunded()
                    || !job.after.is_empty()
                    || self.cells.iter().any(|cell| {
                        let why = cell.machine.why(number.in_cell(shard), self.at());
                        why.is_some_and(|why| !why.blockers.is_empty())
                    });
                if !reason {
                    let standings = &job.standings;
                    return Err(format!(
                        "L14: job {number} of ledger {ledger} waits without a reason: {:?}, {standings:?}",
                        job.state
                    ));
                }
            }
        }
        Ok(())
    }

    /// Checks that every job that can run has ended (L15).
    fn check_ended(&self) -> Result<(), AuditFinding> {
        for (ledger, host) in self.ledgers.iter().enumerate() {
            for (number, job) in host.machine.jobs_before(None) {
                if !job.state.is_ended() && is_possible(&host.machine, job) {
                    let shard = u16::try_from(ledger).expect("few ledgers");
                    let why: Vec<_> = self
                        .cells
                        .iter()
                        .map(|cell| cell.machine.why(number.in_cell(shard), self.at()))
                        .collect();
                    return Err(format!(
                        "L15: job {number} of ledger {ledger} never ended: {:?}, unfunded {}, \
                         after {:?}, {:?}, attempts {:?}, {why:?}, {:?}, {:?}",
                        job.state,
                        job.is_unfunded(),
                        job.after,
                        job.standings,
                        job.attempts,
                        job.order.terms,
                        self.cells
                            .iter()
                            .map(|cell| cell.machine.check_quiet())
                            .collect::<Vec<_>>(),
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Whether a job can run: all its dependencies can, and it fits an empty region. There is one A100
/// node in the west; there are two H100 nodes in the east and one in the west.
fn is_possible(ledger: &Ledger, job: &Job) -> bool {
    let terms = &job.order.terms;
    let offered = |gpu_type: &str, region: &str| {
        job.order.offers.iter().any(|offer| offer.gpu_type == gpu_type && offer.region == region)
    };
    let met = job.after.iter().filter_map(|number| ledger.job(*number));
    let met = met.into_iter().all(|job| job.state.is_ended() || is_possible(ledger, job));
    let fits = match terms.nodes {
        1 => !job.order.offers.is_empty(),
        _ => offered("H100", "east"),
    };
    met && fits
}
