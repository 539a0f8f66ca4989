//! Which job or hold an event is about, and which account gets more room by it, so that its waiting jobs are
//! reviewed again.

use super::Event;
use crate::ledger::id::{AccountNo, HoldNo, JobNo};
use crate::ledger::state::Ledger;

/// The subject of an event.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A job.
    Job(JobNo),
    /// A hold or charge that existed before the event. Numbers are reused, so the number alone does
    /// not identify it in the past.
    Hold(HoldNo),
    /// Neither of them, or a new hold or charge that belongs to no job.
    Other,
}

impl Subject {
    /// The hold or charge that existed before the event.
    pub fn hold(self) -> Option<HoldNo> {
        match self {
            Subject::Hold(hold) => Some(hold),
            Subject::Job(_) | Subject::Other => None,
        }
    }
}

impl Event {
    /// The subject of the event.
    pub fn subject(&self) -> Subject {
        match self {
            Event::JobSubmitted { job, .. }
            | Event::AttemptStarted { job }
            | Event::AttemptFunded { job, .. }
            | Event::ExhaustionWarned { job, .. }
            | Event::AttemptStopping { job }
            | Event::AttemptEnded { job, .. }
            | Event::CancelRequested { job }
            | Event::DependenciesMet { job, .. }
            | Event::JobEnded { job, .. } => Subject::Job(*job),
            Event::AttemptConfirmed(confirmed) => Subject::Job(confirmed.job),
            Event::HoldPlaced(placed) => placed.job.map_or(Subject::Other, Subject::Job),
            Event::ReturnExpired { hold, .. }
            | Event::ReturnRevoked { hold, .. }
            | Event::HoldExtended { hold, .. }
            | Event::HoldCaptured { hold, .. }
            | Event::HoldCut { hold, .. }
            | Event::HoldClosed { hold, .. }
            | Event::HoldPinned { hold, .. }
            | Event::HoldRestored { hold, .. }
            | Event::Refunded { hold, .. } => Subject::Hold(*hold),
            Event::PolicySet(_)
            | Event::Answered { .. }
            | Event::Forgotten { .. }
            | Event::AccountOpened { .. }
            | Event::AccountChanged { .. }
            | Event::AccountFrozen { .. }
            | Event::AccountUnfrozen { .. }
            | Event::GrantIssued(_)
            | Event::GrantActivated { .. }
            | Event::GrantRevoked { .. }
            | Event::BucketExpired { .. }
            | Event::ExpiryReversed { .. }
            | Event::Charged(_)
            | Event::CreditsMoved { .. }
            | Event::DebtRepaid { .. }
            | Event::BudgetSet { .. }
            | Event::BudgetRemoved { .. }
            | Event::BudgetThresholdReached { .. }
            | Event::CreditsDenied { .. }
            | Event::QuotaSet { .. }
            | Event::QuotaRemoved { .. }
            | Event::RegionOpened { .. }
            | Event::RegionPoliciesSent { .. }
            | Event::SetAside { .. }
            | Event::BlockedJobsRechecked { .. }
            | Event::CellMessageSent { .. }
            | Event::MessageReceived { .. } => Subject::Other,
        }
    }
}

impl Ledger {
    /// The account whose blocked jobs may continue after an event.
    pub(in crate::ledger) fn account_unblocked_by(&self, event: &Event) -> Option<AccountNo> {
        match event {
            Event::AccountUnfrozen { account }
            | Event::BudgetSet { account, .. }
            | Event::BudgetRemoved { account, .. } => Some(*account),
            // A higher overdraft limit or a repayment lets short jobs continue.
            Event::AccountChanged { account, .. } | Event::DebtRepaid { account, .. } => {
                Some(*account).filter(|account| self.has_short(self.account(*account).tenant))
            }
            Event::GrantIssued(issued) => Some(issued.account),
            Event::GrantActivated { grant } => Some(self.grant(*grant).account),
            Event::HoldClosed { hold, .. }
            | Event::HoldPinned { hold, .. }
            | Event::Refunded { hold, .. } => Some(self.live_hold(*hold).account),
            Event::PolicySet(_)
            | Event::AccountOpened { .. }
            | Event::AccountFrozen { .. }
            | Event::GrantRevoked { .. }
            | Event::BucketExpired { .. }
            | Event::ExpiryReversed { .. }
            | Event::ReturnExpired { .. }
            | Event::ReturnRevoked { .. }
            | Event::HoldPlaced(_)
            | Event::HoldExtended { .. }
            | Event::HoldCaptured { .. }
            | Event::HoldCut { .. }
            | Event::Charged(_)
            | Event::CreditsMoved { .. }
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
            | Event::JobSubmitted { .. }
            | Event::AttemptConfirmed(_)
            | Event::AttemptStarted { .. }
            | Event::AttemptFunded { .. }
            | Event::AttemptStopping { .. }
            | Event::AttemptEnded { .. }
            | Event::CancelRequested { .. }
            | Event::DependenciesMet { .. }
            | Event::JobEnded { .. }
            | Event::BlockedJobsRechecked { .. }
            | Event::CellMessageSent { .. }
            | Event::MessageReceived { .. }
            | Event::ExhaustionWarned { .. } => None,
        }
    }
}
