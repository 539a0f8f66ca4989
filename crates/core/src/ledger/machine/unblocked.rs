//! Which account an event gives more room, so that its waiting jobs are looked at again.

use crate::ledger::event::Event;
use crate::ledger::id::AccountNo;
use crate::ledger::state::Ledger;

impl Ledger {
    /// The account whose blocked jobs may continue after an event.
    pub(super) fn account_unblocked_by(&self, event: &Event) -> Option<AccountNo> {
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
