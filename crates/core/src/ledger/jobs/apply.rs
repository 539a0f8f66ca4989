//! The effects of events on one job. The ledger and the look-up of forgotten jobs use the same
//! functions.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{Attempt, AttemptEnd, Job, JobOrder, JobState};
use crate::credits::Credits;
use crate::ledger::event::{AttemptConfirmed, Event, HoldPlaced, total};
use crate::ledger::id::JobNo;
use crate::time::Timestamp;

impl Job {
    /// A job as it is submitted.
    pub fn submitted(at: Timestamp, order: &Arc<JobOrder>, after: &[JobNo]) -> Job {
        Job {
            order: Arc::clone(order),
            state: JobState::Queued,
            submitted_at: at,
            ended_at: None,
            reserved: Credits::ZERO,
            hold: None,
            hold_name: None,
            holds: 0,
            after: after.to_vec(),
            standings: SmallVec::new(),
            attempts: Vec::new(),
            highest: 0,
            cancel_asked: false,
        }
    }

    /// Applies an event of this job or of its hold. Other events change nothing. The ledger
    /// maintains the standings in cells.
    pub fn apply(&mut self, at: Timestamp, event: &Event) {
        match event {
            Event::HoldPlaced(placed) => self.held(placed),
            Event::HoldClosed { hold, .. } => {
                if self.hold == Some(*hold) {
                    self.hold = None;
                }
            }
            Event::AttemptConfirmed(confirmed) => self.confirmed(at, confirmed),
            Event::AttemptStarted { job: _ } => self.started(at),
            Event::AttemptFunded { job: _, funded_ms, overdraft, short, credits_ms } => {
                self.funded(at, (*funded_ms, *overdraft), (*short, *credits_ms));
            }
            Event::ExhaustionWarned { job: _, ends_at: _, then } => {
                if let Some(attempt) = self.attempts.last_mut() {
                    attempt.warned = Some(*then);
                }
            }
            Event::AttemptStopping { job: _ } => self.state = JobState::Stopping,
            Event::AttemptEnded { job: _, end } => self.attempt_ended(*end),
            Event::CancelRequested { job: _ } => {
                self.state = JobState::Stopping;
                self.cancel_asked = true;
            }
            Event::DependenciesMet { job: _, met } => {
                self.after.retain(|awaited| !met.contains(awaited));
            }
            Event::JobEnded { job: _, state } => self.ended(at, *state),
            Event::JobSubmitted { .. }
            | Event::PolicySet(_)
            | Event::AccountOpened { .. }
            | Event::AccountChanged { .. }
            | Event::AccountFrozen { .. }
            | Event::AccountUnfrozen { .. }
            | Event::GrantIssued(_)
            | Event::GrantActivated { .. }
            | Event::GrantRevoked { .. }
            | Event::BucketExpired { .. }
            | Event::ExpiryReversed { .. }
            | Event::ReturnExpired { .. }
            | Event::ReturnRevoked { .. }
            | Event::HoldExtended { .. }
            | Event::HoldPinned { .. }
            | Event::HoldCaptured { .. }
            | Event::HoldCut { .. }
            | Event::Charged(_)
            | Event::Refunded { .. }
            | Event::CreditsMoved { .. }
            | Event::DebtRepaid { .. }
            | Event::BudgetSet { .. }
            | Event::BudgetRemoved { .. }
            | Event::BudgetThresholdReached { .. }
            | Event::Answered { .. }
            | Event::CreditsDenied { .. }
            | Event::Forgotten { .. }
            | Event::HoldRestored { .. }
            | Event::RegionOpened { .. }
            | Event::RegionPoliciesSent { .. }
            | Event::SetAside { .. }
            | Event::QuotaSet { .. }
            | Event::QuotaRemoved { .. }
            | Event::BlockedJobsRechecked { .. }
            | Event::CellMessageSent { .. }
            | Event::MessageReceived { .. } => {}
        }
    }

    /// Records a new hold.
    pub(in crate::ledger) fn held(&mut self, placed: &HoldPlaced) {
        if self.holds == 0 {
            let amount = Credits::from_length(total(&placed.pieces));
            self.reserved = amount.unwrap_or(Credits::MAX);
        }
        self.hold = Some(placed.hold);
        self.hold_name = Some(placed.id.clone());
        self.holds += 1;
    }

    fn confirmed(&mut self, at: Timestamp, confirmed: &AttemptConfirmed) {
        self.state = JobState::Starting;
        self.highest = self.highest.max(confirmed.number);
        self.attempts.push(Attempt {
            cell: confirmed.cell,
            number: confirmed.number,
            gpu_type: confirmed.gpu_type.clone(),
            nodes: confirmed.nodes.clone(),
            per_gpu_hour: confirmed.per_gpu_hour,
            hold: self.hold.and(self.hold_name.clone()),
            confirmed_at: at,
            started_at: None,
            funded_ms: confirmed.funded_ms,
            overdraft: 0,
            short: false,
            credits_ms: None,
            warned: None,
            end: None,
        });
    }

    fn started(&mut self, at: Timestamp) {
        if self.state == JobState::Starting {
            self.state = JobState::Running;
        }
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.started_at = Some(at);
        }
    }

    fn funded(
        &mut self,
        at: Timestamp,
        (funded_ms, overdraft): (Option<i64>, u64),
        (short, credits_ms): (bool, Option<i64>),
    ) {
        let ahead_ms = self.order.terms.warn_ahead_ms;
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.funded_ms = funded_ms;
            attempt.overdraft = overdraft;
            attempt.short = short;
            attempt.credits_ms = credits_ms;
            attempt.settle_warnings(at, ahead_ms);
        }
    }

    fn attempt_ended(&mut self, end: AttemptEnd) {
        self.state = JobState::Queued;
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.end = Some(end);
        }
    }

    /// Records the end. The job has no open hold.
    fn ended(&mut self, at: Timestamp, state: JobState) {
        self.state = state;
        self.ended_at = Some(at);
        self.hold = None;
        self.standings.clear();
        self.after.clear();
    }
}
