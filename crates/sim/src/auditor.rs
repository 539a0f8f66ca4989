//! The auditor: an independent reference for the behaviour of a world. It shares no code with the
//! machines. It reads their events and messages, computes its own sums, and compares.

use std::collections::BTreeMap;

use bursar_core::cell::event::{AttemptOutcome, Event as CellEvent};
use bursar_core::cell::schedule::shape::GpuDemand;
use bursar_core::cell::{AttemptId, JobId};
use bursar_core::ledger::jobs::{
    Attempt, AttemptEnd, EndReason, Job, JobState, OnExhausted, Reserve,
};
use bursar_core::message::{ToCell, ToLedger};

/// A description of a violated invariant.
pub type AuditFinding = String;

/// What a cell has reported about an attempt.
#[derive(Clone, Debug, Default)]
struct Reported {
    metered: u64,
    ended: Option<(AttemptOutcome, u64)>,
}

/// Audits a whole world.
#[derive(Default)]
pub struct Auditor {
    /// Reports of cells about attempts, by cell and attempt.
    reported: BTreeMap<(usize, AttemptId), Reported>,
    /// The last number of each sequence of messages: kind, sender, receiver.
    numbers: BTreeMap<(&'static str, usize, usize), u64>,
    /// The last state of each job, by shard and number.
    states: BTreeMap<(u16, u64), JobState>,
    /// Placements confirmed by ledgers that no cell has ended, by job.
    confirmed: BTreeMap<JobId, (usize, AttemptId)>,
    /// The last attempt number that a cell proposed for a job, by cell and job.
    proposed: BTreeMap<(usize, JobId), u32>,
    /// The last attempt number that a ledger confirmed for a job, in any cell.
    started: BTreeMap<JobId, u32>,
}

/// The charge for GPU time in micro-credits, rounded half to even: price per hour of a whole GPU
/// times the share of each GPU in thousandths.
fn charge(price: u64, thousandths: u16, gpu_ms: u64) -> u128 {
    let exact = u128::from(price) * u128::from(thousandths) * u128::from(gpu_ms);
    let unit = 1000 * 3_600_000_u128;
    let (whole, rest) = (exact / unit, exact % unit);
    let up = rest * 2 > unit || (rest * 2 == unit && whole % 2 == 1);
    whole + u128::from(up)
}

fn thousandths(gpu: GpuDemand) -> u16 {
    match gpu {
        GpuDemand::None => 0,
        GpuDemand::Share(share) => share,
        GpuDemand::Whole(_) => 1000,
    }
}

impl Auditor {
    /// Checks that a message has the next number of its sequence.
    fn next_number(
        &mut self,
        kind: &'static str,
        from: usize,
        to: usize,
        number: u64,
    ) -> Result<(), AuditFinding> {
        let last = self.numbers.entry((kind, from, to)).or_default();
        if number != *last + 1 {
            return Err(format!("{kind} {from} → {to}: message {number} after {last}"));
        }
        *last = number;
        Ok(())
    }

    /// Audits an event of a cell.
    pub fn audit_cell_event(&mut self, cell: usize, event: &CellEvent) -> Result<(), AuditFinding> {
        let CellEvent::LedgerMessageSent { shard, number, message } = event else { return Ok(()) };
        self.next_number("cell to ledger", cell, usize::from(*shard), *number)?;
        match &**message {
            ToLedger::UsageMetered(usage) => {
                for (attempt, gpu_ms) in usage {
                    let reported = self.reported.entry((cell, *attempt)).or_default();
                    if *gpu_ms < reported.metered || reported.ended.is_some() {
                        return Err(format!(
                            "L7: {attempt} metered at {gpu_ms} after {reported:?}"
                        ));
                    }
                    reported.metered = *gpu_ms;
                }
            }
            ToLedger::AttemptEnded { attempt, outcome, gpu_ms, .. } => {
                let reported = self.reported.entry((cell, *attempt)).or_default();
                if reported.ended.is_some() || *gpu_ms < reported.metered {
                    let at = format!("at {gpu_ms} after {reported:?}");
                    return Err(format!(
                        "L7: {attempt} ended twice, or below its metered usage: {at}"
                    ));
                }
                reported.ended = Some((*outcome, *gpu_ms));
                if self.confirmed.get(&attempt.job) == Some(&(cell, *attempt)) {
                    self.confirmed.remove(&attempt.job);
                }
            }
            ToLedger::PlacementProposed { attempt, .. } => {
                // Refused proposals count too: an answer to them may still be in flight.
                let last = self.proposed.entry((cell, attempt.job)).or_default();
                check_increases(last, *attempt, "proposed")?;
            }
            ToLedger::AttemptStarted { .. }
            | ToLedger::FundsNeeded { .. }
            | ToLedger::StopOrdered { .. }
            | ToLedger::JobEnded { .. } => {}
        }
        Ok(())
    }

    /// Audits a message from a ledger to a cell.
    pub fn audit_ledger_message(
        &mut self,
        ledger: usize,
        cell: usize,
        number: u64,
        message: &ToCell,
    ) -> Result<(), AuditFinding> {
        self.next_number("ledger to cell", ledger, cell, number)?;
        if let ToCell::PlacementConfirmed { attempt, .. } = message {
            // The cell may have ended it while the answer was in flight.
            let over = self
                .reported
                .get(&(cell, *attempt))
                .is_some_and(|reported| reported.ended.is_some());
            let last = self.started.entry(attempt.job).or_default();
            check_increases(last, *attempt, "confirmed")?;
            if let Some((other_cell, other)) = self.confirmed.get(&attempt.job) {
                return Err(format!(
                    "L10: {attempt} in cell {cell} was confirmed while {other} in cell \
                     {other_cell} has not ended"
                ));
            }
            if !over {
                self.confirmed.insert(attempt.job, (cell, *attempt));
            }
        }
        Ok(())
    }

    /// Drops a confirmation that the ledger withdrew because its job has ended.
    pub fn job_ended(&mut self, job: JobId) {
        self.confirmed.remove(&job);
    }

    /// Checks one job of a ledger. `used` returns the GPU time that an attempt has really used.
    pub fn check_job(
        &mut self,
        shard: u16,
        number: u64,
        job: &Job,
        used: impl Fn(usize, AttemptId) -> Option<u64>,
    ) -> Result<(), AuditFinding> {
        let id = JobId::new(shard, number);
        let before = self.states.insert((shard, number), job.state).unwrap_or(JobState::Queued);
        if !may_follow(before, job.state) {
            return Err(format!("L10: {id:?} went from {before:?} to {:?}", job.state));
        }
        if job.state.is_ended() && job.hold.is_some() {
            return Err(format!("L10: {id:?} has ended and still holds credits"));
        }
        let live = job.attempts.iter().filter(|attempt| attempt.end.is_none()).count();
        let active =
            matches!(job.state, JobState::Starting | JobState::Running | JobState::Stopping);
        if live != usize::from(active) {
            return Err(format!("L10: {id:?} is {:?} with {live} live attempts", job.state));
        }
        for attempt in &job.attempts {
            let (Some(end), Some(cell)) = (&attempt.end, attempt.cell) else { continue };
            let name = AttemptId { job: id, number: attempt.number };
            let cell = usize::from(cell.0);
            let price = attempt.per_gpu_hour.length();
            let terms = &job.order.terms;
            let share = thousandths(terms.gpu);
            if u128::from(end.charged) != charge(price, share, end.gpu_ms) {
                return Err(format!(
                    "L7: {name} was charged {} for {} ms",
                    end.charged, end.gpu_ms
                ));
            }
            let reported = self.reported.get(&(cell, name)).cloned().unwrap_or_default();
            self.check_end(name, attempt, end, &reported)?;
            if let Some(used) = used(cell, name)
                && end.gpu_ms > used
            {
                return Err(format!("L7: {name} was charged for {} ms of {used}", end.gpu_ms));
            }
            let paid = terms.reserve == Reserve::Full || terms.on_exhausted == OnExhausted::Stop;
            if paid && end.uncollected > 0 {
                return Err(format!("L7: {name} exceeded its hold by {}", end.uncollected));
            }
            if let Some(longest) = terms.max_runtime_ms {
                let devices = u64::from(terms.gpu.devices()) * u64::from(terms.nodes);
                if end.gpu_ms > devices * longest.unsigned_abs() {
                    return Err(format!("{name} exceeded its maximum runtime: {} ms", end.gpu_ms));
                }
            }
        }
        Ok(())
    }

    /// Checks that a ledger settled what the cell reported, except where the ledger does not wait
    /// for it: a cancelled attempt that never ran, and one in a region that does not answer.
    fn check_end(
        &self,
        name: AttemptId,
        attempt: &Attempt,
        end: &AttemptEnd,
        reported: &Reported,
    ) -> Result<(), AuditFinding> {
        let early = match end.reason {
            EndReason::Cancelled => attempt.started_at.is_none() && end.gpu_ms == 0,
            EndReason::Lost => end.gpu_ms <= reported.metered,
            EndReason::Succeeded
            | EndReason::Failed
            | EndReason::Preempted
            | EndReason::Operator
            | EndReason::Drained
            | EndReason::TimedOut
            | EndReason::OutOfCredits => false,
        };
        let agrees = reported.ended.is_some_and(|(_, settled)| end.gpu_ms == settled);
        if agrees || early {
            Ok(())
        } else {
            Err(format!("L7: {name} was settled as {end:?}; the cell reported {reported:?}"))
        }
    }
}

/// Checks that every attempt of a job has a higher number than those before it.
fn check_increases(last: &mut u32, attempt: AttemptId, what: &str) -> Result<(), AuditFinding> {
    if attempt.number <= *last {
        return Err(format!("L10: {attempt} was {what} after number {last}"));
    }
    *last = attempt.number;
    Ok(())
}

/// Whether a job may change from one state to another, directly or through others in one step.
fn may_follow(before: JobState, after: JobState) -> bool {
    match before {
        JobState::Queued | JobState::Starting | JobState::Running | JobState::Stopping => true,
        JobState::Succeeded
        | JobState::Failed
        | JobState::Cancelled
        | JobState::Lost
        | JobState::OutOfCredits
        | JobState::TimedOut => before == after,
    }
}
