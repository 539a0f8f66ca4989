//! Which job or hold an event is about.

use super::Event;
use crate::ledger::id::{HoldNo, JobNo};

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
