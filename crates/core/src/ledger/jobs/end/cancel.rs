//! How a job is cancelled.

use super::Ending;
use crate::ledger::command::{Cause, Usage};
use crate::ledger::event::Event;
use crate::ledger::id::JobNo;
use crate::ledger::jobs::{EndReason, JobState};
use crate::ledger::refusal::{Conflict, Refusal, Resource};
use crate::ledger::reply::Reply;
use crate::ledger::state::Ledger;
use crate::message::ToCell;
use crate::name::{AccountPath, JobName};
use crate::time::Timestamp;

impl Ledger {
    /// Cancels a job, or all jobs of an array that have not ended.
    pub(in crate::ledger) fn decide_cancel_named(
        &self,
        now: Timestamp,
        tenant: &AccountPath,
        id: &JobName,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let named = self.find_account(tenant).map(|tenant| self.jobs_left(tenant, id));
        let (first, rest) = match named.as_deref() {
            Some([job]) => return self.decide_cancel(now, *job, events),
            Some([first, rest @ ..]) => (*first, rest),
            Some([]) | None => {
                return Err(Refusal::NotFound { what: Resource::Job, name: id.clone().into() });
            }
        };
        let answer = self.decide_cancel(now, first, events);
        // A job that has ended is skipped; if all have ended, the answer is a refusal.
        let cancelled =
            rest.iter().filter(|job| self.decide_cancel(now, **job, events).is_ok()).count();
        match answer {
            Err(_) if cancelled > 0 => {
                Ok(Reply::Job { job: first, state: self.live_job(first).state })
            }
            answer => answer,
        }
    }

    fn decide_cancel(
        &self,
        now: Timestamp,
        number: JobNo,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let job = self.live_job(number);
        let answer = |state| Ok(Reply::Job { job: number, state });
        if job.state.is_ended() {
            let state = job.state;
            return if state == JobState::Cancelled {
                answer(state)
            } else {
                Err(Refusal::Conflict(Conflict::JobEnded { state }))
            };
        }
        let Some(live) = job.live_attempt() else {
            self.push_over(now, number, job, JobState::Cancelled, events);
            return answer(JobState::Cancelled);
        };
        let Some(cell) = live.cell else {
            if job.order.terms.external && !job.cancel_asked {
                // Its usage goes on until the last report. A second request ends it without one.
                events.push(Event::CancelRequested { job: number });
                return answer(JobState::Stopping);
            }
            let usage = Usage::GpuMs(0);
            let reason = EndReason::Cancelled;
            let cause = Cause::Holder;
            let ending = Ending { reason, usage, exit_code: None, requeue: false, cause };
            self.push_attempt_end(now, number, ending, events);
            return answer(JobState::Cancelled);
        };
        let id = number.in_cell(self.cells[cell.index()].shard);
        if live.started_at.is_some() {
            if !job.cancel_asked {
                events.push(Event::CancelRequested { job: number });
                self.send(cell, ToCell::CancelRequested { job: id }, events);
            }
            return answer(JobState::Stopping);
        }
        // It never ran, so nothing is charged. Its GPUs stay fenced until the node reports.
        let (reason, usage) = (EndReason::Cancelled, Usage::GpuMs(0));
        let cause = Cause::Holder;
        let ending = Ending { reason, usage, exit_code: None, requeue: false, cause };
        self.push_attempt_end(now, number, ending, events);
        self.send(cell, ToCell::CancelRequested { job: id }, events);
        answer(JobState::Cancelled)
    }
}
