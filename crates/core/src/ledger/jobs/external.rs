//! Usage measured outside Bursar: cumulative, numbered and therefore idempotent.

use super::end::Ending;
use super::{EndReason, JobState};
use crate::credits::Credits;
use crate::ledger::command::{Cause, Usage, UsageEnd, UsageOf};
use crate::ledger::credits::price::Rounding;
use crate::ledger::event::{AttemptConfirmed, Event};
use crate::ledger::holds::hold::HoldState;
use crate::ledger::id::JobNo;
use crate::ledger::refusal::{Conflict, Refusal};
use crate::ledger::reply::Reply;
use crate::ledger::state::Ledger;
use crate::name::AccountPath;
use crate::time::Timestamp;

/// One report of usage.
#[derive(Copy, Clone, Debug)]
pub(in crate::ledger) struct UsageReport {
    pub(in crate::ledger) seq: u64,
    pub(in crate::ledger) usage: Usage,
    pub(in crate::ledger) ended: Option<UsageEnd>,
}

/// Why an attempt outside ended.
fn end_reason(ended: UsageEnd, cancel_asked: bool) -> EndReason {
    match ended {
        UsageEnd::Ended if cancel_asked => EndReason::Cancelled,
        UsageEnd::Ended | UsageEnd::Succeeded => EndReason::Succeeded,
        UsageEnd::Failed => EndReason::Failed,
        UsageEnd::Cancelled => EndReason::Cancelled,
        UsageEnd::Lost => EndReason::Lost,
    }
}

impl Ledger {
    pub(in crate::ledger) fn decide_report(
        &self,
        now: Timestamp,
        tenant: &AccountPath,
        of: &UsageOf,
        report: UsageReport,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        match of {
            UsageOf::Hold(id) => {
                let hold = self.movable_hold(tenant, id)?;
                if report.ended.is_some() {
                    self.decide_settle(now, hold, report.usage, Cause::Holder, events)
                } else {
                    self.decide_capture(now, hold, report.usage, Some(report.seq), events)
                }
            }
            UsageOf::Job(id) => {
                let job = self.existing_job(tenant, id)?;
                self.decide_job_report(now, job, report, events)
            }
        }
    }

    fn decide_job_report(
        &self,
        now: Timestamp,
        number: JobNo,
        report: UsageReport,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let job = self.live_job(number);
        let elsewhere = job.attempts.last().is_none_or(|attempt| attempt.cell.is_none());
        if job.state.is_ended() {
            let known = job.state == JobState::Succeeded || job.order.terms.external;
            if !elsewhere || !known {
                return Err(Refusal::Conflict(Conflict::JobEnded { state: job.state }));
            }
            // The last report again, or an earlier one. A report of more than was settled is
            // refused, as for a hold, so that no usage is dropped silently.
            let end = job.attempts.last().and_then(|attempt| attempt.end);
            let settled = end.is_some_and(|end| match report.usage {
                Usage::GpuMs(gpu_ms) => {
                    gpu_ms.min(job.order.terms.rate(Credits::ZERO).gpu_ms_limit) <= end.gpu_ms
                }
                Usage::Total(total) => total.length() <= end.charged,
            });
            return if settled {
                Ok(Reply::Job { job: number, state: job.state })
            } else {
                Err(Refusal::HoldClosed { state: HoldState::Settled })
            };
        }
        let waits = job.live_attempt().is_none();
        let ready = job.after.is_empty() && !job.is_unfunded();
        if waits && !ready || !waits && !elsewhere {
            return Err(Refusal::Conflict(Conflict::NotMeasuredByOthers));
        }
        // What runs outside is not stopped by a freeze, and its usage counts.
        if waits && !job.order.terms.external {
            self.require_thawed(&self.path(job.order.account))?;
        }
        self.check_report(now, number, report)?;
        if waits {
            self.push_external_start(number, events);
        }
        if let Some(ended) = report.ended {
            let (reason, usage) = (end_reason(ended, job.cancel_asked), report.usage);
            let cause = crate::ledger::command::Cause::Holder;
            let ending = Ending { reason, usage, exit_code: None, requeue: false, cause };
            self.push_attempt_end(now, number, ending, events);
            return Ok(Reply::Job { job: number, state: reason.job_state() });
        }
        if let Some(hold) = job.hold {
            self.decide_capture(now, hold, report.usage, Some(report.seq), events)?;
        }
        let state = if job.cancel_asked { JobState::Stopping } else { JobState::Running };
        Ok(Reply::Job { job: number, state })
    }

    /// Refuses a report that contradicts an earlier one, before any event is pushed.
    fn check_report(
        &self,
        now: Timestamp,
        number: JobNo,
        report: UsageReport,
    ) -> Result<(), Refusal> {
        let Some(number) = self.live_job(number).hold else { return Ok(()) };
        let hold = self.live_hold(number);
        let ended = report.ended.is_some();
        let rounding = if ended { Rounding::HalfEven } else { Rounding::Floor };
        let metered = self.meter(hold, report.usage, rounding)?;
        let last = hold.details.as_ref().and_then(|details| details.last_report);
        if let Some((seq, seen)) = last.filter(|_| !ended)
            && seq == report.seq
            && seen.length() != metered.total
        {
            return Err(Refusal::SequenceConflict { seen });
        }
        let below = matches!(report.usage, Usage::Total(_)) && metered.total < hold.metered;
        if ended && below {
            let captured = Credits::from_length(hold.metered).unwrap_or(Credits::MAX);
            return Err(Refusal::Conflict(Conflict::SettleBelowCaptured { captured }));
        }
        let fresh = ended || last.is_none_or(|(seq, _)| report.seq > seq);
        if fresh && hold.grows_by(metered) {
            self.push_reported(now, number, (report.usage, metered), None, &mut Vec::new())?;
        }
        Ok(())
    }

    /// Pushes the start of a job outside all cells. Its GPU type is not reported, so it is charged
    /// at the highest price of its offers, which its hold was made for.
    fn push_external_start(&self, number: JobNo, events: &mut Vec<Event>) {
        let job = self.live_job(number);
        let price = job.order.costliest();
        let costliest = job.order.offers.iter().find(|offer| offer.per_gpu_hour == price);
        self.push_withdrawals(number, job, None, events);
        events.push(Event::AttemptConfirmed(Box::new(AttemptConfirmed {
            job: number,
            cell: None,
            number: job.highest.saturating_add(1),
            gpu_type: costliest.map(|offer| offer.gpu_type.clone()),
            nodes: smallvec::SmallVec::new(),
            per_gpu_hour: price,
            funded_ms: job.order.terms.first_window(),
        })));
        events.push(Event::AttemptStarted { job: number });
    }
}
