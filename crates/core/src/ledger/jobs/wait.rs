//! Jobs that wait in the ledger and not in a cell: for credits, for an account to be unfrozen, or
//! for other jobs. Also running jobs whose last window was not filled. They are reviewed in
//! separate steps whenever something they wait for has changed.

use super::table::Review;
use super::{Job, JobState};
use crate::credits::Credits;
use crate::ledger::credits::spend_order::draw::DrawRequest;
use crate::ledger::event::Event;
use crate::ledger::holds::hold::gpu_time;
use crate::ledger::id::{AccountNo, CellNo, HoldNo, JobNo};
use crate::ledger::index::timers::earlier;
use crate::ledger::jobs::submit::hold_for;
use crate::ledger::refusal::Blocker;
use crate::ledger::state::Ledger;
use crate::machine::DuePart;
use crate::time::Timestamp;

/// The most blocked jobs that one step reviews. Commands are decided between the steps of a review.
pub const REVIEW_STEP: usize = 64;

impl Ledger {
    /// Pushes the first due timer of jobs: a met dependency, a review or a warning.
    pub(in crate::ledger) fn push_due_job(
        &self,
        now: Timestamp,
        part: DuePart,
        most: usize,
        events: &mut Vec<Event>,
    ) {
        let dependant = self.first_dependant().filter(|_| part == DuePart::First);
        if let Some(number) = dependant {
            return self.push_dependant(now, number, events);
        }
        let review = self.first_review().filter(|(at, _)| part == DuePart::First && *at <= now);
        if let Some((_, tenant)) = review {
            return self.push_review(now, tenant, REVIEW_STEP.min(most), events);
        }
        if let Some((_, number)) = self.first_warning().filter(|(at, _)| *at <= now) {
            self.push_warning(now, number, events);
        }
    }

    /// Pushes the effect of an ended dependency: the job that waited is admitted, waits for the
    /// rest, or is cancelled.
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

    /// Reviews up to `step` blocked jobs of a tenant, until one can continue.
    fn push_review(&self, now: Timestamp, tenant: AccountNo, step: usize, events: &mut Vec<Event>) {
        let review = self.jobs.reviews.get(&tenant).copied();
        let from = review.map_or(JobNo(0), |review| review.from);
        let mut retry_at = review.and_then(|review| review.retry_at);
        let rest = (tenant, from)..=(tenant, JobNo(u64::MAX));
        let mut last = None;
        for (_, number) in self.jobs.index.held_up.range(rest).take(step) {
            #[cfg(test)]
            tests::REVIEWED_JOBS.set(tests::REVIEWED_JOBS.get() + 1);
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
            None => self.after_review(now, (tenant, from), step, retry_at),
        };
        events.push(Event::BlockedJobsRechecked { tenant, next });
    }

    /// The next review after a step in which no job could continue.
    fn after_review(
        &self,
        now: Timestamp,
        (tenant, from): (AccountNo, JobNo),
        step: usize,
        retry_at: Option<Timestamp>,
    ) -> Option<Review> {
        let rest = (tenant, from)..=(tenant, JobNo(u64::MAX));
        let unseen = self.jobs.index.held_up.range(rest).nth(step);
        match unseen {
            Some((_, unseen)) => Some(Review { at: now, from: *unseen, retry_at }),
            None => retry_at.map(|at| Review { at, from: JobNo(0), retry_at: None }),
        }
    }

    /// Lets a blocked job continue, or returns when to retry, if known.
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
            let path = self.path(job.order.account);
            if self.require_thawed(&path).is_err() {
                return Err(None);
            }
            let gpu_ms = job.next_gpu_ms();
            let gpu = gpu_time(gpu_ms, job.order.terms.rate(Credits::ZERO).share_milli);
            let need = i128::from(job.order.need().micros());
            // Budgets are cheap to check, so they are checked before the draw.
            let budgets = self.blocking_budgets(now, &path, need, gpu);
            if !budgets.is_empty() {
                return Err(next_period(now, &budgets));
            }
            let context = job.order.context();
            let request = DrawRequest::new(&path, &context);
            let pieces = self.draw(request, job.order.need().length()).ok_or(None)?;
            let hold = HoldNo(self.holds.next());
            let id = self.next_hold_name(job);
            events.push(hold_for(&job.order, number, hold, id, pieces, gpu_ms));
            self.push_thresholds(now, &path, need, gpu, events);
        } else if self.require_thawed(&self.path(job.order.account)).is_err() {
            return Err(None);
        }
        if job.after.is_empty() {
            self.push_admissions(number, job, events);
        }
        Ok(())
    }

    /// Jobs of one or all tenants that may run in a cell and were not admitted to it, because they
    /// wait for credits or for other jobs. In order of submission. Examines only the first `most`
    /// that wait for credits and the first `most` that wait for other jobs.
    pub fn held_back_from(
        &self,
        cell: CellNo,
        tenant: Option<AccountNo>,
        most: usize,
    ) -> Vec<JobNo> {
        let first = |of: AccountNo| (of, JobNo(0));
        let range = match tenant {
            Some(tenant) => first(tenant)..first(AccountNo(tenant.0 + 1)),
            None => first(AccountNo(0))..first(AccountNo(u32::MAX)),
        };
        let index = &self.jobs.index;
        let mut waits: Vec<JobNo> = Vec::new();
        for of_a_kind in [&index.held_up, &index.awaiting] {
            waits.extend(of_a_kind.range(range.clone()).take(most).map(|(_, waits)| *waits));
        }
        waits.sort_unstable();
        waits.dedup();
        waits.retain(|number| {
            let job = self.live_job(*number);
            let is_sent = job.standings.iter().any(|standing| standing.cell == cell);
            job.state == JobState::Queued && !is_sent && self.cells_of(&job.order).contains(&cell)
        });
        waits
    }

    /// All blockers of a queued job in the ledger; its cells have their own. A job for which there
    /// are credits again is blocked by credits until its review.
    pub fn job_blockers(&self, job: &Job) -> Vec<Blocker> {
        let mut blockers = self.standing_blockers(job);
        let tenant = self.account(job.order.account).tenant;
        let review = self.jobs.reviews.get(&tenant).filter(|review| review.at <= self.now);
        let waits = job.state == JobState::Queued && job.is_unfunded();
        if blockers.is_empty() && waits && review.is_some() {
            let spender = self.account(job.order.account);
            blockers.push(Blocker::Credits {
                account: spender.path.clone(),
                requested: job.order.need(),
                spendable: self.spendable(job.order.account, &job.order.context()),
            });
        }
        blockers
    }

    /// Like [`Ledger::job_blockers`], without the pending review.
    pub(in crate::ledger) fn standing_blockers(&self, job: &Job) -> Vec<Blocker> {
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

/// When the next period of a blocking budget begins.
pub(in crate::ledger) fn next_period(now: Timestamp, blockers: &[Blocker]) -> Option<Timestamp> {
    let ends = blockers.iter().filter_map(|blocker| match blocker {
        Blocker::Budget { period_end, .. } => *period_end,
        Blocker::Frozen { .. }
        | Blocker::Credits { .. }
        | Blocker::WaitingJobs { .. }
        | Blocker::Dependency { .. } => None,
    });
    ends.filter(|end| *end > now).min()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::cell::ids::AttemptId;
    use crate::cell::schedule::shape::GpuDemand;
    use crate::ledger::command::{
        AccountKind, AccountSettings, Cause, Command, Envelope, IssueGrant, PlaceHold, SubmitJob,
    };
    use crate::ledger::invariant;
    use crate::ledger::jobs::{JobTerms, Offer};
    use crate::machine::{Machine, advance, advance_some, execute};
    use crate::message::{ProposedNode, ToLedger};

    thread_local! {
        /// The number of blocked jobs that reviews have examined.
        pub(in crate::ledger) static REVIEWED_JOBS: Cell<usize> = const { Cell::new(0) };
    }

    fn now() -> Timestamp {
        Timestamp::from_millis(1_577_836_800_000)
    }

    fn credits(micros: i64) -> Credits {
        Credits::from_micros(micros).expect("a small amount")
    }

    /// Executes a command; timers that may be postponed stay due.
    fn run(ledger: &mut Ledger, command: &Command) -> Vec<Event> {
        advance_some(ledger, Timestamp::MIN, now(), 0, |_, _| {});
        let mut events = Vec::new();
        let answer = execute(ledger, now(), &Envelope::default(), command, &mut events);
        answer.expect("the command is accepted");
        events
    }

    fn open(ledger: &mut Ledger, path: &str, kind: AccountKind) {
        let settings = AccountSettings::default();
        run(ledger, &Command::OpenAccount { path: path.into(), kind, settings });
    }

    fn grant(ledger: &mut Ledger, account: &str) {
        let grant = IssueGrant::purchase("g", account, credits(1_000_000_000_000));
        run(ledger, &Command::IssueGrant(grant));
    }

    fn place(ledger: &mut Ledger, account: &str, id: &str) {
        let hold = PlaceHold::new(id, account, credits(10));
        run(ledger, &Command::PlaceHold(hold));
    }

    fn release(ledger: &mut Ledger, tenant: &str, hold: &str) {
        let (tenant, hold) = (tenant.into(), hold.into());
        run(ledger, &Command::ReleaseHold { tenant, hold, cause: Cause::Holder });
    }

    fn submit(ledger: &mut Ledger, account: &str, id: &str, array: u32) {
        let terms = JobTerms {
            gpu_types: vec!["H100".into()],
            max_runtime_ms: Some(3_600_000),
            ..JobTerms::new(GpuDemand::Whole(1))
        };
        let (gpu_type, region) = ("H100".into(), "eu".into());
        let submit = SubmitJob {
            scope: None,
            id: id.into(),
            account: account.into(),
            terms,
            offers: vec![Offer { gpu_type, region, per_gpu_hour: credits(100) }],
            payload: "{}".into(),
            submitted: "{}".into(),
            hold: format!("h-{id}").as_str().into(),
            array: Some(array),
            after: Vec::new(),
        };
        run(ledger, &Command::SubmitJob(Box::new(submit)));
    }

    /// A cell proposes all jobs while their accounts are frozen, so they become blocked.
    fn hold_up(ledger: &mut Ledger, accounts: &[&str]) {
        for path in accounts {
            let path = (*path).into();
            run(ledger, &Command::FreezeAccount { path, by_platform: false });
        }
        for job in (0..ledger.jobs.next).map(JobNo) {
            let cell = CellNo(0);
            let number = ledger.cells[cell.index()].mark.number + 1;
            let attempt = AttemptId { job: job.in_cell(0), number: 1 };
            let nodes = [ProposedNode { node: "n".into(), gpus: 1 }].into_iter().collect();
            let gpu_type = Some("H100".into());
            let message = Box::new(ToLedger::PlacementProposed { attempt, gpu_type, nodes });
            run(ledger, &Command::Receive { cell, number, position: number, message });
        }
    }

    /// Two tenants. The first has `jobs` blocked jobs below one account and a last one below
    /// another.
    fn world(jobs: u32) -> Ledger {
        let mut ledger = Ledger::new();
        for tenant in ["acme", "umbra"] {
            open(&mut ledger, tenant, AccountKind::Org);
            grant(&mut ledger, tenant);
        }
        open(&mut ledger, "acme:a", AccountKind::Team);
        open(&mut ledger, "acme:b", AccountKind::Team);
        run(&mut ledger, &Command::OpenRegion { region: "eu".into(), shard: 0 });
        submit(&mut ledger, "acme:a", "a", jobs);
        submit(&mut ledger, "acme:b", "b", 1);
        for number in 0..40 {
            place(&mut ledger, "acme", &format!("h{number}"));
        }
        hold_up(&mut ledger, &["acme:a", "acme:b"]);
        advance(&mut ledger, now(), |_, _| {});
        assert_eq!(ledger.jobs.index.held_up.len(), jobs as usize + 1);
        ledger
    }

    #[test]
    fn one_review_step_is_bounded_and_commands_run_in_between() {
        let mut ledger = world(300);
        REVIEWED_JOBS.set(0);
        release(&mut ledger, "acme", "h0");
        assert_eq!(REVIEWED_JOBS.get(), 0, "the command itself reviews no job");
        place(&mut ledger, "umbra", "theirs");
        assert_eq!(
            REVIEWED_JOBS.get(),
            0,
            "a command of another tenant does not wait for the review"
        );
        let mut steps = 0;
        while ledger.next_deadline().is_some_and(|deadline| deadline <= now()) {
            let before = REVIEWED_JOBS.get();
            place(&mut ledger, "umbra", &format!("between-{steps}"));
            advance_some(&mut ledger, Timestamp::MIN, now(), 1, |_, _| {});
            let looked_at = REVIEWED_JOBS.get() - before;
            assert!(looked_at <= REVIEW_STEP, "{looked_at} jobs in one step");
            steps += 1;
            invariant::check(&ledger).expect("the invariants hold between steps");
        }
        assert_eq!(REVIEWED_JOBS.get(), 301, "each job is reviewed once");
        assert_eq!(steps, 301_usize.div_ceil(REVIEW_STEP));
    }

    #[test]
    fn frequent_changes_do_not_starve_the_last_blocked_job() {
        let mut ledger = world(300);
        let last = JobNo(300);
        let path = "acme:b".into();
        run(&mut ledger, &Command::UnfreezeAccount { path, by_platform: false });
        let mut steps = 0;
        while ledger.live_job(last).is_held_up() {
            steps += 1;
            assert!(steps <= 6, "the review restarts with every change");
            advance_some(&mut ledger, Timestamp::MIN, now(), 1, |_, _| {});
            release(&mut ledger, "acme", &format!("h{steps}"));
            invariant::check(&ledger).expect("the invariants hold between steps");
        }
        REVIEWED_JOBS.set(0);
        advance(&mut ledger, now(), |_, _| {});
        assert!(REVIEWED_JOBS.get() >= 300, "all jobs are reviewed after the last change");
        assert!(REVIEWED_JOBS.get() <= 2 * 301, "at most two reviews of all jobs");
        let again = Ledger::from_image(ledger.image()).expect("its own image");
        assert_eq!(again.digest(), ledger.digest());
    }

    #[test]
    fn a_job_with_a_pending_review_has_a_blocker() {
        let mut ledger = Ledger::new();
        open(&mut ledger, "acme", AccountKind::Org);
        grant(&mut ledger, "acme");
        run(&mut ledger, &Command::OpenRegion { region: "eu".into(), shard: 0 });
        submit(&mut ledger, "acme", "j", 1);
        let (cell, attempt) = (CellNo(0), AttemptId { job: JobNo(0).in_cell(0), number: 1 });
        let nodes = [ProposedNode { node: "n".into(), gpus: 1 }].into_iter().collect();
        let gpu_type = Some("H100".into());
        let message = Box::new(ToLedger::PlacementProposed { attempt, gpu_type, nodes });
        run(&mut ledger, &Command::Receive { cell, number: 1, position: 1, message });
        run(&mut ledger, &Command::FreezeAccount { path: "acme".into(), by_platform: false });
        let message = Box::new(ToLedger::AttemptEnded {
            attempt,
            outcome: crate::cell::event::AttemptOutcome::Stopped(
                crate::cell::event::StopReason::Drained,
            ),
            gpu_ms: 0,
            exit_code: None,
            requeued: Some(now()),
        });
        run(&mut ledger, &Command::Receive { cell, number: 2, position: 2, message });
        advance(&mut ledger, now(), |_, _| {});
        run(&mut ledger, &Command::UnfreezeAccount { path: "acme".into(), by_platform: false });
        let job = ledger.live_job(JobNo(0));
        assert!(job.is_unfunded(), "it was not reviewed yet");
        let blockers = ledger.job_blockers(job);
        assert!(matches!(blockers[..], [Blocker::Credits { .. }]), "{blockers:?}");
        advance(&mut ledger, now(), |_, _| {});
        let job = ledger.live_job(JobNo(0));
        assert!(!job.is_unfunded() && ledger.job_blockers(job).is_empty());
    }
}
