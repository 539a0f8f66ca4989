//! The cell as a machine: dispatches every command and every event.

use super::command::{Command, Origin, Refusal, Reply, RequestKey, Verdict};
use super::event::{Event, JobOutcome, StopReason};
use super::ids::AttemptId;
use super::index::timers::Timer;
use super::jobs::job::{EndedAttempt, Phase, Waiting, check_path};
use super::messages::Receipt;
use super::nodes::maintenance::MaintenanceWindow;
use super::nodes::node::NodeId;
use super::state::Cell;
use crate::digest::Digest;
use crate::machine::{Machine, Stuck};
use crate::message::Mark;
use crate::time::Timestamp;

impl Machine for Cell {
    type Command = Command;
    type Event = Event;
    type Reply = Reply;
    type Refusal = Refusal;
    type Envelope = Origin;

    fn decide(
        &self,
        now: Timestamp,
        origin: &Origin,
        command: &Command,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let first = events.len();
        if let Receipt::Duplicate = self.decide_receipt(origin, events)? {
            return Ok(Reply::Duplicate);
        }
        let request = match origin {
            Origin::Shell { request, .. } => *request,
            Origin::Ledger { .. } => None,
        };
        if let Some(request) = request
            && self.is_done(request)?
            && !matches!(command, Command::KeepAnswer(_))
        {
            return Ok(Reply::Repeated);
        }
        let reply = self.decide_command(now, request, command, events)?;
        if let Some(request) = request.filter(|_| !matches!(command, Command::KeepAnswer(_))) {
            events.push(Event::RequestDone { request });
        }
        self.send_to_ledgers(first, events);
        Ok(reply)
    }

    fn apply(&mut self, at: Timestamp, event: &Event) {
        self.now = self.now.max(at);
        match event {
            Event::MessageReceived { shard, number, position } => {
                self.marks.insert(*shard, Mark { number: *number, position: *position });
            }
            Event::LedgerMessageSent { shard, number, message: _ } => {
                self.sent.insert(*shard, *number);
            }
            Event::RequestDone { request } => self.apply_request_done(at, *request, None),
            Event::AnswerKept { request, answer } => {
                self.apply_request_done(at, *request, Some(answer));
            }
            Event::RequestsForgotten { requests } => self.apply_requests_forgotten(*requests),
            Event::SetAside { what, digest: _ } => self.apply_set_aside(*what),
            Event::Rewound { generation, served: false } => self.apply_rewound(at, *generation),
            Event::Rewound { generation, served: true } => self.generation = *generation,
            Event::NodeCleared { node } => self.apply_cleared(*node),
            Event::Configured(config) => self.apply_configured(at, config),
            Event::PriceSet { model, price } => {
                let model = self.models.intern(model.clone());
                self.prices.insert(model, *price);
            }
            Event::ClassSet { class, preempts } => self.apply_class_set(class, preempts.as_ref()),
            Event::AccountSet(policy) => self.apply_account_set(policy),
            Event::NodeRegistered { node, offer, incarnation, lease_until, kept_until } => {
                self.apply_registered(*node, offer, *incarnation, *lease_until, *kept_until);
            }
            Event::NodeReported { node, seq, lease_until } => {
                self.apply_reported(*node, *seq, *lease_until);
            }
            Event::NodeLost { node } => self.apply_lost(*node),
            Event::NodeDrained { node } => self.apply_drained(*node, true),
            Event::NodeResumed { node } => self.apply_drained(*node, false),
            Event::NodeRemoved { node } => self.apply_removed(*node),
            Event::MaintenancePlanned { id, from, to, nodes } => {
                let (from, to, nodes) = (*from, *to, nodes.clone());
                let window = MaintenanceWindow { from, to, nodes, began: false };
                self.apply_maintenance_planned(*id, window);
            }
            Event::MaintenanceBegan { id } => self.apply_maintenance_began(*id),
            Event::MaintenanceEnded { id } => self.apply_maintenance_ended(*id),
            Event::JobQueued(spec) => self.apply_queued(at, spec),
            Event::JobFunded { job, attempts_before } => self.apply_funded(*job, *attempts_before),
            Event::JobReleased { job } => {
                self.stop_waiting(*job);
                self.compete(*job);
            }
            Event::JobHeldByGroup { job } => self.apply_held_by_group(*job),
            Event::JobEnded { job, outcome: _ } => self.apply_job_ended(at, *job),
            Event::PlacementProposed { attempt, model, placements } => {
                self.apply_proposed(at, *attempt, *model, placements);
            }
            Event::PlacementConfirmed { attempt, price, funded_ms } => {
                self.apply_confirmed(*attempt, *price, *funded_ms);
            }
            Event::PlacementRefused { attempt, blocker } => {
                self.release_attempt(at, *attempt);
                self.job_mut(attempt.job).phase = Phase::Waiting(Waiting::Funds(*blocker));
            }
            Event::AttemptStartedOnNode { attempt, node } => {
                self.apply_started_on_node(at, *attempt, *node);
            }
            Event::UsageMetered { node, usage } => self.apply_metered(at, *node, usage),
            Event::AttemptEndedOnNode { attempt, node, end, exit_code } => {
                self.apply_ended_on_node(*attempt, *node, *end, *exit_code);
            }
            Event::FundingSet { attempt, funded_ms } => {
                self.apply_funding_set(*attempt, *funded_ms);
            }
            Event::FundsNeeded { attempt } | Event::FundingEnded { attempt } => {
                self.clear_attempt_timer(Timer::FundsNeeded(attempt.job), attempt.job);
            }
            Event::StopOrdered { attempt, reason, kill_at } => {
                self.apply_stop(at, *attempt, *reason, *kill_at);
            }
            Event::CancelNoted { attempt } => self.apply_cancel_noted(*attempt),
            Event::KillOrdered { attempt, end_at } => self.apply_kill(*attempt, *end_at),
            Event::AttemptEnded { attempt, outcome, requeued, gpu_ms, exit_code } => {
                let (attempt, outcome, requeued) = (*attempt, *outcome, *requeued);
                let (gpu_ms, exit_code) = (*gpu_ms, *exit_code);
                let end = EndedAttempt { attempt, outcome, gpu_ms, exit_code, requeued };
                self.apply_ended(at, end);
            }
            Event::FenceLifted { attempt, node } => self.apply_fence_lifted(*attempt, *node),
            Event::RequestParked { class, request } => self.apply_parked(*class, *request),
            Event::RequestBlocked { account, request, mixed } => {
                self.apply_blocked(*account, *request, *mixed);
            }
            Event::ReservationMade { job, model: _, nodes, start_at, preempting, guests } => {
                self.apply_reservation_made(*job, nodes, *start_at, *preempting, *guests);
            }
            Event::ReservationKept { job } => {
                self.ready.remove(job);
            }
            Event::ReservationsDone { class, model } => {
                self.class_mut(*class).unreserved.remove(model);
            }
            Event::ReservationDropped { job } => self.apply_reservation_dropped(at, *job),
            Event::ReviewBegan => self.apply_review_began(),
            Event::ReviewPassed { class } => self.class_mut(*class).review = false,
            Event::PassEnded => self.apply_pass_ended(at),
        }
    }

    fn now(&self) -> Timestamp {
        self.now
    }

    /// A pass that is due is due at once, whatever the time.
    fn next_deadline(&self) -> Option<Timestamp> {
        let timer = self.next_timer().map(|(at, _)| at);
        if self.idle { timer } else { Some(timer.map_or(self.now, |at| at.min(self.now))) }
    }

    fn decide_due(&self, now: Timestamp, events: &mut Vec<Event>) {
        let first = events.len();
        match self.next_timer() {
            Some((at, timer)) if at <= now => self.decide_timer(now, timer, events),
            _ => self.decide_step(now, events),
        }
        self.send_to_ledgers(first, events);
    }

    fn message_name(origin: &Origin, _command: &Command) -> Option<(u64, u64)> {
        match origin {
            Origin::Ledger { shard, number, .. } => Some((u64::from(*shard), *number)),
            Origin::Shell { .. } => None,
        }
    }

    fn decide_set_aside(&self, stuck: Stuck<'_, Cell>, events: &mut Vec<Event>) {
        match stuck {
            Stuck::Due => {
                let deadline = self.next_deadline();
                let due = |(at, _): &(Timestamp, Timer)| deadline.is_some_and(|now| *at <= now);
                self.push_due_aside(self.next_timer().filter(due), events);
            }
            Stuck::Message(origin, command) => self.push_message_aside(origin, command, events),
        }
    }

    fn set_aside_count(&self) -> u64 {
        self.set_aside().len() as u64
    }

    /// Saves a copy. Groups of commands are for the ledger, so a cell does not need a cheaper way.
    fn begin_group(&mut self) {
        self.saved = Some(Box::new(self.clone()));
    }

    fn commit_group(&mut self) {
        self.saved = None;
    }

    fn rollback_group(&mut self) {
        if let Some(saved) = self.saved.take() {
            *self = *saved;
        }
    }

    fn digest(&self) -> Digest {
        self.digest_state()
    }
}

impl Cell {
    fn decide_command(
        &self,
        now: Timestamp,
        request: Option<RequestKey>,
        command: &Command,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        match command {
            Command::Configure(config) => {
                config.check()?;
                events.push(Event::Configured(Box::new(config.clone())));
            }
            Command::SetPrice { model, price } => {
                events.push(Event::PriceSet { model: model.clone(), price: *price });
            }
            Command::SetClass { class, preempts } => {
                events.push(Event::ClassSet { class: class.clone(), preempts: preempts.clone() });
            }
            Command::SetAccount(policy) => {
                check_path(&policy.path)?;
                events.push(Event::AccountSet(Box::new(policy.clone())));
            }
            Command::KeepAnswer(answer) => {
                if let Some(request) = request {
                    self.decide_keep(request, answer, events);
                }
            }
            Command::Rewind { generation, served } => {
                self.decide_rewind(*generation, *served, events)?;
            }
            Command::RegisterNode(offer) => {
                let incarnation = self.decide_register(now, offer, events)?;
                return Ok(Reply::Registered {
                    incarnation,
                    heartbeat_ms: self.config.heartbeat_ms,
                    lease_until: now.plus_millis(self.config.node_lease_ms),
                });
            }
            Command::Heartbeat(heartbeat) => {
                let lease_until = self.decide_heartbeat(now, heartbeat, events)?;
                return Ok(Reply::Reported { lease_until });
            }
            Command::DrainNode { node, force } => {
                self.decide_drain(now, self.find_node(node)?, *force, events);
            }
            Command::ResumeNode { node } => {
                let node = self.find_node(node)?;
                if self.inventory.node(node).drained {
                    events.push(Event::NodeResumed { node });
                }
            }
            Command::RemoveNode { node } => {
                let node = self.find_node(node)?;
                if !self.inventory.node(node).attempts.is_empty() {
                    return Err(Refusal::NodeBusy);
                }
                events.push(Event::NodeRemoved { node });
            }
            Command::PlanMaintenance { id, from, to, nodes } => {
                if from >= to || *to <= now {
                    return Err(Refusal::Invalid { field: "to", must: "after from and now" });
                }
                let named: Result<Vec<NodeId>, Refusal> =
                    nodes.iter().map(|name| self.find_node(name)).collect();
                let mut nodes = named?;
                if nodes.is_empty() {
                    nodes = self.inventory.iter().map(|(node, _)| node).collect();
                }
                nodes.sort_unstable();
                nodes.dedup();
                let (id, from, to) = (*id, (*from).max(now), *to);
                events.push(Event::MaintenancePlanned { id, from, to, nodes });
            }
            Command::CancelMaintenance { id } => {
                if !self.maintenance.contains_key(id) {
                    return Err(Refusal::UnknownMaintenance);
                }
                events.push(Event::MaintenanceEnded { id: *id });
            }
            Command::AdmitJob(spec) => self.decide_admit(spec, events)?,
            Command::CancelJob { job } => {
                let job = self.jobs.get(job).ok_or(Refusal::UnknownJob)?;
                self.decide_cancel(now, job, events);
            }
            Command::WithdrawJob { job } => {
                self.jobs.get(job).ok_or(Refusal::UnknownJob)?;
                events.push(Event::JobEnded { job: *job, outcome: JobOutcome::Withdrawn });
            }
            Command::PreemptJob { job, by_platform } => {
                let job = self.jobs.get(job).ok_or(Refusal::UnknownJob)?;
                let reason = StopReason::Operator { by_platform: *by_platform };
                self.decide_stop(now, job, reason, events);
            }
            Command::ConfirmPlacement { attempt, .. } if self.awaits_answer(*attempt) => {
                events.push(Event::JobReleased { job: attempt.job });
            }
            Command::ConfirmPlacement { attempt, price, funded_ms } => {
                self.proposed(*attempt)?;
                events.push(Event::PlacementConfirmed {
                    attempt: *attempt,
                    price: *price,
                    funded_ms: *funded_ms,
                });
            }
            Command::RefusePlacement { attempt, verdict: Verdict::Wait(_) }
                if self.awaits_answer(*attempt) =>
            {
                // The refusal comes again when the job is placed again.
                events.push(Event::JobReleased { job: attempt.job });
            }
            Command::RefusePlacement { attempt, verdict } => {
                if !self.awaits_answer(*attempt) {
                    self.proposed(*attempt)?;
                }
                let attempt = *attempt;
                match verdict {
                    Verdict::Withdraw => {
                        let outcome = JobOutcome::Withdrawn;
                        events.push(Event::JobEnded { job: attempt.job, outcome });
                    }
                    Verdict::Wait(blocker) => {
                        events.push(Event::PlacementRefused { attempt, blocker: *blocker });
                    }
                }
            }
            Command::SetFunding { attempt, funded_ms } => {
                self.live(*attempt).ok_or(Refusal::StaleAttempt)?;
                events.push(Event::FundingSet { attempt: *attempt, funded_ms: *funded_ms });
            }
            Command::RefuseFunding { attempt } => {
                self.live(*attempt).ok_or(Refusal::StaleAttempt)?;
                events.push(Event::FundingEnded { attempt: *attempt });
            }
        }
        Ok(Reply::Done)
    }

    fn decide_timer(&self, now: Timestamp, timer: Timer, events: &mut Vec<Event>) {
        match timer {
            Timer::NodeLease(node) => self.decide_node_lost(now, node, events),
            Timer::MaxRuntime(job) => {
                self.decide_stop(now, self.job(job), StopReason::MaxRuntime, events);
            }
            Timer::FundsNeeded(job) => {
                let attempt = self.current_attempt(job);
                events.push(Event::FundsNeeded { attempt });
            }
            Timer::FundsEnd(job) => {
                self.decide_stop(now, self.job(job), StopReason::OutOfCredits, events);
            }
            Timer::Kill(job) => {
                let end_at = now.plus_millis(self.config.kill_timeout_ms);
                let attempt = self.current_attempt(job);
                events.push(Event::KillOrdered { attempt, end_at });
            }
            Timer::KillTimeout(job) => self.decide_kill_timeout(now, job, events),
            Timer::Release(job) => events.push(Event::JobReleased { job }),
            Timer::Reservation(job) => events.push(Event::ReservationDropped { job }),
            Timer::MaintenanceBegin(id) => self.decide_maintenance_begin(now, id, events),
            Timer::MaintenanceEnd(id) => events.push(Event::MaintenanceEnded { id }),
            Timer::Review => events.push(Event::ReviewBegan),
            Timer::Requests => {
                let requests = self.requests_done.due(now);
                events.push(Event::RequestsForgotten { requests });
            }
        }
    }

    /// The next timer to run. A review is skipped while no attempt could be preempted, so that jobs
    /// may wait for years without records. It becomes due as soon as one could.
    fn next_timer(&self) -> Option<(Timestamp, Timer)> {
        let mut timers = self.timers.iter().filter(|(at, timer)| !self.is_timer_aside(*at, *timer));
        timers.find(|(_, timer)| *timer != Timer::Review || self.has_cause_for_review())
    }

    /// The current attempt of a job that has one.
    fn current_attempt(&self, job: super::ids::JobId) -> AttemptId {
        let job = self.job(job);
        AttemptId { job: job.spec.job, number: job.attempts }
    }

    /// Checks that an attempt waits for the ledger's answer.
    fn proposed(&self, attempt: AttemptId) -> Result<(), Refusal> {
        let live = self.live(attempt).filter(|(_, attempt)| !attempt.confirmed);
        live.map(|_| ()).ok_or(Refusal::StaleAttempt)
    }
}
