//! How jobs and policies enter the cell, and how jobs leave it.

use super::job::{CellJob, EndedAttempt, Phase, WHEN_ANSWERED, Waiting};
use crate::cell::command::{AccountPolicy, JobSpec, Refusal};
use crate::cell::config::CellConfig;
use crate::cell::event::{AttemptOutcome, Event, JobOutcome, StopReason};
use crate::cell::ids::{AccountId, AttemptId, JobId, RequestId};
use crate::cell::index::interner::InternedId;
use crate::cell::schedule::shape::Shape;
use crate::cell::share::quota::CellQuota;
use crate::cell::state::Cell;
use crate::name::parent_of;
use crate::time::Timestamp;

impl CellConfig {
    /// Refuses values without meaning.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let positive = [
            ("half_life_ms", self.half_life_ms),
            ("node_lease_ms", self.node_lease_ms),
            ("heartbeat_ms", self.heartbeat_ms),
            ("review_ms", self.review_ms),
            ("plan_timeout_ms", self.plan_timeout_ms),
            ("kill_timeout_ms", self.kill_timeout_ms),
            ("assumed_runtime_ms", self.assumed_runtime_ms),
        ];
        let natural = [
            ("entry_charge_ms", self.entry_charge_ms),
            ("ageing_after_ms", self.ageing_after_ms),
            ("meter_slack_ms", self.meter_slack_ms),
            ("requeue_delay_ms", self.requeue_delay_ms),
            ("start_allowance_ms", self.start_allowance_ms),
            ("share_minimum_runtime_ms", self.share_minimum_runtime_ms),
        ];
        if let Some((field, _)) = positive.into_iter().find(|(_, value)| *value <= 0) {
            return Err(Refusal::Invalid { field, must: "positive" });
        }
        if let Some((field, _)) = natural.into_iter().find(|(_, value)| *value < 0) {
            return Err(Refusal::Invalid { field, must: "zero or more" });
        }
        Ok(())
    }
}

/// Deciding.
impl Cell {
    pub(crate) fn decide_admit(
        &self,
        spec: &JobSpec,
        events: &mut Vec<Event>,
    ) -> Result<(), Refusal> {
        spec.check()?;
        if let Some(job) = self.jobs.get(&spec.job) {
            let attempts_before = spec.attempts_before.max(job.attempts);
            let counts_on = job.waiting().is_some() && attempts_before > job.attempts;
            if !counts_on && !matches!(job.waiting(), Some(Waiting::Funds(_))) {
                return Err(Refusal::AlreadyAdmitted);
            }
            events.push(Event::JobFunded { job: spec.job, attempts_before });
            return Ok(());
        }
        let full = self.known_path(&spec.account).any(|id| {
            let account = self.accounts.get(id);
            let limit = account.quota.waiting_jobs;
            limit.is_some_and(|limit| account.in_use.waiting_jobs >= limit)
        });
        events.push(if full {
            Event::JobEnded { job: spec.job, outcome: JobOutcome::WaitingQuota }
        } else if self.has_too_many_demands(spec) {
            Event::JobEnded { job: spec.job, outcome: JobOutcome::TooManyDemands }
        } else {
            Event::JobQueued(Box::new(spec.clone()))
        });
        Ok(())
    }

    /// The accounts on a path that the cell knows, the root last.
    pub(super) fn known_path(&self, path: &str) -> impl Iterator<Item = AccountId> {
        let mut rest = Some(path);
        let nearest = loop {
            match rest {
                Some(path) => match self.accounts.find(path) {
                    Some(id) => break id,
                    None => rest = parent_of(path),
                },
                None => break crate::cell::share::accounts::ROOT,
            }
        };
        self.accounts.path(nearest)
    }

    pub(crate) fn decide_cancel(&self, now: Timestamp, job: &CellJob, events: &mut Vec<Event>) {
        match job.attempt() {
            None => {
                events.push(Event::JobEnded { job: job.spec.job, outcome: JobOutcome::Cancelled })
            }
            Some(attempt) if attempt.stop.is_some() => {
                // It is stopping already; the cancellation only prevents a requeue.
                events.push(Event::CancelNoted { attempt: attempt.id });
            }
            Some(_) => self.decide_stop(now, job, StopReason::Cancelled, events),
        }
    }
}

/// Applying.
impl Cell {
    pub(crate) fn apply_configured(&mut self, at: Timestamp, config: &CellConfig) {
        if config.half_life_ms != self.config.half_life_ms {
            self.accounts.set_half_life(config.half_life_ms, at);
        }
        self.config = config.clone();
        self.idle = false;
    }

    pub(crate) fn apply_account_set(&mut self, policy: &AccountPolicy) {
        let id = self.accounts.ensure(&policy.path);
        let mut gpus: Vec<_> = policy
            .quota
            .gpus
            .iter()
            .map(|(model, limit)| (self.models.intern(model.clone()), *limit))
            .collect();
        gpus.sort_unstable();
        let account = self.accounts.get_mut(id);
        account.quota = CellQuota {
            gpus,
            total_gpus: policy.quota.total_gpus,
            running_jobs: policy.quota.running_jobs,
            waiting_jobs: policy.quota.waiting_jobs,
        };
        account.frozen = policy.frozen;
        account.blocked.clear();
        self.accounts.set_weight(id, policy.weight);
        self.unblock_mixed();
        self.retry_kept(&[id]);
        self.idle = false;
    }

    pub(crate) fn apply_queued(&mut self, at: Timestamp, spec: &JobSpec) {
        let account = self.accounts.ensure(&spec.account);
        let mut labels: Vec<_> =
            spec.labels.iter().map(|label| self.labels.intern(label.clone())).collect();
        labels.sort_unstable();
        labels.dedup();
        let shape = self.shapes.intern(Shape {
            models: spec.models.iter().map(|model| self.models.intern(model.clone())).collect(),
            labels: labels.into(),
            ..spec.bare_shape(self.scopes_of(account))
        });
        let request = self.requests.intern(spec.request(shape));
        self.note_demand(spec.tenant(), request);
        self.demand.observe(shape, u32::from(spec.nodes));
        self.demand.refresh(&self.shapes);
        self.accounts.for_path(account, |account| account.in_use.waiting_jobs += 1);
        let tenant = spec.tenant();
        let group =
            spec.group.as_ref().map(|group| self.groups.enter(tenant, &group.name, group.limit));
        let id = spec.job;
        let submitted_at = match spec.submitted_at {
            unknown if unknown == Timestamp::default() => at,
            earlier => earlier.min(at),
        };
        let job = CellJob {
            spec: Box::new(spec.clone()),
            account,
            request,
            shape,
            group,
            // Jobs submitted in the same millisecond are ordered by their ledger's number.
            ticket: submitted_at.millis().max(0).unsigned_abs(),
            submitted_at,
            attempts: spec.attempts_before,
            requeues: 0,
            share_preemptions: 0,
            guest_turns: 0,
            unsent_end: None,
            preempted_by: None,
            preemption: None,
            failed_plans: 0,
            plan_after: at,
            phase: Phase::Waiting(Waiting::Moving),
        };
        self.jobs.insert(id, job);
        self.compete(id);
        // The group's limit may have changed.
        self.release_group(id);
    }

    pub(crate) fn apply_funded(&mut self, id: JobId, attempts_before: u32) {
        let job = self.job_mut(id);
        let renumbered = attempts_before > job.attempts;
        job.attempts = job.attempts.max(attempts_before);
        let waits = match job.waiting() {
            Some(Waiting::Funds(_)) => true,
            // New attempts get higher numbers than the open proposal, so a late answer to it cannot
            // be taken for an answer to one of them.
            Some(Waiting::Delayed(until)) => until == WHEN_ANSWERED && renumbered,
            Some(Waiting::Competing | Waiting::Group | Waiting::Nominated | Waiting::Moving)
            | None => false,
        };
        if waits {
            self.stop_waiting(id);
            self.compete(id);
        }
    }

    pub(crate) fn apply_blocked(&mut self, account: AccountId, request: RequestId, mixed: bool) {
        self.accounts.get_mut(account).blocked.insert(request.index());
        if mixed {
            self.mixed.insert((request, account));
        }
    }

    /// Takes back the GPUs of an attempt that the ledger did not confirm.
    pub(crate) fn release_attempt(&mut self, at: Timestamp, attempt: AttemptId) {
        let outcome = AttemptOutcome::Stopped(StopReason::Cancelled);
        let (gpu_ms, exit_code, requeued) = (0, None, None);
        self.apply_ended(at, EndedAttempt { attempt, outcome, gpu_ms, exit_code, requeued });
    }

    pub(crate) fn apply_job_ended(&mut self, at: Timestamp, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        if let Some(attempt) = job.attempt().map(|attempt| attempt.id) {
            self.release_attempt(at, attempt);
        }
        self.stop_waiting(id);
        self.drop_reservation(id);
        // The group may have released it without a placement yet; the next job is released instead.
        self.release_group(id);
        let job = self.jobs.remove(&id).expect("found above");
        job.group.iter().for_each(|group| self.groups.leave(*group));
        self.accounts.for_path(job.account, |account| account.in_use.waiting_jobs -= 1);
    }
}
