//! The ledger as a machine: the dispatch of commands, timers and events.

mod timers;

use std::sync::Arc;

use bursar_seeded::{Bug, seeded};

use super::accounts::tally::MAX_COUNTED_IN_GROUP;
use super::command::{Command, Envelope};
use super::event::Event;
use super::holds::apply::Capture;
use super::index::idempotency::{KeptAnswer, KeptEntry};
use super::jobs::external::UsageReport;
use super::refusal::Refusal;
use super::reply::{Accepted, Refused, Reply};
use super::state::Ledger;
use super::undo::Undo;
use crate::digest::Digest;
use crate::machine::{DuePart, Machine, Preparation, Stuck};
use crate::time::Timestamp;
use timers::STEP;

impl Ledger {
    /// The hash of the request whose answer is kept under this key.
    pub fn kept_fingerprint(&self, key: u128) -> Option<u128> {
        self.answers.get(key).map(|kept| kept.fingerprint)
    }
}

impl Machine for Ledger {
    type Command = Command;
    type Event = Event;
    type Reply = Accepted;
    type Refusal = Refused;
    type Envelope = Envelope;

    fn decide(
        &self,
        now: Timestamp,
        envelope: &Envelope,
        command: &Command,
        events: &mut Vec<Event>,
    ) -> Result<Accepted, Refused> {
        let fresh = |refusal| Refused { refusal, replayed: false, request: envelope.request };
        command.validate().map_err(fresh)?;
        if let Some(kept) = envelope.key.and_then(|key| self.answers.get(key)) {
            let is_same = kept.fingerprint == envelope.keyed_fingerprint();
            if !is_same && !seeded(Bug::IgnoresFingerprint) {
                return Err(fresh(Refusal::IdempotencyKeyReused));
            }
            return match &*kept.answer {
                Ok(reply) => {
                    let unchanged = kept.request != 0;
                    Ok(Accepted { reply: reply.clone(), replayed: true, unchanged })
                }
                Err(refusal) => {
                    let (refusal, request) = (refusal.clone(), kept.request);
                    Err(Refused { refusal, replayed: true, request })
                }
            };
        }
        self.require_archive(envelope, command).map_err(fresh)?;
        let first = events.len();
        let answer = self.decide_command(now, envelope, command, events);
        if let Err(refusal) = &answer {
            debug_assert_eq!(events.len(), first, "a refused command pushes no events");
            self.push_denial(command, refusal, events);
        }
        let unchanged = answer.is_ok() && events.len() == first;
        let kept = answer.as_ref().map_or_else(Refusal::is_remembered, |_| true);
        if let Some(key) = envelope.key.filter(|_| kept && !seeded(Bug::ForgetsAnswer)) {
            let fingerprint = envelope.keyed_fingerprint();
            // A repeated answer must show that the request was refused or changed nothing.
            let request = if answer.is_err() || unchanged { envelope.request } else { 0 };
            let answer = Arc::new(answer.clone());
            events.push(Event::Answered { key, fingerprint, answer, request });
        }
        match answer {
            Ok(reply) => Ok(Accepted { reply, replayed: false, unchanged }),
            Err(refusal) => Err(fresh(refusal)),
        }
    }

    fn prepare(&mut self, now: Timestamp, command: &Command) -> bool {
        if !self.must_count_in_steps(command) {
            return true;
        }
        let Command::SetBudget { path, terms, .. } = command else { return true };
        if self.undo.is_some() {
            return self.keep_up(now, path, terms);
        }
        self.count_some(now, path, terms)
    }

    fn prepare_group(&mut self, now: Timestamp, commands: &[(Envelope, Command)]) -> Preparation {
        let counted = self.counted_in_group(commands);
        if counted.len() > MAX_COUNTED_IN_GROUP {
            return Preparation::TooMuch;
        }
        if counted.into_iter().all(|(path, terms)| self.count_some(now, path, terms)) {
            Preparation::Finished
        } else {
            Preparation::Unfinished
        }
    }

    fn apply(&mut self, at: Timestamp, event: &Event) {
        let before = self.now;
        if at > before {
            self.now = at;
            self.remember(|| Undo::Time(before));
        }
        self.apply_event(at, event);
        if !self.jobs.index.held_up.is_empty()
            && let Some(account) = self.account_unblocked_by(event)
        {
            self.wake_blocked_jobs(at, account);
        }
    }

    fn now(&self) -> Timestamp {
        self.now
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.deadline(DuePart::First)
    }

    fn next_patient_deadline(&self) -> Option<Timestamp> {
        // Timers of jobs that become due within a group run after the group.
        if self.undo.is_none() { self.patient_deadline() } else { None }
    }

    fn next_pressing_deadline(&self) -> Option<Timestamp> {
        self.deadline(DuePart::Pressing)
    }

    fn decide_due(&self, now: Timestamp, events: &mut Vec<Event>) {
        self.push_due(now, DuePart::First, STEP, events);
    }

    fn decide_pressing_due(&self, now: Timestamp, events: &mut Vec<Event>) {
        self.push_due(now, DuePart::Pressing, STEP, events);
    }

    fn decide_one_due(&self, now: Timestamp, events: &mut Vec<Event>) {
        self.push_due(now, DuePart::First, 1, events);
    }

    fn message_name(_envelope: &Envelope, command: &Command) -> Option<(u64, u64)> {
        let Command::Receive { cell, number, .. } = command else { return None };
        Some((u64::from(cell.0), *number))
    }

    fn decide_set_aside(&self, stuck: Stuck<'_, Ledger>, events: &mut Vec<Event>) {
        match stuck {
            Stuck::Due => {
                if let Some(deadline) = self.next_deadline() {
                    self.push_due_aside(deadline, events);
                }
            }
            Stuck::Message(_, command) => self.push_message_aside(command, events),
        }
    }

    fn set_aside_count(&self) -> u64 {
        self.set_aside().len() as u64
    }

    fn parts(event: &Event) -> usize {
        event.parts()
    }

    fn begin_group(&mut self) {
        assert!(self.undo.is_none(), "groups do not nest");
        self.undo = Some(Vec::new());
    }

    fn commit_group(&mut self) {
        self.undo = None;
        self.tallies.end_group(true);
    }

    fn rollback_group(&mut self) {
        self.undo_all();
        self.tallies.end_group(false);
    }

    fn digest(&self) -> Digest {
        self.state_digest()
    }
}

impl Ledger {
    fn decide_command(
        &self,
        now: Timestamp,
        envelope: &Envelope,
        command: &Command,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        if let Some(record) = self.archived_target(envelope, command) {
            return self.decide_on_archived(&record.hold, command);
        }
        match command {
            Command::SetPolicy(policy) => {
                events.push(Event::PolicySet(*policy));
                Ok(Reply::Done)
            }
            Command::OpenAccount { path, kind, settings } => {
                self.decide_open_account(envelope, path, *kind, settings, events)
            }
            Command::ChangeAccount { path, settings, cleared } => {
                self.decide_change_account(path, settings, *cleared, events)
            }
            Command::FreezeAccount { path, by_platform } => {
                self.decide_freeze(path, *by_platform, events)
            }
            Command::UnfreezeAccount { path, by_platform } => {
                self.decide_unfreeze(path, *by_platform, events)
            }
            Command::IssueGrant(command) => self.decide_issue_grant(now, envelope, command, events),
            Command::RevokeGrant { tenant, grant } => self.decide_revoke(tenant, grant, events),
            Command::PlaceHold(command) => self.decide_place_hold(now, envelope, command, events),
            Command::CaptureHold { tenant, hold, usage, seq } => {
                let hold = self.movable_hold(tenant, hold)?;
                self.decide_capture(now, hold, *usage, *seq, events)
            }
            Command::ExtendHold { tenant, hold, amount, gpu_ms, ttl_ms } => {
                let hold = self.movable_hold(tenant, hold)?;
                self.decide_extend_hold(now, hold, *amount, *gpu_ms, *ttl_ms, events)
            }
            Command::SettleHold { tenant, hold, usage, cause } => {
                let hold = self.movable_hold(tenant, hold)?;
                self.decide_settle(now, hold, *usage, *cause, events)
            }
            Command::ReleaseHold { tenant, hold, cause } => {
                let hold = self.movable_hold(tenant, hold)?;
                self.decide_release(now, hold, *cause, events)
            }
            Command::Charge(command) => self.decide_charge(now, envelope, command, events),
            Command::Refund(command) => self.decide_refund(now, envelope, command, events),
            Command::Transfer(command) => self.decide_transfer(now, envelope, command, events),
            Command::CollectUncollected { path, id } => {
                self.decide_collect(envelope, path, id, events)
            }
            Command::SetBudget { path, budget, terms } => {
                self.decide_set_budget(now, path, budget, terms, events)
            }
            Command::RemoveBudget { path, budget } => {
                self.decide_remove_budget(path, budget, events)
            }
            Command::RestoreHold { record } => self.decide_restore_hold(record, events),
            Command::Forget(command) => self.decide_forget(now, command, events),
            Command::KeepBatch { aborted: None } => Ok(Reply::Done),
            Command::KeepBatch { aborted: Some(answer) } => {
                Err(Refusal::BatchAborted { answer: answer.clone() })
            }
            Command::OpenRegion { region, shard } => {
                self.decide_open_region(region, *shard, events)
            }
            Command::SetQuota { path, region, quota } => {
                self.decide_set_quota(path, region.as_ref(), quota, events)
            }
            Command::RemoveQuota { path, region } => {
                self.decide_remove_quota(path, region.as_ref(), events)
            }
            Command::SubmitJob(command) => self.decide_submit(now, envelope, command, events),
            Command::CancelJob { tenant, job } => {
                self.decide_cancel_named(now, tenant, job, events)
            }
            Command::ReportUsage { tenant, of, seq, usage, ended } => {
                let report = UsageReport { seq: *seq, usage: *usage, ended: *ended };
                self.decide_report(now, tenant, of, report, events)
            }
            Command::Receive { cell, number, position, message } => {
                self.decide_receive(now, *cell, *number, *position, message, events)
            }
        }
    }

    /// Pushes the record of a denied request for credits.
    fn push_denial(&self, command: &Command, refusal: &Refusal, events: &mut Vec<Event>) {
        if !refusal.denies_credits() {
            return;
        }
        let account = match command {
            Command::PlaceHold(command) => self.find_account(&command.account),
            Command::Charge(command) => self.find_account(&command.account),
            Command::Transfer(command) => self.find_account(&command.from),
            Command::CollectUncollected { path, .. } => self.find_account(path),
            Command::SubmitJob(command) => self.find_account(&command.account),
            Command::ExtendHold { tenant, hold, .. } => {
                let hold = self.existing_hold(tenant, hold).ok().and_then(|hold| self.hold(hold));
                hold.map(|hold| hold.account)
            }
            Command::SetPolicy(_)
            | Command::OpenAccount { .. }
            | Command::ChangeAccount { .. }
            | Command::FreezeAccount { .. }
            | Command::UnfreezeAccount { .. }
            | Command::IssueGrant(_)
            | Command::RevokeGrant { .. }
            | Command::CaptureHold { .. }
            | Command::SettleHold { .. }
            | Command::ReleaseHold { .. }
            | Command::Refund(_)
            | Command::SetBudget { .. }
            | Command::RemoveBudget { .. }
            | Command::RestoreHold { .. }
            | Command::OpenRegion { .. }
            | Command::SetQuota { .. }
            | Command::RemoveQuota { .. }
            | Command::CancelJob { .. }
            | Command::ReportUsage { .. }
            | Command::Forget(_)
            | Command::Receive { .. }
            | Command::KeepBatch { .. } => None,
        };
        if let Some(account) = account {
            let refusal = Box::new(refusal.clone());
            events.push(Event::CreditsDenied { account, refusal });
        }
    }

    fn apply_event(&mut self, at: Timestamp, event: &Event) {
        use fefo::Part::{Expired, Free, Revoked};
        match event {
            Event::PolicySet(policy) => {
                let before = std::mem::replace(&mut self.policy, *policy);
                self.remember(|| Undo::Policy(before));
            }
            Event::AccountOpened { account, path, kind, settings, fingerprint } => {
                self.apply_account_opened(*account, path, *kind, settings, *fingerprint);
            }
            Event::AccountChanged { account, settings, cleared } => {
                self.apply_account_changed(*account, settings, *cleared);
            }
            Event::AccountFrozen { account, by_platform } => {
                self.apply_frozen(*account, *by_platform);
            }
            Event::AccountUnfrozen { account } => self.apply_unfrozen(*account),
            Event::GrantIssued(issued) => self.apply_grant_issued(at, issued),
            Event::GrantActivated { grant } => self.apply_grant_activated(*grant),
            Event::GrantRevoked { grant, amount: _ } => self.apply_grant_revoked(*grant),
            Event::BucketExpired { bucket, amount: _ } => self.apply_bucket_expired(at, *bucket),
            Event::ExpiryReversed { pieces } => {
                pieces.iter().for_each(|piece| self.retag(*piece, Expired, Free));
            }
            Event::ReturnExpired { hold: _, pieces } => {
                pieces.iter().for_each(|piece| self.retag(*piece, Free, Expired));
            }
            Event::ReturnRevoked { hold: _, pieces } => {
                pieces.iter().for_each(|piece| self.retag(*piece, Free, Revoked));
            }
            Event::HoldPlaced(placed) => self.apply_hold_placed(at, placed),
            Event::HoldExtended { hold, pieces, gpu_ms, expires_at } => {
                self.apply_hold_extended(at, *hold, pieces, *gpu_ms, *expires_at);
            }
            Event::HoldCaptured { hold, seq, total, gpu_ms, taken, uncollected } => {
                let (seq, total, gpu_ms, uncollected) = (*seq, *total, *gpu_ms, *uncollected);
                let capture = Capture { seq, total, gpu_ms, taken, uncollected };
                self.apply_captured(at, *hold, &capture);
            }
            Event::HoldCut { hold, cut } => self.apply_hold_cut(*hold, cut),
            Event::HoldClosed { hold, state, cause, returned: _ } => {
                self.apply_closed(at, *hold, *state, *cause);
            }
            Event::Charged(charged) => self.apply_charged(at, charged),
            Event::Refunded { movement, hold, note: _ } => self.apply_refunded(at, movement, *hold),
            Event::CreditsMoved { movement, from, to: _, note: _ } => {
                self.apply_moved(at, movement, *from)
            }
            Event::DebtRepaid { movement, account } => {
                self.apply_collected(at, movement, *account);
            }
            Event::BudgetSet { account, budget, terms, period_start, spent, held } => {
                self.apply_budget_set(*account, budget, terms, (*period_start, *spent, *held));
            }
            Event::BudgetRemoved { account, budget } => self.apply_budget_removed(*account, budget),
            Event::BudgetThresholdReached { account, budget, percent, used: _ } => {
                self.apply_threshold(*account, budget, *percent);
            }
            Event::Answered { key, fingerprint, answer, request } => {
                let (fingerprint, request) = (*fingerprint, *request);
                let kept = KeptAnswer { fingerprint, answer: Arc::clone(answer), request };
                self.answers.push(KeptEntry { at, key: *key, kept });
                self.remember(|| Undo::Answered);
            }
            Event::CreditsDenied { account: _, refusal: _ } => {}
            Event::Forgotten { answers, holds, movements, buckets, jobs, archived } => {
                let (answers, holds, movements) = (*answers, *holds, *movements);
                match archived {
                    Some(archived) => {
                        self.apply_forgetting([answers, holds, movements, *jobs], archived);
                    }
                    None => self.apply_forgotten(at, [answers, holds, movements, *buckets, *jobs]),
                }
            }
            Event::HoldRestored { hold, record } => self.apply_revived(at, *hold, record),
            Event::RegionOpened { cell, region, shard } => {
                self.apply_region_opened(*cell, region, *shard);
            }
            Event::RegionPoliciesSent { cell, next } => {
                self.apply_region_policies_sent(*cell, *next)
            }
            Event::SetAside { what, digest: _ } => {
                self.aside.insert(*what);
            }
            Event::QuotaSet { account, region, quota } => {
                self.apply_quota(*account, region.as_ref(), Some(quota));
            }
            Event::QuotaRemoved { account, region } => {
                self.apply_quota(*account, region.as_ref(), None);
            }
            Event::JobSubmitted { job, order, after } => {
                self.apply_job_submitted(at, *job, order, after);
            }
            Event::HoldPinned { hold, rate, returned, expires_at } => {
                self.apply_hold_pinned(*hold, *rate, returned, *expires_at);
            }
            Event::AttemptConfirmed(confirmed) => {
                self.change_job(confirmed.job, |job| job.apply(at, event));
            }
            Event::AttemptStarted { job: of }
            | Event::AttemptFunded { job: of, .. }
            | Event::ExhaustionWarned { job: of, .. }
            | Event::AttemptStopping { job: of }
            | Event::AttemptEnded { job: of, .. }
            | Event::CancelRequested { job: of }
            | Event::DependenciesMet { job: of, .. } => {
                self.change_job(*of, |job| job.apply(at, event));
            }
            Event::JobEnded { job, state: _ } => self.apply_job_ended(at, *job, event),
            Event::BlockedJobsRechecked { tenant, next } => self.set_review(*tenant, *next),
            Event::CellMessageSent { cell, number, message } => {
                self.apply_message_sent(*cell, *number, message)
            }
            Event::MessageReceived { cell, number, position } => {
                self.apply_message_received(*cell, *number, *position);
            }
        }
    }
}
