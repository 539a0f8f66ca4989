//! The end of attempts and jobs. The hold of an attempt is closed here, and the next one is placed
//! in the same commit.

use bursar_seeded::{Bug, seeded};

use super::table::Review;
use super::{AttemptEnd, EndReason, Job, JobState};
use crate::cell::event::{AttemptOutcome, JobOutcome, StopReason};
use crate::cell::ids::JobId;
use crate::cell::nodes::owner::is_platforms;
use crate::credits::Credits;
use crate::ledger::accounts::account::Path;
use crate::ledger::command::{Cause, Usage};
use crate::ledger::credits::price::Rounding;
use crate::ledger::credits::spend_order::draw::DrawRequest;
use crate::ledger::credits::spend_order::overlay::Overlay;
use crate::ledger::event::{Event, Piece, Pieces, total};
use crate::ledger::holds::capture::Projected;
use crate::ledger::holds::hold::{Hold, HoldKind, HoldState, gpu_time};
use crate::ledger::id::{CellNo, HoldNo, JobNo};
use crate::ledger::jobs::submit::hold_for;
use crate::ledger::refusal::{Refusal, Resource};
use crate::ledger::state::Ledger;
use crate::message::{ProposedNode, ToCell};
use crate::name::{AccountPath, HoldId, JobName};
use crate::time::Timestamp;

/// The end of an attempt.
#[derive(Copy, Clone, Debug)]
pub(in crate::ledger) struct Ending {
    pub(in crate::ledger) reason: EndReason,
    /// The cumulative usage at the end.
    pub(in crate::ledger) usage: Usage,
    pub(in crate::ledger) exit_code: Option<i32>,
    /// Whether the cell has queued the job again.
    pub(in crate::ledger) requeue: bool,
    /// Who ended it.
    pub(in crate::ledger) cause: Cause,
}

/// Who caused the end of an attempt. If it was the platform, returned credits that have expired are
/// re-issued. A tenant can drain and disconnect its own nodes and preempt its own jobs; those are
/// not the platform's doing. `is_own` returns whether the preempting job belongs to the same
/// tenant.
fn cause_of(
    outcome: AttemptOutcome,
    nodes: &[ProposedNode],
    is_own: impl FnOnce(JobId) -> bool,
) -> Cause {
    let platform = match outcome {
        AttemptOutcome::Succeeded | AttemptOutcome::Failed => false,
        AttemptOutcome::Lost => on_platform(nodes),
        AttemptOutcome::Stopped(reason) => match reason {
            StopReason::Preempted { by, .. } => on_platform(nodes) && !is_own(by),
            StopReason::Drained => on_platform(nodes),
            StopReason::Operator { by_platform } => by_platform,
            StopReason::Cancelled | StopReason::MaxRuntime | StopReason::OutOfCredits => false,
        },
    };
    if platform { Cause::Platform } else { Cause::Holder }
}

/// Whether no node of an attempt belongs to a tenant.
fn on_platform(nodes: &[ProposedNode]) -> bool {
    nodes.iter().all(|node| is_platforms(&node.node))
}

/// The totals of a closed hold.
#[derive(Copy, Clone, Debug, Default)]
struct Closed {
    gpu_ms: u64,
    charged: u64,
    uncollected: u64,
    returned: u64,
}

impl Ledger {
    /// Who caused the end of the live attempt of a job, as reported by a cell.
    pub(in crate::ledger) fn cause_of_end(
        &self,
        cell: CellNo,
        job: JobNo,
        outcome: AttemptOutcome,
    ) -> Cause {
        let job = self.live_job(job);
        let nodes = job.live_attempt().map_or([].as_slice(), |live| live.nodes.as_slice());
        // A tenant belongs to one shard, so a job of another shard belongs to another tenant.
        let is_own = |by: JobId| {
            let here = by.shard() == self.cells[cell.index()].shard;
            let taker = self.jobs.all.get(&JobNo::of_cell(by)).filter(|_| here);
            taker.is_some_and(|taker| {
                self.account(taker.order.account).tenant == self.account(job.order.account).tenant
            })
        };
        cause_of(outcome, nodes, is_own)
    }

    /// Pushes the end of an attempt: its hold is settled, and the job is requeued or ends with it.
    pub(in crate::ledger) fn push_attempt_end(
        &self,
        now: Timestamp,
        number: JobNo,
        ending: Ending,
        events: &mut Vec<Event>,
    ) {
        let job = self.live_job(number);
        let mut overlay = Overlay::default();
        let closed = match job.hold {
            Some(hold) => self.push_settled(now, hold, &ending, &mut overlay, events),
            None => Closed::default(),
        };
        let Closed { gpu_ms, charged, uncollected, returned } = closed;
        let Ending { reason, exit_code, .. } = ending;
        let end = AttemptEnd { at: now, reason, exit_code, gpu_ms, charged, uncollected, returned };
        events.push(Event::AttemptEnded { job: number, end });
        let lost = job
            .attempts
            .iter()
            .filter(|attempt| attempt.end.is_some_and(|end| end.reason == EndReason::Lost));
        let lost = lost.count() + usize::from(reason == EndReason::Lost);
        let too_often = reason == EndReason::Lost && lost > job.order.terms.max_requeues as usize;
        if ending.requeue && !job.cancel_asked && !too_often {
            self.push_requeue(now, number, job, &overlay, events);
            return;
        }
        let state = match (job.cancel_asked, ending.requeue, too_often) {
            (true, true, _) => JobState::Cancelled,
            (_, _, true) => JobState::Lost,
            (true, false, false) | (false, _, false) => reason.job_state(),
        };
        if ending.requeue {
            // The cell has requeued it.
            self.push_withdrawals(number, job, None, events);
        }
        events.push(Event::JobEnded { job: number, state });
    }

    /// Pushes the final capture and the end of a hold. Records the returned units in the overlay.
    fn push_settled(
        &self,
        now: Timestamp,
        number: HoldNo,
        ending: &Ending,
        overlay: &mut Overlay,
        events: &mut Vec<Event>,
    ) -> Closed {
        let hold = self.live_hold(number);
        let seen = hold.details.as_ref().map_or(0, |details| details.gpu_ms);
        let usage = match ending.usage {
            Usage::GpuMs(gpu_ms) => Usage::GpuMs(gpu_ms.max(seen)),
            Usage::Total(total) => Usage::Total(total),
        };
        let metered = self.meter(hold, usage, Rounding::HalfEven);
        let projected = match metered {
            Ok(metered) if hold.grows_by(metered) => {
                self.push_capture(now, number, hold, metered, None, overlay, events)
            }
            Ok(_) | Err(_) => Projected::of(number, hold),
        };
        let gpu_ms = metered.map_or(seen, |metered| metered.gpu_ms.max(seen));
        let captured = projected.reply.captured.length();
        let uncollected = projected.reply.uncollected.length();
        let back: Pieces = projected.rest();
        let returned = total(&back);
        self.note_return(now, hold, &back, gpu_ms, overlay);
        if !seeded(Bug::KeepsHoldOfEndedAttempt) {
            self.push_close(now, projected, HoldState::Settled, ending.cause, events);
        }
        Closed { gpu_ms, charged: captured + uncollected, uncollected, returned }
    }

    /// Records the returned units that become free, and the amounts to subtract from budgets.
    fn note_return(
        &self,
        now: Timestamp,
        hold: &Hold,
        back: &[Piece],
        gpu_ms: u64,
        overlay: &mut Overlay,
    ) {
        let gone = self.sort_returned(now, back);
        if gone.is_empty() {
            overlay.returned.extend(back.iter().copied());
        }
        overlay.expired = !gone.is_empty();
        for piece in back {
            let of_it = hold
                .slices
                .iter()
                .find(|slice| slice.bucket == piece.bucket && slice.span.end == piece.span.end);
            let drawn_at = of_it.map_or(now, |slice| hold.drawn_at(slice));
            overlay.relief.push((drawn_at, i128::from(piece.span.len()), 0));
        }
        for (drawn_at, unused) in hold.unused_gpu_time_at(gpu_ms) {
            overlay.relief.push((drawn_at, 0, unused));
        }
    }

    /// Pushes the next hold of a requeued job, or leaves it waiting without one.
    fn push_requeue(
        &self,
        now: Timestamp,
        number: JobNo,
        job: &Job,
        overlay: &Overlay,
        events: &mut Vec<Event>,
    ) {
        if job.order.need().is_zero() {
            self.push_admissions(number, job, events);
            return;
        }
        let path = self.path(job.order.account);
        let context = job.order.context();
        let request = DrawRequest::new(&path, &context);
        let (need, gpu_ms) = (job.order.need(), job.next_gpu_ms());
        let gpu = gpu_time(gpu_ms, job.order.terms.rate(Credits::ZERO).share_milli);
        let credits = i128::from(need.micros());
        let blocked = overlay.expired
            || self.require_thawed(&path).is_err()
            || !self.blocking_after(now, &path, credits, gpu, &overlay.relief).is_empty();
        let pieces = if blocked { None } else { self.draw_after(overlay, request, need.length()) };
        let Some(pieces) = pieces else {
            // All blocked jobs of the tenant are reviewed at once, the earlier ones first, because
            // the returned credits may be theirs. The review also sees re-issued credits.
            let tenant = self.account(job.order.account).tenant;
            let retry_at = self.jobs.reviews.get(&tenant).map(|review| review.at);
            let anew = Review { at: now, from: JobNo(0), retry_at };
            let next = Some(self.review_under_way(now, tenant).unwrap_or(anew));
            events.push(Event::BlockedJobsRechecked { tenant, next });
            return;
        };
        let hold = HoldNo(self.holds.next());
        let id = self.next_hold_name(job);
        events.push(hold_for(&job.order, number, hold, id, pieces, gpu_ms));
        self.thresholds_after(now, &path, credits, gpu, &overlay.relief, events);
        self.push_admissions(number, job, events);
    }

    /// Draws the next hold of a job that has none.
    pub(in crate::ledger) fn draw_next_hold(
        &self,
        now: Timestamp,
        job: &Job,
    ) -> Result<Pieces, Refusal> {
        let path = self.path(job.order.account);
        self.require_thawed(&path)?;
        self.draw_thawed(now, &path, job)
    }

    /// Like [`Ledger::draw_next_hold`], ignoring frozen accounts.
    pub(in crate::ledger) fn draw_thawed(
        &self,
        now: Timestamp,
        path: &Path,
        job: &Job,
    ) -> Result<Pieces, Refusal> {
        let context = job.order.context();
        let gpu = gpu_time(job.next_gpu_ms(), job.order.terms.rate(Credits::ZERO).share_milli);
        self.draw_within_budgets(now, DrawRequest::new(path, &context), job.order.need(), gpu)
    }

    /// The name of a job's next hold: `<first>.2`, `<first>.3`, and so on.
    pub(in crate::ledger) fn next_hold_name(&self, job: &Job) -> HoldId {
        let first = job.order.hold.as_str();
        let mut name = match job.holds {
            0 => compact_str::CompactString::from(first),
            placed => compact_str::format_compact!("{first}.{}", placed + 1),
        };
        let tenant = self.account(job.order.account).tenant;
        // A client may have used the plain name already.
        while self.find_hold(tenant, HoldKind::Hold, &name).is_some() {
            name.push('x');
        }
        HoldId::unchecked(name)
    }

    /// The job with this name.
    pub(in crate::ledger) fn existing_job(
        &self,
        tenant: &AccountPath,
        id: &JobName,
    ) -> Result<JobNo, Refusal> {
        self.find_account(tenant)
            .and_then(|tenant| self.find_job(tenant, id))
            .ok_or_else(|| Refusal::NotFound { what: Resource::Job, name: id.clone().into() })
    }

    /// Pushes the end of a job without a live attempt: its hold is released, and the cells forget
    /// it.
    pub(in crate::ledger) fn push_over(
        &self,
        now: Timestamp,
        number: JobNo,
        job: &Job,
        state: JobState,
        events: &mut Vec<Event>,
    ) {
        if let Some(hold) = job.hold {
            let projected = Projected::of(hold, self.live_hold(hold));
            self.push_close(now, projected, HoldState::Released, Cause::Holder, events);
        }
        self.push_withdrawals(number, job, None, events);
        events.push(Event::JobEnded { job: number, state });
    }

    /// Pushes the end of a running job whose hold has lapsed. Its region has not reported for the
    /// whole lease. It may still run there, so it is not started elsewhere.
    pub(in crate::ledger) fn push_job_lapsed(
        &self,
        now: Timestamp,
        number: JobNo,
        hold: &Hold,
        returned: u64,
        events: &mut Vec<Event>,
    ) {
        let job = self.live_job(number);
        let gpu_ms = hold.details.as_ref().map_or(0, |details| details.gpu_ms);
        let end = AttemptEnd {
            at: now,
            reason: EndReason::Lost,
            exit_code: None,
            gpu_ms,
            charged: hold.metered,
            uncollected: hold.uncollected(),
            returned,
        };
        if let Some(live) = job.live_attempt() {
            events.push(Event::AttemptEnded { job: number, end });
            if let Some(cell) = live.cell {
                let id = number.in_cell(self.cells[cell.index()].shard);
                self.send(cell, ToCell::CancelRequested { job: id }, events);
            }
        }
        events.push(Event::JobEnded { job: number, state: JobState::Lost });
    }

    /// Pushes the effects of the end of a job in a cell that the ledger has not ended.
    ///
    /// The end of a job that ends with its attempt was reported with the attempt, and a cell
    /// withdraws jobs only on order. What remains is a cell whose quota has no room for another
    /// waiting job, or that takes no new demand of its tenant.
    pub(in crate::ledger) fn push_left_cell(
        &self,
        now: Timestamp,
        cell: CellNo,
        number: JobNo,
        outcome: JobOutcome,
        events: &mut Vec<Event>,
    ) {
        let refused = match outcome {
            JobOutcome::WaitingQuota | JobOutcome::TooManyDemands => true,
            JobOutcome::Succeeded
            | JobOutcome::Failed
            | JobOutcome::Cancelled
            | JobOutcome::Lost
            | JobOutcome::OutOfCredits
            | JobOutcome::TimedOut
            | JobOutcome::Withdrawn => false,
        };
        let Some(job) = self.jobs.all.get(&number).filter(|_| refused) else { return };
        let stands = job.standings.iter().any(|standing| standing.cell == cell);
        if job.state != JobState::Queued || !stands {
            return;
        }
        if job.standings.len() == 1 {
            self.push_over(now, number, job, JobState::Cancelled, events);
        } else {
            let id = number.in_cell(self.cells[cell.index()].shard);
            self.send(cell, ToCell::JobWithdrawn { job: id }, events);
        }
    }

    pub(in crate::ledger) fn apply_job_ended(
        &mut self,
        at: Timestamp,
        number: JobNo,
        event: &Event,
    ) {
        self.change_job(number, |job| job.apply(at, event));
        let account = self.live_job(number).order.account;
        let tenant = self.account(account).tenant;
        if self.jobs.reviews.contains_key(&tenant) && !self.has_held_up(tenant) {
            self.set_review(tenant, None);
        }
        self.aging.jobs.push_back((at, number));
        self.remember(|| crate::ledger::undo::Undo::JobAged);
    }

    /// Records that the hold of a job was closed.
    pub(in crate::ledger) fn apply_job_released(&mut self, job: JobNo) {
        self.change_job(job, |job| job.hold = None);
    }
}

impl Job {
    /// The GPU time that its next hold covers.
    pub(in crate::ledger) fn next_gpu_ms(&self) -> u64 {
        let terms = &self.order.terms;
        terms.funded_gpu_ms(terms.first_window())
    }
}

mod cancel;
#[cfg(test)]
mod tests;
