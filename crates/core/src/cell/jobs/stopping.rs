//! Stopping an attempt: stop signal, then kill, then the end without a report.

use smallvec::SmallVec;

use super::job::{CellJob, Request};
use crate::cell::event::{AttemptOutcome, Event, StopReason};
use crate::cell::ids::{AttemptId, JobId};
use crate::cell::index::timers::Timer;
use crate::cell::nodes::node::NodeId;
use crate::cell::schedule::preemption::rules::Rule;
use crate::cell::state::Cell;
use crate::time::Timestamp;

/// An order to stop.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stop {
    pub reason: StopReason,
    pub ordered_at: Timestamp,
    pub kill_at: Timestamp,
    pub killed: bool,
}

/// Deciding.
impl Cell {
    /// Orders an attempt to stop, or ends it at once if no node has reported it.
    pub(crate) fn decide_stop(
        &self,
        now: Timestamp,
        job: &CellJob,
        reason: StopReason,
        events: &mut Vec<Event>,
    ) {
        let Some(attempt) = job.attempt().filter(|attempt| attempt.stop.is_none()) else { return };
        if attempt.running_since.is_none() {
            return self.decide_end(now, job, AttemptOutcome::Stopped(reason), None, events);
        }
        let kill_at = now.plus_millis(job.spec.grace_ms);
        events.push(Event::StopOrdered { attempt: attempt.id, reason, kill_at });
    }

    /// Ends a killed attempt that no node reported; its GPUs stay fenced.
    pub(crate) fn decide_kill_timeout(&self, now: Timestamp, id: JobId, events: &mut Vec<Event>) {
        let job = self.job(id);
        let stop = job.attempt().and_then(|attempt| attempt.stop);
        let reason = stop.expect("only stopped attempts are killed").reason;
        self.decide_end(now, job, AttemptOutcome::Stopped(reason), None, events);
    }
}

/// Applying.
impl Cell {
    pub(crate) fn apply_stop(
        &mut self,
        at: Timestamp,
        id: AttemptId,
        reason: StopReason,
        kill_at: Timestamp,
    ) {
        let timeout = self.config.kill_timeout_ms;
        let attempt = self.attempt_mut(id.job);
        attempt.stop = Some(Stop { reason, ordered_at: at, kill_at, killed: false });
        let nodes: SmallVec<[NodeId; 1]> =
            attempt.nodes.iter().map(|on_node| on_node.node).collect();
        for timer in [Timer::MaxRuntime, Timer::FundsNeeded, Timer::FundsEnd] {
            self.clear_attempt_timer(timer(id.job), id.job);
        }
        self.set_attempt_timer(kill_at, Timer::Kill(id.job), id.job);
        for node in nodes {
            self.set_until(node, id, kill_at.plus_millis(timeout));
        }
        self.note_preempted(id.job, reason);
    }

    /// Records that a job was preempted, if that is the reason of a stop.
    pub(crate) fn note_preempted(&mut self, id: JobId, reason: StopReason) {
        let StopReason::Preempted { by, for_share, cause } = reason else { return };
        let taker = self.jobs.get(&by).map(CellJob::class);
        let limited = self.rules.has(Rule::GuestLimit);
        let job = self.job_mut(id);
        // A taker of the same class that does not take for its share evicted a guest.
        let as_guest = !for_share && taker == Some(job.class());
        job.preempted_by = Some(by);
        job.preemption = cause;
        job.share_preemptions += u32::from(for_share);
        job.guest_turns += u32::from(as_guest && limited);
        self.victims += 1;
        // A job that may no longer be a guest has another request.
        let job = self.job(id);
        let request = self.requests.get(job.request);
        if request.guest != job.may_be_guest() {
            let renewed = Request { guest: job.may_be_guest(), ..request.clone() };
            let renewed = self.requests.intern(renewed);
            self.job_mut(id).request = renewed;
        }
    }

    pub(crate) fn apply_cancel_noted(&mut self, id: AttemptId) {
        if let Some(stop) = &mut self.attempt_mut(id.job).stop {
            stop.reason = StopReason::Cancelled;
        }
    }

    pub(crate) fn apply_kill(&mut self, id: AttemptId, end_at: Timestamp) {
        self.clear_attempt_timer(Timer::Kill(id.job), id.job);
        if let Some(stop) = &mut self.attempt_mut(id.job).stop {
            stop.killed = true;
        }
        self.set_attempt_timer(end_at, Timer::KillTimeout(id.job), id.job);
    }
}
