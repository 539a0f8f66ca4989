//! Jobs that wait here, not in a cell: for credits, for a thaw, or for other jobs; and running ones
//! that are paid for less than a window. Looked at again as a step of its own whenever something
//! changed that they wait for.

use std::collections::BTreeSet;

use super::table::Review;
use super::{Job, JobState};
use crate::credits::Credits;
use crate::ledger::event::Event;
use crate::ledger::hold::gpu_time;
use crate::ledger::id::{AccountNo, CellNo, HoldNo, JobNo};
use crate::ledger::job::submit::hold_for;
use crate::ledger::refusal::{Blocker, Refusal};
use crate::ledger::state::Ledger;
use crate::ledger::timer::earlier;
use crate::time::Timestamp;

/// How many held-up jobs one step looks at.
const STEP: usize = 256;

impl Ledger {
    /// Pushes what is due for jobs at `now`: a dependant whose turn has come, a review, a warning.
    pub(in crate::ledger) fn push_due_job(&self, now: Timestamp, events: &mut Vec<Event>) {
        if let Some(number) = self.first_dependant() {
            return self.push_dependant(now, number, events);
        }
        if let Some((_, tenant)) = self.first_review().filter(|(at, _)| *at <= now) {
            return self.push_review(now, tenant, events);
        }
        if let Some((_, number)) = self.first_warning().filter(|(at, _)| *at <= now) {
            self.push_warning(now, number, events);
        }
    }

    /// A job that another one had to come before has ended: its dependant goes on, or not at all.
    fn push_dependant(&self, now: Timestamp, number: JobNo, events: &mut Vec<Event>) {
        let job = self.live_job(number);
        let state = |awaited: &JobNo| self.jobs.all.get(awaited).map(|job| job.state);
        let failed = job.after.iter().any(|awaited| {
            state(awaited).is_none_or(|state| state.is_ended() && state != JobState::Succeeded)
        });
        if failed {
            return self.push_over(now, number, job, JobState::Cancelled, events);
        }
        let succeeded = |awaited: &&JobNo| state(awaited) == Some(JobState::Succeeded);
        let met: Vec<JobNo> = job.after.iter().filter(succeeded).copied().collect();
        let all = met.len() == job.after.len();
        events.push(Event::DependenciesMet { job: number, met });
        if all && !job.is_unfunded() {
            self.push_admissions(number, job, events);
        }
    }

    /// Looks at the held-up jobs of a tenant, until one can go on.
    fn push_review(&self, now: Timestamp, tenant: AccountNo, events: &mut Vec<Event>) {
        let review = self.jobs.reviews.get(&tenant).copied();
        let from = review.map_or(JobNo(0), |review| review.from);
        let mut retry_at = review.and_then(|review| review.retry_at);
        let rest = (tenant, from)..=(tenant, JobNo(u64::MAX));
        let mut last = None;
        for (_, number) in self.jobs.index.held_up.range(rest).take(STEP) {
            last = Some(*number);
            match self.push_resumed(now, *number, events) {
                Ok(()) => break,
                Err(again) => {
                    last = None;
                    retry_at = earlier(retry_at, again);
                }
            }
        }
        let next = match last {
            Some(last) => Some(Review { at: now, from: JobNo(last.0 + 1), retry_at }),
            None => self.after_review(now, (tenant, from), retry_at),
        };
        events.push(Event::HeldUpReviewed { tenant, next });
    }

    /// What follows a step of a review in which no job could go on.
    fn after_review(
        &self,
        now: Timestamp,
        (tenant, from): (AccountNo, JobNo),
        retry_at: Option<Timestamp>,
    ) -> Option<Review> {
        let rest = (tenant, from)..=(tenant, JobNo(u64::MAX));
        let unseen = self.jobs.index.held_up.range(rest).nth(STEP);
        match unseen {
            Some((_, unseen)) => Some(Review { at: now, from: *unseen, retry_at }),
            None => retry_at.map(|at| Review { at, from: JobNo(0), retry_at: None }),
        }
    }

    /// Lets a held-up job go on, or says when it is worth another look.
    fn push_resumed(
        &self,
        now: Timestamp,
        number: JobNo,
        events: &mut Vec<Event>,
    ) -> Result<(), Option<Timestamp>> {
        let job = self.live_job(number);
        if job.is_short() {
            return self.push_refill(now, number, events);
        }
        if job.is_unfunded() {
            let pieces =
                self.draw_next_hold(now, job).map_err(|refusal| next_period(now, &refusal))?;
            let hold = HoldNo(self.holds.next());
            let (id, gpu_ms) = (self.next_hold_name(job), job.next_gpu_ms());
            events.push(hold_for(&job.order, number, hold, id, pieces, gpu_ms));
            let path = self.path(job.order.account);
            let share = job.order.terms.rate(Credits::ZERO).share_milli;
            let need = i128::from(job.order.need().micros());
            self.push_thresholds(now, &path, need, gpu_time(gpu_ms, share), events);
        } else if self.require_thawed(&self.path(job.order.account)).is_err() {
            return Err(None);
        }
        if job.after.is_empty() {
            self.push_admissions(number, job, events);
        }
        Ok(())
    }

    /// Jobs that may run in a cell and that it has not been told of: they wait for credits or for
    /// other jobs. In the order of their submission.
    pub fn held_back_from(&self, cell: CellNo) -> Vec<JobNo> {
        let dependants = self.jobs.index.dependants.iter().map(|(_, waits)| *waits);
        let held_up = self.jobs.index.held_up.iter().map(|(_, waits)| *waits);
        let waits: BTreeSet<JobNo> = dependants.chain(held_up).collect();
        let mut waits: Vec<JobNo> = waits.into_iter().collect();
        waits.retain(|number| {
            let job = self.live_job(*number);
            let told = job.standings.iter().any(|standing| standing.cell == cell);
            job.state == JobState::Queued && !told && self.cells_of(&job.order).contains(&cell)
        });
        waits
    }

    /// All that a waiting job waits for here. What it waits for in its cells, those know.
    pub fn job_blockers(&self, job: &Job) -> Vec<Blocker> {
        if job.state != JobState::Queued {
            return Vec::new();
        }
        let mut blockers = self.funds_blockers(self.now, job);
        for awaited in &job.after {
            if let Some(awaited) = self.jobs.all.get(awaited) {
                let (job, state) = (awaited.order.id.clone(), awaited.state);
                blockers.push(Blocker::Dependency { job, state });
            }
        }
        blockers
    }
}

/// When a budget that blocks starts anew.
pub(in crate::ledger) fn next_period(now: Timestamp, refusal: &Refusal) -> Option<Timestamp> {
    let ends = refusal.blockers().iter().filter_map(|blocker| match blocker {
        Blocker::Budget { period_end, .. } => *period_end,
        Blocker::Frozen { .. }
        | Blocker::Credits { .. }
        | Blocker::WaitingJobs { .. }
        | Blocker::Dependency { .. } => None,
    });
    ends.filter(|end| *end > now).min()
}
