//! Usage of running jobs: captures, leases, and more running time that is paid for.

use super::{Attempt, Job, JobState, OnExhausted};
use crate::cell::ids::AttemptId;
use crate::credits::Credits;
use crate::ledger::command::{Context, Usage};
use crate::ledger::draw::Request;
use crate::ledger::event::{Event, Pieces, total};
use crate::ledger::hold::gpu_time;
use crate::ledger::id::{CellNo, HoldNo, JobNo};
use crate::ledger::job::place::RUNNING_LEASE_MS;
use crate::ledger::overlay::Overlay;
use crate::ledger::price::Rounding;
use crate::ledger::refusal::{Blocker, Refusal};
use crate::ledger::state::Ledger;
use crate::message::ToCell;
use crate::time::Timestamp;

impl Ledger {
    pub(in crate::ledger) fn push_started(&self, job: JobNo, events: &mut Vec<Event>) {
        let live = self.live_job(job).live_attempt();
        if live.is_some_and(|attempt| attempt.started_at.is_none()) {
            events.push(Event::AttemptStarted { job });
        }
    }

    pub(in crate::ledger) fn push_stopping(&self, job: JobNo, events: &mut Vec<Event>) {
        if self.live_job(job).state != JobState::Stopping {
            events.push(Event::AttemptStopping { job });
        }
    }

    /// Pushes what one report of a node says about attempts that are not over.
    pub(in crate::ledger) fn push_usages(
        &self,
        now: Timestamp,
        cell: CellNo,
        usages: &[(AttemptId, u64)],
        events: &mut Vec<Event>,
    ) {
        // A report names an attempt once; were it to name one twice, the larger usage counts.
        let mut usages = usages.to_vec();
        usages.sort_unstable_by_key(|(attempt, gpu_ms)| (*attempt, std::cmp::Reverse(*gpu_ms)));
        usages.dedup_by_key(|(attempt, _)| *attempt);
        let mut overlay = Overlay::default();
        for (attempt, gpu_ms) in usages {
            let Some((job, _)) = self.live_attempt_of(cell, attempt) else { continue };
            self.push_started(job, events);
            if let Some(hold) = self.live_job(job).hold {
                self.push_usage(now, hold, gpu_ms, &mut overlay, events);
            }
        }
    }

    fn push_usage(
        &self,
        now: Timestamp,
        number: HoldNo,
        gpu_ms: u64,
        overlay: &mut Overlay,
        events: &mut Vec<Event>,
    ) {
        let hold = self.live_hold(number);
        // The limit of its rate makes every usage an amount: checked at submission.
        if let Ok(metered) = self.meter(hold, Usage::GpuMs(gpu_ms), Rounding::Floor)
            && hold.grows_by(metered)
        {
            self.push_capture(now, number, hold, metered, None, overlay, events);
        }
        let renewed = Some(now.plus_millis(RUNNING_LEASE_MS));
        if renewed > hold.expires_at {
            let pieces = Pieces::new();
            let expires_at = renewed;
            events.push(Event::HoldExtended { hold: number, pieces, gpu_ms: 0, expires_at });
        }
    }

    /// Pays for one more window, or says that nobody does.
    pub(in crate::ledger) fn push_more_funds(
        &self,
        now: Timestamp,
        cell: CellNo,
        attempt: AttemptId,
        number: JobNo,
        events: &mut Vec<Event>,
    ) {
        let job = self.live_job(number);
        let Some(live) = job.live_attempt() else { return };
        let Some(funded_ms) = live.funded_ms else { return };
        match self.fund_next_window(now, number, job, live, funded_ms, events) {
            Ok(funded_ms) => {
                self.tell(cell, ToCell::FundingChanged { attempt, funded_ms }, events);
            }
            Err(refusal) => {
                let account = job.order.account;
                events.push(Event::CreditsDenied { account, refusal: Box::new(refusal) });
                self.tell(cell, ToCell::FundsRefused { attempt }, events);
            }
        }
    }

    fn fund_next_window(
        &self,
        now: Timestamp,
        number: JobNo,
        job: &Job,
        live: &Attempt,
        funded_ms: i64,
        events: &mut Vec<Event>,
    ) -> Result<Option<i64>, Refusal> {
        let terms = &job.order.terms;
        let next = terms.window_after(funded_ms);
        let Some(hold) = job.hold else {
            events.push(Event::AttemptFunded { job: number, funded_ms: next, overdraft: 0 });
            return Ok(next);
        };
        let present = self.live_hold(hold);
        let target = terms.hold_at(live.per_gpu_hour, next).map_or(u64::MAX, Credits::length);
        let held = present.amount.saturating_add(live.overdraft);
        let wanted = Credits::from_length(target.saturating_sub(held)).unwrap_or(Credits::MAX);
        let gpu_ms = terms.funded_gpu_ms(next) - terms.funded_gpu_ms(Some(funded_ms));
        let gpu = gpu_time(gpu_ms, present.share_milli());
        let path = self.path(present.account);
        self.require_thawed(&path)?;
        let default = Context::default();
        let context = present.rare.as_ref().map_or(&default, |rare| &rare.context);
        let request = Request { hold: Some(present), ..Request::new(&path, context) };
        let (pieces, owing) = match self.draw_within_budgets(now, request, wanted, gpu) {
            // Usage that came late may have filled the hold up already.
            Ok(_) if wanted.is_zero() => (Pieces::new(), 0),
            Ok(pieces) => (pieces, 0),
            Err(refusal) => self.overdraw(job, request, wanted, refusal)?,
        };
        let drawn = i128::from(total(&pieces));
        let expires_at = Some(now.plus_millis(RUNNING_LEASE_MS)).max(present.expires_at);
        events.push(Event::HoldExtended { hold, pieces, gpu_ms, expires_at });
        self.push_thresholds(now, &path, drawn, gpu, events);
        let overdraft = live.overdraft.saturating_add(owing);
        events.push(Event::AttemptFunded { job: number, funded_ms: next, overdraft });
        Ok(next)
    }

    /// Draws what there is and lets the rest stay unpaid, if the job may owe that much.
    fn overdraw(
        &self,
        job: &Job,
        request: Request<'_>,
        wanted: Credits,
        refusal: Refusal,
    ) -> Result<(Pieces, u64), Refusal> {
        let mut blockers = refusal.blockers().iter();
        let only_credits = blockers.all(|blocker| matches!(blocker, Blocker::Credits { .. }));
        if job.order.terms.on_exhausted != OnExhausted::Overdraft || !only_credits {
            return Err(refusal);
        }
        let there = self.largest_draw(request, &[], u128::from(wanted.length()));
        // At most what is wanted, which fits.
        let there = u64::try_from(there).unwrap_or(0);
        let owing = wanted.length() - there;
        let account = job.order.account;
        let limit = self.inherited(account, |settings| settings.overdraft_limit);
        let limit = i128::from(limit.unwrap_or(Credits::ZERO).micros());
        if self.owed(account) + i128::from(owing) > limit {
            return Err(refusal);
        }
        let pieces =
            if there > 0 { self.draw(request, there).unwrap_or_default() } else { Pieces::new() };
        let short = wanted.length() - total(&pieces);
        Ok((pieces, short))
    }

    /// What an account owes, and what its running jobs may still come to owe.
    fn owed(&self, account: crate::ledger::id::AccountNo) -> i128 {
        let tenant = self.account(account).tenant;
        let of_tenant = (tenant, JobNo(0))..=(tenant, JobNo(u64::MAX));
        let jobs = self.jobs.index.by_tenant.range(of_tenant).map(|(_, job)| self.live_job(*job));
        let allowed = jobs.filter(|job| job.order.account == account).filter_map(|job| {
            let live = job.live_attempt()?;
            let owed = job.hold.and_then(|hold| self.hold(hold)).map_or(0, |h| h.uncollected());
            Some(i128::from(live.overdraft.saturating_sub(owed)))
        });
        self.uncollected(account) + allowed.sum::<i128>()
    }

    pub(in crate::ledger) fn apply_attempt_started(&mut self, at: Timestamp, job: JobNo) {
        self.change_job(job, |job| {
            if job.state == JobState::Starting {
                job.state = JobState::Running;
            }
            if let Some(attempt) = job.attempts.last_mut() {
                attempt.started_at = Some(at);
            }
        });
    }

    pub(in crate::ledger) fn apply_attempt_funded(
        &mut self,
        job: JobNo,
        funded_ms: Option<i64>,
        overdraft: u64,
    ) {
        self.change_job(job, |job| {
            if let Some(attempt) = job.attempts.last_mut() {
                attempt.funded_ms = funded_ms;
                attempt.overdraft = overdraft;
            }
        });
    }

    pub(in crate::ledger) fn apply_stopping(&mut self, job: JobNo) {
        self.change_job(job, |job| job.state = JobState::Stopping);
    }
}
