//! Attempts: one start of a job, from the proposal to the end.
//!
//! An attempt ends once; its job then ends or is requeued. Its GPUs are free only when a node has
//! reported it or the node's lease has ended. Until then they are fenced.

use smallvec::SmallVec;

use super::funding::Funded;
use super::job::{CellJob, EndedAttempt, Phase, WHEN_ANSWERED, Waiting, when_free};
use super::stopping::Stop;
use crate::cell::event::{
    AttemptNodeEnd, AttemptOutcome, Event, JobOutcome, Placement, StopReason,
};
use crate::cell::ids::{AttemptId, JobId};
use crate::cell::index::timers::Timer;
use crate::cell::nodes::inventory::Held;
use crate::cell::nodes::node::{GpuSet, NodeId};
use crate::cell::schedule::shape::ModelId;
use crate::cell::share::decay::usage_micros;
use crate::cell::state::Cell;
use crate::time::Timestamp;

/// One start of a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CellAttempt {
    pub id: AttemptId,
    pub model: Option<ModelId>,
    /// Micro-credits per GPU-hour: the list price, or the pinned one once confirmed.
    pub price: u64,
    pub nodes: SmallVec<[AttemptNode; 1]>,
    pub proposed_at: Timestamp,
    pub confirmed: bool,
    /// When it was first reported running.
    pub running_since: Option<Timestamp>,
    /// The running time that is paid for.
    pub funded: Option<Funded>,
    pub stop: Option<Stop>,
    /// The entry charge, in micro-credits.
    pub entry_micros: u64,
    /// Micro-credits of usage measured so far.
    pub used_micros: u64,
    /// Active timers of the attempt.
    pub timers: SmallVec<[(Timestamp, Timer); 2]>,
}

/// An attempt on one of its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AttemptNode {
    pub node: NodeId,
    pub gpus: GpuSet,
    /// Accepted GPU-milliseconds.
    pub gpu_ms: u64,
    /// The exit code of its process, if it was reported.
    pub exit_code: Option<i32>,
    pub phase: AttemptNodePhase,
}

/// The state of an attempt on one of its nodes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttemptNodePhase {
    /// Not reported yet.
    Silent,
    /// Reported running.
    Running { since: Timestamp },
    /// Ended; its GPUs on the node are free.
    Ended(AttemptNodeEnd),
}

/// The report by which an attempt ends on a node, before it is applied.
pub(crate) struct LastReport {
    pub(crate) node: NodeId,
    pub(crate) end: AttemptNodeEnd,
    pub(crate) exit_code: Option<i32>,
    /// Accepted GPU-milliseconds on the node, including this report.
    pub(crate) gpu_ms: u64,
}

impl CellAttempt {
    pub(crate) fn on_node(&self, node: NodeId) -> Option<&AttemptNode> {
        self.nodes.iter().find(|on_node| on_node.node == node)
    }

    pub(crate) fn on_node_mut(&mut self, node: NodeId) -> &mut AttemptNode {
        let on_node = self.nodes.iter_mut().find(|on_node| on_node.node == node);
        on_node.expect("an event names only nodes of its attempt")
    }

    pub(crate) fn gpu_ms(&self) -> u64 {
        self.nodes.iter().map(|on_node| on_node.gpu_ms).sum()
    }

    /// The nodes on which it has ended. They may be deleted before it is over.
    pub(crate) fn ended_on(&self) -> impl Iterator<Item = NodeId> {
        let ended = |on_node: &&AttemptNode| matches!(on_node.phase, AttemptNodePhase::Ended(_));
        self.nodes.iter().filter(ended).map(|on_node| on_node.node)
    }

    /// The GPU time of the attempt once the part of a node is `gpu_ms`.
    pub(crate) fn gpu_ms_with(&self, node: NodeId, gpu_ms: u64) -> u64 {
        let parts = self.nodes.iter();
        parts.map(|on_node| if on_node.node == node { gpu_ms } else { on_node.gpu_ms }).sum()
    }

    /// The exit code: of a gang the first failure, if there was one.
    fn exit_code(&self, last: Option<&LastReport>) -> Option<i32> {
        let codes = self.nodes.iter().filter_map(|on_node| match last {
            Some(last) if last.node == on_node.node => last.exit_code,
            _ => on_node.exit_code,
        });
        let codes: SmallVec<[i32; 1]> = codes.collect();
        codes.iter().find(|code| **code != 0).or(codes.first()).copied()
    }

    /// The unused part of the entry charge, in micro-credits.
    pub(crate) fn unused_micros(&self) -> u64 {
        self.entry_micros.saturating_sub(self.used_micros)
    }

    /// Micro-credits per hour while it has GPUs, capped so that a million of them do not overflow.
    pub(crate) fn rate(&self, job: &CellJob) -> u64 {
        let thousandths = job.spec.gpu.per_device();
        usage_micros(self.price, thousandths, 3_600_000 * job.devices()).min(u64::MAX >> 20)
    }
}

/// Deciding.
impl Cell {
    /// The job and attempt of an id, unless the attempt has ended.
    pub(crate) fn live(&self, id: AttemptId) -> Option<(&CellJob, &CellAttempt)> {
        let job = self.jobs.get(&id.job)?;
        let attempt = job.attempt().filter(|attempt| attempt.id == id)?;
        Some((job, attempt))
    }

    /// Ends an attempt and decides whether its job ends. `last` is the report that ends it, if
    /// there is one.
    pub(crate) fn decide_end(
        &self,
        now: Timestamp,
        job: &CellJob,
        outcome: AttemptOutcome,
        last: Option<&LastReport>,
        events: &mut Vec<Event>,
    ) {
        let attempt = job.attempt().expect("only attempts that are not over are ended");
        let fate = self.fate(now, job, outcome);
        // No new proposal is made before the ledger has answered the last one: the ledger relies on
        // at most one being open when it renumbers attempts.
        let fate = fate.map_err(|at| if attempt.confirmed { at } else { WHEN_ANSWERED });
        let gpu_ms = last
            .map_or_else(|| attempt.gpu_ms(), |last| attempt.gpu_ms_with(last.node, last.gpu_ms));
        events.push(Event::AttemptEnded {
            attempt: attempt.id,
            outcome,
            gpu_ms,
            exit_code: attempt.exit_code(last),
            requeued: fate.err(),
        });
        if let Ok(outcome) = fate {
            events.push(Event::JobEnded { job: job.spec.job, outcome });
        }
    }

    /// Whether a job waits for the ledger's answer to a proposal that has ended.
    pub(crate) fn awaits_answer(&self, attempt: AttemptId) -> bool {
        self.jobs.get(&attempt.job).is_some_and(|job| {
            job.attempts == attempt.number && job.waiting() == Some(Waiting::Delayed(WHEN_ANSWERED))
        })
    }

    /// How the job ends, or when it may be placed again.
    fn fate(
        &self,
        now: Timestamp,
        job: &CellJob,
        outcome: AttemptOutcome,
    ) -> Result<JobOutcome, Timestamp> {
        match outcome {
            AttemptOutcome::Succeeded => Ok(JobOutcome::Succeeded),
            AttemptOutcome::Failed => Ok(JobOutcome::Failed),
            AttemptOutcome::Lost if self.is_lost_too_often(job) => Ok(JobOutcome::Lost),
            AttemptOutcome::Lost => Err(now),
            AttemptOutcome::Stopped(reason) => match reason {
                StopReason::Cancelled => Ok(JobOutcome::Cancelled),
                StopReason::MaxRuntime => Ok(JobOutcome::TimedOut),
                StopReason::OutOfCredits => Ok(JobOutcome::OutOfCredits),
                StopReason::Operator { .. } => Err(now.plus_millis(self.config.requeue_delay_ms)),
                StopReason::Preempted { .. } | StopReason::Drained => Err(now),
            },
        }
    }

    /// Whether a job that loses its attempt now has used up its requeues. An unconfirmed attempt
    /// was never started, so no work is lost and it does not count.
    fn is_lost_too_often(&self, job: &CellJob) -> bool {
        let confirmed = job.attempt().is_some_and(|attempt| attempt.confirmed);
        confirmed && job.requeues >= job.spec.max_requeues
    }

    /// Decides what follows when an attempt has ended on one of its nodes.
    pub(crate) fn decide_after_node(
        &self,
        now: Timestamp,
        job: &CellJob,
        report: &LastReport,
        events: &mut Vec<Event>,
    ) {
        let attempt = job.attempt().expect("only attempts that are not over have nodes");
        let mut others = attempt.nodes.iter().filter(|on_node| on_node.node != report.node);
        let last = others.all(|on_node| matches!(on_node.phase, AttemptNodePhase::Ended(_)));
        let outcome = match (attempt.stop, report.end) {
            // A job that succeeded before the stop signal took effect has succeeded, unless it was
            // cancelled.
            (Some(stop), AttemptNodeEnd::Succeeded) if stop.reason != StopReason::Cancelled => {
                last.then_some(AttemptOutcome::Succeeded)
            }
            (Some(stop), _) => last.then_some(AttemptOutcome::Stopped(stop.reason)),
            (None, AttemptNodeEnd::Succeeded) => last.then_some(AttemptOutcome::Succeeded),
            (None, AttemptNodeEnd::Failed) => Some(AttemptOutcome::Failed),
            (None, AttemptNodeEnd::Stopped) => Some(AttemptOutcome::Lost),
        };
        if let Some(outcome) = outcome {
            self.decide_end(now, job, outcome, Some(report), events);
        }
    }
}

/// Applying.
impl Cell {
    pub(crate) fn apply_proposed(
        &mut self,
        at: Timestamp,
        id: AttemptId,
        model: Option<ModelId>,
        placements: &[Placement],
    ) {
        self.stop_waiting(id.job);
        let kept = self.remove_reservation(id.job);
        let price = self.price(model);
        let job = self.job(id.job);
        let (account, request, thousandths) = (job.account, job.request, job.thousandths());
        let occupancy = self.requests.get(request).occupancy.limit_ms(&self.config);
        let until = at.plus_millis(occupancy.saturating_add(self.config.start_allowance_ms));
        let entry_ms = job.spec.max_runtime_ms.map_or(self.config.entry_charge_ms, |longest| {
            longest.min(self.config.entry_charge_ms)
        });
        let gpu_ms = entry_ms.max(0).unsigned_abs().saturating_mul(job.devices());
        let entry_micros = usage_micros(price, job.spec.gpu.per_device(), gpu_ms);
        let (class, preemptible, shape) = (job.class(), job.spec.preemptible, job.shape);
        let mut nodes: SmallVec<[AttemptNode; 1]> = SmallVec::new();
        for Placement { node, gpus } in placements {
            let held = Held {
                gpus: *gpus,
                shape,
                class,
                preemptible,
                fenced: false,
                reported: false,
                until,
            };
            self.inventory.take(&self.shapes, *node, id, held);
            let phase = AttemptNodePhase::Silent;
            nodes.push(AttemptNode { node: *node, gpus: *gpus, gpu_ms: 0, exit_code: None, phase });
        }
        let attempt = CellAttempt {
            id,
            model,
            price,
            nodes,
            proposed_at: at,
            confirmed: false,
            running_since: None,
            funded: None,
            stop: None,
            entry_micros,
            used_micros: 0,
            timers: SmallVec::new(),
        };
        if preemptible {
            *self.preemptible.entry(class).or_default() += 1;
        }
        self.accounts.rebase(at);
        let entry = self.accounts.decay.scale(entry_micros, at);
        self.accounts.charge(account, entry, 0);
        self.accounts.add_rate(account, attempt.rate(self.job(id.job)));
        self.accounts.for_path(account, |account| {
            account.in_use.take(model, thousandths);
            account.in_use.waiting_jobs -= 1;
        });
        let job = self.job_mut(id.job);
        job.attempts = id.number;
        job.failed_plans = 0;
        job.phase = Phase::Active(Box::new(attempt));
        if let Some(group) = job.group {
            self.groups.get_mut(group).active += 1;
        }
        for node in kept {
            self.wake_for(node);
        }
        self.park_again();
        // Placing an aged job, by age or by share, resets the ageing counter.
        let aged = self.is_aged(at, self.job(id.job));
        let queue = self.class_mut(class);
        queue.since_aged = if aged { 0 } else { queue.since_aged.saturating_add(1) };
    }

    pub(crate) fn apply_confirmed(&mut self, id: AttemptId, price: u64, funded_ms: Option<i64>) {
        let account = self.job(id.job).account;
        let before = self.rate_of(id.job);
        let attempt = self.attempt_mut(id.job);
        attempt.confirmed = true;
        attempt.price = price;
        attempt.funded = funded_ms.map(|total_ms| Funded { total_ms, last_ms: total_ms });
        let after = self.rate_of(id.job);
        self.accounts.remove_rate(account, before);
        self.accounts.add_rate(account, after);
    }

    fn rate_of(&self, id: JobId) -> u64 {
        let job = self.job(id);
        job.attempt().map_or(0, |attempt| attempt.rate(job))
    }

    pub(crate) fn attempt_mut(&mut self, id: JobId) -> &mut CellAttempt {
        match &mut self.job_mut(id).phase {
            Phase::Active(attempt) => attempt,
            Phase::Waiting(_) => panic!("an event names only attempts that are not over"),
        }
    }

    /// Starts a timer that is cleared when the attempt ends.
    pub(crate) fn set_attempt_timer(&mut self, at: Timestamp, timer: Timer, id: JobId) {
        self.timers.set(at, timer);
        self.attempt_mut(id).timers.push((at, timer));
    }

    /// Clears a timer of an attempt, if it is active.
    pub(crate) fn clear_attempt_timer(&mut self, timer: Timer, id: JobId) {
        let mut cleared: SmallVec<[Timestamp; 1]> = SmallVec::new();
        self.attempt_mut(id).timers.retain(|(at, running)| {
            let clear = *running == timer;
            if clear {
                cleared.push(*at);
            }
            !clear
        });
        for at in cleared {
            self.timers.clear(at, timer);
        }
    }

    pub(crate) fn apply_ended_on_node(
        &mut self,
        id: AttemptId,
        node: NodeId,
        end: AttemptNodeEnd,
        exit_code: Option<i32>,
    ) {
        let on_node = self.attempt_mut(id.job).on_node_mut(node);
        on_node.phase = AttemptNodePhase::Ended(end);
        on_node.exit_code = exit_code;
        self.inventory.give(&self.shapes, node, id);
        self.inventory.name_number(node);
        self.wake_for(node);
    }

    pub(crate) fn apply_ended(&mut self, at: Timestamp, end: EndedAttempt) {
        let (id, outcome, requeued) = (end.attempt, end.outcome, end.requeued);
        let rate = self.rate_of(id.job);
        let job = self.job_mut(id.job);
        let (account, thousandths, group) = (job.account, job.thousandths(), job.group);
        let moving = Phase::Waiting(Waiting::Moving);
        let Phase::Active(attempt) = std::mem::replace(&mut job.phase, moving) else {
            panic!("an attempt ends once");
        };
        job.requeues += u32::from(outcome == AttemptOutcome::Lost && attempt.confirmed);
        let preempted = matches!(outcome, AttemptOutcome::Stopped(StopReason::Preempted { .. }));
        job.preemption = job.preemption.filter(|_| preempted);
        // An attempt that no node has reported ends without a stop order.
        if let AttemptOutcome::Stopped(reason) = outcome
            && attempt.stop.is_none()
        {
            self.note_preempted(id.job, reason);
        }
        let job = self.job(id.job);
        let (class, preemptible) = (job.class(), job.spec.preemptible);
        if preemptible && let Some(count) = self.preemptible.get_mut(&class) {
            *count -= 1;
        }
        for (at, timer) in &attempt.timers {
            self.timers.clear(*at, *timer);
        }
        if attempt.used_micros < attempt.entry_micros {
            self.accounts.rebase(at);
            let decay = &self.accounts.decay;
            let entry = decay.scale(attempt.entry_micros, attempt.proposed_at);
            let used = decay.scale(attempt.used_micros, at);
            self.accounts.charge(account, used, entry);
        }
        self.accounts.remove_rate(account, rate);
        self.accounts.for_path(account, |account| {
            account.in_use.give(attempt.model, thousandths);
            account.in_use.waiting_jobs += 1;
        });
        for on_node in &attempt.nodes {
            let ended = matches!(on_node.phase, AttemptNodePhase::Ended(_));
            if ended {
                self.inventory.unname_number(on_node.node);
            } else {
                self.settle_gpus(id, on_node.node, attempt.confirmed);
            }
        }
        if requeued.is_some() && self.fences.contains_key(&id.job) {
            self.job_mut(id.job).unsent_end = Some(Box::new(end));
        }
        if let Some(group) = group {
            self.groups.get_mut(group).active -= 1;
            self.release_group(id.job);
        }
        self.unblock(account);
        match requeued {
            Some(release_at) if release_at > at => {
                if release_at != WHEN_ANSWERED {
                    self.timers.set(release_at, Timer::Release(id.job));
                }
                self.job_mut(id.job).phase = Phase::Waiting(Waiting::Delayed(release_at));
            }
            Some(_) => self.compete(id.job),
            None => {}
        }
    }

    /// Releases the GPUs of an ended attempt on a node: freed if no start order was given or the
    /// node is lost, fenced otherwise.
    fn settle_gpus(&mut self, id: AttemptId, node: NodeId, ordered: bool) {
        if ordered && self.inventory.node(node).alive {
            let until = self.inventory.node(node).lease_until;
            self.inventory.change(node, |record| {
                let held = record.attempts.get_mut(&id).expect("not given back yet");
                held.fenced = true;
                held.until = until;
            });
            *self.fences.entry(id.job).or_default() += 1;
        } else {
            self.inventory.give(&self.shapes, node, id);
            self.wake_for(node);
        }
    }

    pub(crate) fn apply_fence_lifted(&mut self, id: AttemptId, node: NodeId) {
        self.inventory.give(&self.shapes, node, id);
        if let Some(fences) = self.fences.get_mut(&id.job) {
            *fences -= 1;
            if *fences == 0 {
                self.fences.remove(&id.job);
                if let Some(job) = self.jobs.get_mut(&id.job) {
                    job.unsent_end = None;
                }
            }
        }
        let waits = self.jobs.get(&id.job).and_then(CellJob::waiting);
        if waits == Some(Waiting::Delayed(when_free())) {
            // Only takes effect if this was the last fence of the job.
            self.compete(id.job);
        }
        self.wake_for(node);
    }
}
