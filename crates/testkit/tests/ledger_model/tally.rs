//! Counts the commands, answers and events of the compared worlds.

use std::collections::BTreeMap;
use std::fmt;

use bursar_core::ledger::Event;
use bursar_core::ledger::command::Command;
use bursar_core::ledger::event::GrantOrigin;
use bursar_core::ledger::refusal::{Blocker, Refusal};
use bursar_core::time::Timestamp;
use bursar_testkit::compare::Code;

/// The frequency of each answer to each command, and of each event.
#[derive(Default)]
pub(crate) struct Tally {
    answers: BTreeMap<(&'static str, Code), u64>,
    events: BTreeMap<&'static str, u64>,
}

/// Events that must occur in a sufficiently long run.
const EVERYTHING: [&str; 30] = [
    "PolicySet",
    "AccountOpened",
    "AccountChanged",
    "AccountFrozen",
    "AccountUnfrozen",
    "GrantIssued",
    "GrantIssued as compensation",
    "GrantIssued by transfer",
    "GrantActivated",
    "GrantRevoked",
    "BucketExpired",
    "ExpiryReversed",
    "ReturnExpired",
    "ReturnRevoked",
    "HoldPlaced",
    "HoldExtended",
    "HoldCaptured",
    "HoldCaptured short of credits",
    "HoldCut",
    "HoldClosed",
    "Charged",
    "Refunded",
    "CreditsMoved",
    "DebtRepaid",
    "BudgetSet",
    "BudgetRemoved",
    "BudgetThresholdReached",
    "CreditsDenied by several budgets",
    "CreditsDenied by credits and a budget",
    "Answered",
];

impl Tally {
    pub(crate) fn count_command(&mut self, command: &Command, code: Code) {
        *self.answers.entry((name_of_command(command), code)).or_default() += 1;
    }

    pub(crate) fn count_events(&mut self, journal: &[(Timestamp, Event)]) {
        for (_, event) in journal {
            *self.events.entry(name_of_event(event)).or_default() += 1;
        }
    }

    pub(crate) fn add(&mut self, other: Tally) {
        for (case, count) in other.answers {
            *self.answers.entry(case).or_default() += count;
        }
        for (name, count) in other.events {
            *self.events.entry(name).or_default() += count;
        }
    }

    /// Fails if an event never occurred, because then the comparison did not cover it.
    pub(crate) fn require_everything(&self, commands: u64) {
        if commands < 50_000 {
            return;
        }
        for name in EVERYTHING {
            assert!(self.events.contains_key(name), "{name} never occurred");
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} commands compared", self.answers.values().sum::<u64>())?;
        for ((command, code), count) in &self.answers {
            writeln!(f, "{count:>9}  {command} {code}")?;
        }
        writeln!(f, "events:")?;
        for (event, count) in &self.events {
            writeln!(f, "{count:>9}  {event}")?;
        }
        Ok(())
    }
}

fn name_of_command(command: &Command) -> &'static str {
    match command {
        Command::SetPolicy(_) => "SetPolicy",
        Command::OpenAccount { .. } => "OpenAccount",
        Command::ChangeAccount { .. } => "ChangeAccount",
        Command::FreezeAccount { .. } => "FreezeAccount",
        Command::UnfreezeAccount { .. } => "UnfreezeAccount",
        Command::IssueGrant(_) => "IssueGrant",
        Command::RevokeGrant { .. } => "RevokeGrant",
        Command::PlaceHold(_) => "PlaceHold",
        Command::CaptureHold { .. } => "CaptureHold",
        Command::ExtendHold { .. } => "ExtendHold",
        Command::SettleHold { .. } => "SettleHold",
        Command::ReleaseHold { .. } => "ReleaseHold",
        Command::Charge(_) => "Charge",
        Command::Refund(_) => "Refund",
        Command::Transfer(_) => "Transfer",
        Command::CollectUncollected { .. } => "CollectUncollected",
        Command::SetBudget { .. } => "SetBudget",
        Command::RemoveBudget { .. } => "RemoveBudget",
        Command::RestoreHold { .. } => "RestoreHold",
        Command::Forget(_) => "Forget",
        Command::OpenRegion { .. } => "OpenRegion",
        Command::SetQuota { .. } => "SetQuota",
        Command::RemoveQuota { .. } => "RemoveQuota",
        Command::SubmitJob(_) => "SubmitJob",
        Command::CancelJob { .. } => "CancelJob",
        Command::ReportUsage { .. } => "ReportUsage",
        Command::Receive { .. } => "Receive",
        Command::KeepBatch { .. } => "KeepBatch",
    }
}

fn name_of_event(event: &Event) -> &'static str {
    match event {
        Event::PolicySet(_) => "PolicySet",
        Event::AccountOpened { .. } => "AccountOpened",
        Event::AccountChanged { .. } => "AccountChanged",
        Event::AccountFrozen { .. } => "AccountFrozen",
        Event::AccountUnfrozen { .. } => "AccountUnfrozen",
        Event::GrantIssued(issued) => match issued.origin {
            GrantOrigin::Issued => "GrantIssued",
            GrantOrigin::Compensation { .. } => "GrantIssued as compensation",
            GrantOrigin::Transfer { .. } => "GrantIssued by transfer",
        },
        Event::GrantActivated { .. } => "GrantActivated",
        Event::GrantRevoked { .. } => "GrantRevoked",
        Event::BucketExpired { .. } => "BucketExpired",
        Event::ExpiryReversed { .. } => "ExpiryReversed",
        Event::ReturnExpired { .. } => "ReturnExpired",
        Event::ReturnRevoked { .. } => "ReturnRevoked",
        Event::HoldPlaced(_) => "HoldPlaced",
        Event::HoldExtended { .. } => "HoldExtended",
        Event::HoldCaptured { uncollected: 0, .. } => "HoldCaptured",
        Event::HoldCaptured { .. } => "HoldCaptured short of credits",
        Event::HoldCut { .. } => "HoldCut",
        Event::HoldClosed { .. } => "HoldClosed",
        Event::Charged(_) => "Charged",
        Event::Refunded { .. } => "Refunded",
        Event::CreditsMoved { .. } => "CreditsMoved",
        Event::DebtRepaid { .. } => "DebtRepaid",
        Event::BudgetSet { .. } => "BudgetSet",
        Event::BudgetRemoved { .. } => "BudgetRemoved",
        Event::BudgetThresholdReached { .. } => "BudgetThresholdReached",
        Event::Answered { .. } => "Answered",
        Event::CreditsDenied { account: _, refusal } => name_of_denial(refusal),
        Event::Forgotten { .. } => "Forgotten",
        Event::HoldRestored { .. } => "HoldRestored",
        Event::RegionOpened { .. } => "RegionOpened",
        Event::RegionPoliciesSent { .. } => "RegionPoliciesSent",
        Event::SetAside { .. } => "SetAside",
        Event::QuotaSet { .. } => "QuotaSet",
        Event::QuotaRemoved { .. } => "QuotaRemoved",
        Event::JobSubmitted { .. } => "JobSubmitted",
        Event::HoldPinned { .. } => "HoldPinned",
        Event::AttemptConfirmed(_) => "AttemptConfirmed",
        Event::AttemptStarted { .. } => "AttemptStarted",
        Event::AttemptFunded { .. } => "AttemptFunded",
        Event::ExhaustionWarned { .. } => "ExhaustionWarned",
        Event::AttemptStopping { .. } => "AttemptStopping",
        Event::AttemptEnded { .. } => "AttemptEnded",
        Event::CancelRequested { .. } => "CancelRequested",
        Event::DependenciesMet { .. } => "DependenciesMet",
        Event::JobEnded { .. } => "JobEnded",
        Event::BlockedJobsRechecked { .. } => "BlockedJobsRechecked",
        Event::CellMessageSent { .. } => "CellMessageSent",
        Event::MessageReceived { .. } => "MessageReceived",
    }
}

fn name_of_denial(refusal: &Refusal) -> &'static str {
    if let Refusal::BudgetExceeded { blockers } = refusal
        && blockers.len() > 1
    {
        return "CreditsDenied by several budgets";
    }
    let is_budget = |blocker: &Blocker| matches!(blocker, Blocker::Budget { .. });
    if let Refusal::InsufficientCredits { blockers } = refusal
        && blockers.iter().any(is_budget)
    {
        return "CreditsDenied by credits and a budget";
    }
    "CreditsDenied"
}
