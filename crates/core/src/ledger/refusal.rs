//! The refusals of a ledger, in the order of the checks.

use std::fmt;

use super::command::BudgetUnit;
use super::holds::hold::HoldState;
use super::id::Name;
use super::jobs::JobState;
use crate::credits::Credits;
use crate::name::{AccountPath, BudgetName, JobName, Region};
use crate::opaque::Opaque;
use crate::time::Timestamp;

/// A kind of resource with a name.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// An account, named by its path.
    Account,
    /// A grant.
    Grant,
    /// A hold.
    Hold,
    /// A charge.
    Charge,
    /// A refund.
    Refund,
    /// A transfer.
    Transfer,
    /// A repayment of uncollected usage.
    Collection,
    /// A budget, named within its account.
    Budget,
    /// A job.
    Job,
    /// A region, or the cell that schedules it.
    Region,
    /// A quota, named by its account.
    Quota,
}

/// One reason why a command is refused or a job waits. All of them are listed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Blocker {
    /// An account on the path is frozen.
    Frozen {
        /// That account.
        account: AccountPath,
    },
    /// There are not enough credits.
    Credits {
        /// The account that spends.
        account: AccountPath,
        /// The requested amount.
        requested: Credits,
        /// The amount that it could have drawn.
        spendable: i128,
    },
    /// A hard budget would be exceeded.
    Budget {
        /// The account of the budget.
        account: AccountPath,
        /// The budget's name there.
        budget: BudgetName,
        /// The unit of the numbers below: micro-credits, or thousandths of GPU-milliseconds for
        /// GPU-hours.
        unit: BudgetUnit,
        /// Its limit.
        limit: i128,
        /// The amount spent in this period.
        spent: i128,
        /// The amount held in this period.
        held: i128,
        /// The amount that this command would have added.
        requested: i128,
        /// When the period ends; `None` for a budget without periods.
        period_end: Option<Timestamp>,
    },
    /// The quota of waiting jobs is used up.
    WaitingJobs {
        /// The account of the quota.
        account: AccountPath,
        /// The region in which it applies.
        region: Region,
        /// The limit.
        limit: u32,
        /// The number of waiting jobs.
        waiting: u32,
        /// The number of jobs in the submission.
        requested: u32,
    },
    /// A dependency has not succeeded yet.
    Dependency {
        /// That job.
        job: JobName,
        /// Its state.
        state: JobState,
    },
}

/// Why a command is not allowed in the current state.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Conflict {
    /// The final total is below what was already captured.
    SettleBelowCaptured {
        /// The captured amount.
        captured: Credits,
    },
    /// The refund is larger than the amount that is not refunded yet.
    RefundAboveSpent {
        /// The amount that is not refunded yet.
        spent: Credits,
    },
    /// The hold or job has not ended, so it cannot be refunded.
    StillOpen,
    /// GPU time was reported to a hold without a pinned rate.
    NoRate,
    /// Nothing is uncollected.
    NothingUncollected,
    /// The archived record contradicts itself or the state of the ledger.
    RecordMismatch,
    /// The hold belongs to a job, and only the job changes it.
    HeldByJob,
    /// The job has ended.
    JobEnded {
        /// Its final state.
        state: JobState,
    },
    /// The job is metered by the agents of its region, or waits for credits or other jobs.
    NotMeasuredByOthers,
    /// A dependency has ended without success.
    DependencyFailed,
    /// The message is not the next one in order.
    MessageSkipped {
        /// The next expected number.
        expected: u64,
    },
}

/// Why a command was refused. In order of precedence: the first that applies is returned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// A field is invalid in every state. Returned by every command that carries it.
    InvalidField {
        /// The field, as the API names it.
        field: &'static str,
        /// What it must be.
        reason: &'static str,
    },
    /// The idempotency key was used for another request. Returned by every command.
    IdempotencyKeyReused,
    /// The resource does not exist. Returned by every command that names one.
    NotFound {
        /// The kind of the resource.
        what: Resource,
        /// Its name.
        name: Name,
    },
    /// The name is taken by a resource that another request created. Returned by every creation.
    AlreadyExists {
        /// The kind of the resource.
        what: Resource,
        /// Its name.
        name: Name,
    },
    /// Only a key of the platform can unfreeze an account that the platform froze. Returned by
    /// unfreezing.
    FrozenByPlatform {
        /// The account.
        account: AccountPath,
    },
    /// It was forgotten, or may have been since it was looked up, and what the archive has did not come with
    /// the command: it is looked up again. Returned by refunds, and by what creates something under an id
    /// that was looked up.
    Forgotten {
        /// The kind of the resource.
        what: Resource,
        /// Its name.
        name: Name,
    },
    /// Usage is reported later than the ledger accepts. Returned by charges.
    TooLate {
        /// The earliest instant that is still accepted.
        earliest: Timestamp,
    },
    /// An account on the path is frozen. Returned by commands that draw credits.
    AccountFrozen {
        /// Every frozen account on the path, nearest first.
        blockers: Vec<Blocker>,
    },
    /// The hold was closed before, in another way. Returned by commands that change a hold.
    HoldClosed {
        /// How it was closed.
        state: HoldState,
    },
    /// The sequence number was seen with another total. Returned by captures.
    SequenceConflict {
        /// The total that was first reported with that number.
        seen: Credits,
    },
    /// Not allowed in the current state.
    Conflict(Conflict),
    /// The quota of waiting jobs is used up. Returned by submissions.
    QuotaExceeded {
        /// Every quota that blocks, nearest account first.
        blockers: Vec<Blocker>,
    },
    /// Too few credits can be drawn. Blocking budgets are listed too.
    InsufficientCredits {
        /// All blockers.
        blockers: Vec<Blocker>,
    },
    /// A hard budget would be exceeded.
    BudgetExceeded {
        /// Every budget that blocks, nearest first.
        blockers: Vec<Blocker>,
    },
    /// An atomic batch was rolled back. Returned under the batch's own idempotency key.
    BatchAborted {
        /// What the server needs to answer the same again.
        answer: Opaque,
    },
}

impl Refusal {
    /// The stable code of the API.
    pub fn code(&self) -> &'static str {
        match self {
            Refusal::InvalidField { .. } => "invalid_field",
            Refusal::IdempotencyKeyReused => "idempotency_key_reused",
            Refusal::NotFound { .. } => "not_found",
            Refusal::AlreadyExists { .. } => "already_exists",
            Refusal::FrozenByPlatform { .. } => "forbidden",
            Refusal::Forgotten { .. } => "unavailable",
            Refusal::TooLate { .. } => "too_late",
            Refusal::AccountFrozen { .. } => "account_frozen",
            Refusal::HoldClosed { .. } => "hold_closed",
            Refusal::SequenceConflict { .. } => "sequence_conflict",
            Refusal::Conflict(_) | Refusal::QuotaExceeded { .. } => "conflict",
            Refusal::InsufficientCredits { .. } => "insufficient_credits",
            Refusal::BudgetExceeded { .. } => "budget_exceeded",
            Refusal::BatchAborted { .. } => "batch_aborted",
        }
    }

    /// All blockers, if the refusal has any.
    pub fn blockers(&self) -> &[Blocker] {
        match self {
            Refusal::AccountFrozen { blockers }
            | Refusal::QuotaExceeded { blockers }
            | Refusal::InsufficientCredits { blockers }
            | Refusal::BudgetExceeded { blockers } => blockers,
            Refusal::InvalidField { .. }
            | Refusal::IdempotencyKeyReused
            | Refusal::NotFound { .. }
            | Refusal::AlreadyExists { .. }
            | Refusal::FrozenByPlatform { .. }
            | Refusal::Forgotten { .. }
            | Refusal::TooLate { .. }
            | Refusal::HoldClosed { .. }
            | Refusal::SequenceConflict { .. }
            | Refusal::Conflict(_)
            | Refusal::BatchAborted { .. } => &[],
        }
    }

    /// Whether the same command may succeed later without being changed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Refusal::Forgotten { .. }
            | Refusal::AccountFrozen { .. }
            | Refusal::InsufficientCredits { .. }
            | Refusal::BudgetExceeded { .. } => true,
            Refusal::InvalidField { .. }
            | Refusal::IdempotencyKeyReused
            | Refusal::NotFound { .. }
            | Refusal::AlreadyExists { .. }
            | Refusal::FrozenByPlatform { .. }
            | Refusal::TooLate { .. }
            | Refusal::HoldClosed { .. }
            | Refusal::SequenceConflict { .. }
            | Refusal::Conflict(_)
            | Refusal::QuotaExceeded { .. }
            | Refusal::BatchAborted { .. } => false,
        }
    }

    /// Whether the answer is kept for the request's idempotency key.
    pub fn is_remembered(&self) -> bool {
        match self {
            Refusal::AlreadyExists { .. }
            | Refusal::AccountFrozen { .. }
            | Refusal::HoldClosed { .. }
            | Refusal::SequenceConflict { .. }
            | Refusal::Conflict(_)
            | Refusal::QuotaExceeded { .. }
            | Refusal::InsufficientCredits { .. }
            | Refusal::BudgetExceeded { .. }
            | Refusal::BatchAborted { .. } => true,
            Refusal::InvalidField { .. }
            | Refusal::IdempotencyKeyReused
            | Refusal::NotFound { .. }
            | Refusal::FrozenByPlatform { .. }
            | Refusal::Forgotten { .. }
            | Refusal::TooLate { .. } => false,
        }
    }

    /// Whether a request for credits was denied. Such a refusal is part of the audit trail.
    pub fn denies_credits(&self) -> bool {
        matches!(
            self,
            Refusal::AccountFrozen { .. }
                | Refusal::InsufficientCredits { .. }
                | Refusal::BudgetExceeded { .. }
        )
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_of_each() -> Vec<Refusal> {
        vec![
            Refusal::InvalidField { field: "amount", reason: "must be positive" },
            Refusal::IdempotencyKeyReused,
            Refusal::NotFound { what: Resource::Hold, name: "h".into() },
            Refusal::AlreadyExists { what: Resource::Hold, name: "h".into() },
            Refusal::FrozenByPlatform { account: "acme".into() },
            Refusal::Forgotten { what: Resource::Hold, name: "h".into() },
            Refusal::TooLate { earliest: Timestamp::MIN },
            Refusal::AccountFrozen { blockers: vec![] },
            Refusal::HoldClosed { state: HoldState::Settled },
            Refusal::SequenceConflict { seen: Credits::ZERO },
            Refusal::Conflict(Conflict::StillOpen),
            Refusal::QuotaExceeded { blockers: vec![] },
            Refusal::InsufficientCredits { blockers: vec![] },
            Refusal::BudgetExceeded { blockers: vec![] },
            Refusal::BatchAborted { answer: "{}".into() },
        ]
    }

    #[test]
    fn codes_are_pinned() {
        let pinned: Vec<(&str, bool, bool)> =
            one_of_each().iter().map(|r| (r.code(), r.is_retryable(), r.is_remembered())).collect();
        assert_eq!(
            pinned,
            [
                ("invalid_field", false, false),
                ("idempotency_key_reused", false, false),
                ("not_found", false, false),
                ("already_exists", false, true),
                ("forbidden", false, false),
                ("unavailable", true, false),
                ("too_late", false, false),
                ("account_frozen", true, true),
                ("hold_closed", false, true),
                ("sequence_conflict", false, true),
                ("conflict", false, true),
                ("conflict", false, true),
                ("insufficient_credits", true, true),
                ("budget_exceeded", true, true),
                ("batch_aborted", false, true),
            ]
        );
    }
}
