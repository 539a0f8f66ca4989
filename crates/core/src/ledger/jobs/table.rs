//! The table of jobs and its indexes. Every change of a job goes through [`Ledger::change_job`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smallvec::SmallVec;

use super::{Job, JobOrder, JobState, Standing};
use crate::cell::command::Verdict;
use crate::ledger::id::{AccountNo, CellNo, JobNo};
use crate::ledger::index::aside::LedgerAside;
use crate::ledger::index::timers::earlier;
use crate::ledger::state::Ledger;
use crate::ledger::undo::Undo;
use crate::machine::DuePart;
use crate::message::ToCell;
use crate::name::{JobName, Region};
use crate::time::Timestamp;

/// The next review of a tenant's blocked jobs.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Review {
    /// When it is due.
    pub at: Timestamp,
    /// The first job to review; earlier jobs were reviewed already.
    pub from: JobNo,
    /// When to start again from the first job, such as at the next period of a budget.
    pub retry_at: Option<Timestamp>,
}

/// All jobs that are not forgotten.
#[derive(Clone, Debug, Default)]
pub struct Jobs {
    /// The number that the next job gets.
    pub(in crate::ledger) next: u64,
    pub(in crate::ledger) all: BTreeMap<JobNo, Job>,
    /// The next reviews of blocked jobs, by tenant.
    pub(in crate::ledger) reviews: BTreeMap<AccountNo, Review>,
    pub(in crate::ledger) index: JobIndex,
}

/// Indexes derived from the jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct JobIndex {
    pub(in crate::ledger) names: BTreeMap<(AccountNo, JobName), JobNo>,
    pub(in crate::ledger) by_tenant: BTreeSet<(AccountNo, JobNo)>,
    /// The number of queued jobs of a subtree that may run in a cell.
    pub(in crate::ledger) waiting: BTreeMap<(AccountNo, CellNo), u32>,
    /// Blocked jobs by tenant: without a hold, waiting for admission to a cell, or short.
    pub(in crate::ledger) held_up: BTreeSet<(AccountNo, JobNo)>,
    /// Running jobs whose last window was not filled, by tenant.
    pub(in crate::ledger) short: BTreeSet<(AccountNo, JobNo)>,
    /// Jobs with unmet dependencies, by tenant.
    pub(in crate::ledger) awaiting: BTreeSet<(AccountNo, JobNo)>,
    /// Dependencies as pairs of the awaited and the waiting job.
    pub(in crate::ledger) dependants: BTreeSet<(JobNo, JobNo)>,
    /// Jobs with a dependency that has ended.
    pub(in crate::ledger) due: BTreeSet<JobNo>,
    pub(in crate::ledger) review_times: BTreeSet<(Timestamp, AccountNo)>,
    /// Jobs whose live attempt has an overdraft, by tenant.
    pub(in crate::ledger) owing: BTreeSet<(AccountNo, JobNo)>,
    /// The due times of warnings before the paid running time ends.
    pub(in crate::ledger) warnings: BTreeSet<(Timestamp, JobNo)>,
}

impl Jobs {
    /// The deadline of the earliest timer. Only warnings may not be postponed.
    pub(in crate::ledger) fn deadline(&self, now: Timestamp, part: DuePart) -> Option<Timestamp> {
        let warning = self.index.warnings.first().map(|(at, _)| *at);
        match part {
            DuePart::Pressing => warning,
            DuePart::First if !self.index.due.is_empty() => Some(now),
            DuePart::First => earlier(self.index.review_times.first().map(|(at, _)| *at), warning),
        }
    }
}

impl Ledger {
    /// A job that an event names. It exists by construction.
    pub(in crate::ledger) fn live_job(&self, job: JobNo) -> &Job {
        self.jobs.all.get(&job).expect("events name only existing jobs")
    }

    /// The cells that a job may run in; none for one that runs outside.
    pub(in crate::ledger) fn cells_of(&self, order: &JobOrder) -> SmallVec<[CellNo; 4]> {
        if order.terms.external {
            return SmallVec::new();
        }
        let allowed = |region: &Region| order.offers.iter().any(|offer| offer.region == *region);
        let cells = (0..).map(CellNo).zip(&self.cells);
        cells.filter(|(_, book)| allowed(&book.region)).map(|(cell, _)| cell).collect()
    }

    pub(in crate::ledger) fn apply_job_submitted(
        &mut self,
        at: Timestamp,
        number: JobNo,
        order: &Arc<JobOrder>,
        after: &[JobNo],
    ) {
        assert_eq!(number.0, self.jobs.next, "jobs are numbered in order");
        let job = Job::submitted(at, order, after);
        self.jobs.next += 1;
        self.add_job(number, job);
        self.remember(|| Undo::JobSubmitted(number));
    }

    /// Adds a job under its number and name.
    pub(in crate::ledger) fn add_job(&mut self, number: JobNo, job: Job) {
        let tenant = self.account(job.order.account).tenant;
        self.jobs.index.names.insert((tenant, job.order.id.clone()), number);
        self.jobs.index.by_tenant.insert((tenant, number));
        self.jobs.all.insert(number, job);
        self.note_job(number);
        self.refresh_dependants(number);
    }

    /// Removes a job from the table and all indexes.
    pub(in crate::ledger) fn remove_job(&mut self, number: JobNo) {
        self.unnote_job(number);
        let Some(job) = self.jobs.all.remove(&number) else { return };
        let tenant = self.account(job.order.account).tenant;
        self.jobs.index.names.remove(&(tenant, job.order.id.clone()));
        self.jobs.index.by_tenant.remove(&(tenant, number));
        self.refresh_due(number);
        self.refresh_dependants(number);
    }

    /// Changes a job and everything that is derived from it.
    pub(in crate::ledger) fn change_job(&mut self, number: JobNo, change: impl FnOnce(&mut Job)) {
        if self.undo.is_some() {
            let before = Box::new(self.live_job(number).clone());
            self.remember(|| Undo::Job(number, before));
        }
        self.unnote_job(number);
        let job = self.jobs.all.get_mut(&number);
        let job = job.expect("events name only existing jobs");
        let had_ended = job.state.is_ended();
        change(job);
        let has_ended = job.state.is_ended();
        self.note_job(number);
        if has_ended != had_ended {
            self.refresh_dependants(number);
        }
    }

    /// Restores the previous state of a job.
    pub(in crate::ledger) fn restore_job(&mut self, number: JobNo, before: Job) {
        self.unnote_job(number);
        let has_ended = before.state.is_ended();
        let changed = self.jobs.all.insert(number, before);
        self.note_job(number);
        if changed.is_none_or(|changed| changed.state.is_ended() != has_ended) {
            self.refresh_dependants(number);
        }
    }

    /// Adds a job to the indexes that depend on its state.
    fn note_job(&mut self, number: JobNo) {
        self.index_job(number, true);
        self.refresh_due(number);
    }

    /// Removes what [`Ledger::note_job`] added.
    fn unnote_job(&mut self, number: JobNo) {
        self.index_job(number, false);
    }

    fn index_job(&mut self, number: JobNo, enter: bool) {
        let job = self.live_job(number);
        let account = job.order.account;
        let tenant = self.account(account).tenant;
        if job.state == JobState::Queued {
            let (path, cells) = (self.path(account), self.cells_of(&job.order));
            for cell in cells {
                for account in &path {
                    count(&mut self.jobs.index.waiting, (*account, cell), enter);
                }
            }
        }
        let job = self.live_job(number);
        let (held_up, ended) = (job.is_held_up(), job.state.is_ended());
        let owing = job.live_attempt().is_some_and(|live| live.overdraft > 0);
        let (short, awaiting) = (job.is_short(), !ended && !job.after.is_empty());
        let warning = job.next_warning().map(|(at, _)| (at, number));
        let after = job.after.clone();
        let index = &mut self.jobs.index;
        for (tenants, is_one) in
            [(&mut index.owing, owing), (&mut index.short, short), (&mut index.awaiting, awaiting)]
        {
            if is_one && enter {
                tenants.insert((tenant, number));
            } else if is_one {
                tenants.remove(&(tenant, number));
            }
        }
        if let Some(warning) = warning {
            if enter {
                index.warnings.insert(warning);
            } else {
                index.warnings.remove(&warning);
            }
        }
        if held_up && enter {
            index.held_up.insert((tenant, number));
        } else {
            index.held_up.remove(&(tenant, number));
        }
        for awaited in after {
            if enter && !ended {
                index.dependants.insert((awaited, number));
            } else {
                index.dependants.remove(&(awaited, number));
            }
        }
    }

    /// Updates the jobs that wait for this one, after it ended or was removed. There may be any
    /// number of them, so they are not updated on other changes.
    fn refresh_dependants(&mut self, number: JobNo) {
        let waiting = (number, JobNo(0))..=(number, JobNo(u64::MAX));
        let dependants: SmallVec<[JobNo; 2]> =
            self.jobs.index.dependants.range(waiting).map(|(_, waits)| *waits).collect();
        for dependant in dependants {
            self.refresh_due(dependant);
        }
    }

    /// Updates whether a job has a dependency that has ended.
    fn refresh_due(&mut self, number: JobNo) {
        let jobs = &self.jobs.all;
        let due = jobs.get(&number).is_some_and(|job| {
            let over = |awaited: &JobNo| jobs.get(awaited).is_none_or(|job| job.state.is_ended());
            !job.state.is_ended() && job.after.iter().any(over)
        });
        if due {
            self.jobs.index.due.insert(number);
        } else {
            self.jobs.index.due.remove(&number);
        }
    }

    /// Sets the next review of a tenant's blocked jobs.
    pub(in crate::ledger) fn set_review(&mut self, tenant: AccountNo, next: Option<Review>) {
        let before = match next {
            Some(review) => self.jobs.reviews.insert(tenant, review),
            None => self.jobs.reviews.remove(&tenant),
        };
        if let Some(before) = before {
            self.jobs.index.review_times.remove(&(before.at, tenant));
        }
        if let Some(review) = next {
            self.jobs.index.review_times.insert((review.at, tenant));
        }
        self.remember(|| Undo::Review(tenant, before));
    }

    /// Whether a tenant has blocked jobs.
    pub(in crate::ledger) fn has_held_up(&self, tenant: AccountNo) -> bool {
        let all = (tenant, JobNo(0))..=(tenant, JobNo(u64::MAX));
        self.jobs.index.held_up.range(all).next().is_some()
    }

    /// Schedules a review of the tenant's blocked jobs after credits, budgets or a freeze of an
    /// account changed.
    pub(in crate::ledger) fn wake_blocked_jobs(&mut self, at: Timestamp, account: AccountNo) {
        let tenant = self.account(account).tenant;
        if self.has_held_up(tenant) {
            let review = self.review_under_way(at, tenant);
            let next = review.unwrap_or(Review { at, from: JobNo(0), retry_at: None });
            self.set_review(tenant, Some(next));
        }
    }

    /// The review in progress of a tenant's blocked jobs, with a retry from the first job scheduled
    /// for its end. A review does not restart on a change: frequent changes would keep it from
    /// reaching the last jobs.
    pub(in crate::ledger) fn review_under_way(
        &self,
        now: Timestamp,
        tenant: AccountNo,
    ) -> Option<Review> {
        let review = self.jobs.reviews.get(&tenant)?;
        // A review that was set aside is not continued; the next one begins at the first job.
        let aside = self.is_aside(LedgerAside::Review { tenant, at: review.at });
        let under_way = !aside && review.at <= now && review.from > JobNo(0);
        under_way.then(|| Review { retry_at: earlier(review.retry_at, Some(now)), ..*review })
    }

    /// Updates the admission of a job to a cell from a message to that cell.
    pub(in crate::ledger) fn apply_message_about_job(&mut self, cell: CellNo, message: &ToCell) {
        match message {
            ToCell::JobAdmitted(spec) => {
                let standing = Standing { cell, after: spec.attempts_before, waits: false };
                self.change_job(JobNo::of_cell(spec.job), |job| {
                    // The cell may propose the next attempt at any time, even if a withdrawal was
                    // sent a moment ago.
                    job.highest = job.highest.max(spec.attempts_before);
                    job.standings.retain(|standing| standing.cell != cell);
                    job.standings.push(standing);
                });
            }
            ToCell::JobWithdrawn { job } | ToCell::CancelRequested { job } => {
                self.change_known_job(JobNo::of_cell(*job), |job| {
                    job.standings.retain(|standing| standing.cell != cell);
                });
            }
            ToCell::PlacementRefused { attempt, verdict } => {
                self.change_known_job(JobNo::of_cell(attempt.job), |job| {
                    job.highest = job.highest.max(attempt.number);
                    let of_it = |standing: &Standing| {
                        standing.cell == cell && attempt.number > standing.after
                    };
                    match verdict {
                        Verdict::Withdraw => job.standings.retain(|standing| !of_it(standing)),
                        Verdict::Wait(_) => {
                            let standings = job.standings.iter_mut();
                            standings.filter(|s| of_it(s)).for_each(|s| s.waits = true);
                        }
                    }
                });
            }
            ToCell::AccountPolicyChanged(_)
            | ToCell::PlacementConfirmed { .. }
            | ToCell::FundingChanged { .. }
            | ToCell::FundsRefused { .. } => {}
        }
    }

    /// Changes a job named in a message to a cell, unless it is forgotten.
    fn change_known_job(&mut self, number: JobNo, change: impl FnOnce(&mut Job)) {
        if self.jobs.all.contains_key(&number) {
            self.change_job(number, change);
        }
    }
}

/// Increments or decrements a count. Zero counts are removed.
fn count(counts: &mut BTreeMap<(AccountNo, CellNo), u32>, key: (AccountNo, CellNo), up: bool) {
    let counted = counts.entry(key).or_default();
    *counted = if up { *counted + 1 } else { counted.saturating_sub(1) };
    if *counted == 0 {
        counts.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::command::{AccountKind, AccountSettings, Command, Envelope};
    use crate::machine::execute;

    #[test]
    fn a_review_that_was_set_aside_restarts_with_the_next_change() {
        let mut ledger = Ledger::new();
        let (path, kind) = ("acme".into(), AccountKind::Org);
        let open = Command::OpenAccount { path, kind, settings: AccountSettings::default() };
        let at = Timestamp::from_millis(1_577_836_800_000);
        execute(&mut ledger, at, &Envelope::default(), &open, &mut Vec::new()).expect("accepted");
        let tenant = ledger.find_account("acme").expect("the account exists");
        ledger.jobs.index.held_up.insert((tenant, JobNo(9)));
        let half = Review { at, from: JobNo(5), retry_at: None };
        ledger.set_review(tenant, Some(half));
        let later = at.plus_millis(1);
        ledger.wake_blocked_jobs(later, tenant);
        let goes_on = Review { retry_at: Some(later), ..half };
        assert_eq!(ledger.jobs.reviews.get(&tenant), Some(&goes_on));
        ledger.aside.insert(LedgerAside::Review { tenant, at });
        ledger.wake_blocked_jobs(later, tenant);
        let anew = Review { at: later, from: JobNo(0), retry_at: None };
        assert_eq!(ledger.jobs.reviews.get(&tenant), Some(&anew));
    }
}
