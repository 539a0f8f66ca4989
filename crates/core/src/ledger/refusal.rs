//! Why a command was not carried out, in the order in which the checks are made.

use std::fmt;

use super::command::BudgetUnit;
use super::holds::hold::HoldState;
use super::id::Name;
use super::jobs::JobState;
use crate::credits::Credits;
use crate::time::Timestamp;

/// A kind of thing that has a name.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
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

/// One reason why credits could not be drawn. A refusal lists all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocker {
    /// An account on the path is frozen.
    Frozen {
        /// That account.
        account: Name,
    },
    /// There are not enough credits.
    Credits {
        /// The account that wanted to spend.
        account: Name,
        /// How much it wanted.
        requested: Credits,
        /// How much it could have drawn.
        spendable: i128,
    },
    /// A hard budget has no room.
    Budget {
        /// The account that carries the budget.
        account: Name,
        /// The budget's name there.
        budget: Name,
        /// What the numbers below count: micro-credits, or for GPU-hours thousandths of
        /// GPU-milliseconds.
        unit: BudgetUnit,
        /// Its limit.
        limit: i128,
        /// What is spent in this period.
        spent: i128,
        /// What is held in this period.
        held: i128,
        /// What this command would have added.
        requested: i128,
        /// When the period ends; `None` for a budget that never starts anew.
        period_end: Option<Timestamp>,
    },
    /// As many jobs wait as may.
    WaitingJobs {
        /// The account that carries the quota.
        account: Name,
        /// The region that it counts in.
        region: Name,
        /// The most that may wait.
        limit: u32,
        /// How many wait now.
        waiting: u32,
        /// How many more were to wait.
        requested: u32,
    },
    /// A job that it must come after has not succeeded yet.
    Dependency {
        /// That job.
        job: Name,
        /// What it does now.
        state: JobState,
    },
}

/// Why the state of things forbids a command.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// The final total is below what was already captured.
    SettleBelowCaptured {
        /// What was captured.
        captured: Credits,
    },
    /// The refund is larger than what is still spent.
    RefundAboveSpent {
        /// What is still spent.
        spent: Credits,
    },
    /// Only what is closed can be refunded.
    StillOpen,
    /// GPU time was reported to a hold without a pinned rate.
    NoRate,
    /// Nothing is uncollected.
    NothingUncollected,
    /// The archived record does not match its digest or what the ledger knows.
    RecordMismatch,
    /// The hold belongs to a job: only what happens to the job moves it.
    HeldByJob,
    /// The job has ended.
    JobEnded {
        /// How.
        state: JobState,
    },
    /// The job is measured by the agents of its region, or waits for something.
    NotMeasuredByOthers,
    /// A job that it must come after has ended without success.
    DependencyFailed,
    /// Messages are taken one by one: this one comes too early.
    MessageSkipped {
        /// The number that is due.
        expected: u64,
    },
}

/// Why a command was not carried out. In order of precedence: the first that applies is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A field can never be right. Returned by every command that carries it.
    InvalidField {
        /// The field, as the API names it.
        field: &'static str,
        /// What it must be.
        reason: &'static str,
    },
    /// The idempotency key was used for another request. Returned by every command.
    IdempotencyKeyReused,
    /// There is no such thing. Returned by every command that names one.
    NotFound {
        /// What was looked for.
        what: Resource,
        /// Its name.
        name: Name,
    },
    /// The name is taken by a thing that was created differently. Returned by every creation.
    AlreadyExists {
        /// What was to be created.
        what: Resource,
        /// Its name.
        name: Name,
    },
    /// Only a key of the platform lifts a freeze that the platform made. Returned by unfreezing.
    FrozenByPlatform {
        /// The account.
        account: Name,
    },
    /// It was forgotten, or may have been since it was looked up, and what the archive has did not come with
    /// the command: it is looked up again. Returned by refunds, and by what creates something under an id
    /// that was looked up.
    Forgotten {
        /// What was forgotten.
        what: Resource,
        /// Its name.
        name: Name,
    },
    /// Usage is reported later than the ledger accepts. Returned by charges.
    TooLate {
        /// The earliest instant that is still accepted.
        earliest: Timestamp,
    },
    /// An account on the path is frozen. Returned by what draws credits.
    AccountFrozen {
        /// Every frozen account on the path, nearest first.
        blockers: Vec<Blocker>,
    },
    /// The hold was closed before, in another way. Returned by all that changes a hold.
    HoldClosed {
        /// How it was closed.
        state: HoldState,
    },
    /// The sequence number was seen with another total. Returned by captures.
    SequenceConflict {
        /// The total that came with that number first.
        seen: Credits,
    },
    /// The state of the thing forbids it.
    Conflict(Conflict),
    /// As many jobs wait as may. Returned by submissions.
    QuotaExceeded {
        /// Every quota that blocks, nearest account first.
        blockers: Vec<Blocker>,
    },
    /// Too few credits can be drawn. Budgets that block too are listed.
    InsufficientCredits {
        /// Everything that blocks.
        blockers: Vec<Blocker>,
    },
    /// A hard budget has no room.
    BudgetExceeded {
        /// Every budget that blocks, nearest first.
        blockers: Vec<Blocker>,
    },
    /// An atomic batch came to nothing. Returned under the batch's own idempotency key.
    BatchAborted {
        /// Why, in the words of the answer.
        told: Box<str>,
    },
}

impl Refusal {
    /// The pinned code, as the API gives it.
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

    /// Everything that blocks, where that is the reason.
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

    /// The pinned HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Refusal::InvalidField { .. } | Refusal::TooLate { .. } => 422,
            Refusal::FrozenByPlatform { .. } => 403,
            Refusal::NotFound { .. } => 404,
            Refusal::Forgotten { .. } => 503,
            Refusal::IdempotencyKeyReused
            | Refusal::AlreadyExists { .. }
            | Refusal::AccountFrozen { .. }
            | Refusal::HoldClosed { .. }
            | Refusal::SequenceConflict { .. }
            | Refusal::Conflict(_)
            | Refusal::QuotaExceeded { .. }
            | Refusal::BatchAborted { .. } => 409,
            Refusal::InsufficientCredits { .. } | Refusal::BudgetExceeded { .. } => 402,
        }
    }

    /// Whether the same command may succeed later without being changed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Refusal::Forgotten { .. }
            | Refusal::AccountFrozen { .. }
            | Refusal::QuotaExceeded { .. }
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
            | Refusal::BatchAborted { .. } => false,
        }
    }

    /// Whether the answer is kept for the request's idempotency key.
    pub fn is_remembered(&self) -> bool {
        matches!(self.status(), 402 | 409) && *self != Refusal::IdempotencyKeyReused
    }

    /// Whether credits were asked for and denied: such a refusal is part of the audit trail.
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
            Refusal::BatchAborted { told: "{}".into() },
        ]
    }

    #[test]
    fn codes_and_statuses_are_pinned() {
        let pinned: Vec<(&str, u16, bool, bool)> = one_of_each()
            .iter()
            .map(|r| (r.code(), r.status(), r.is_retryable(), r.is_remembered()))
            .collect();
        assert_eq!(
            pinned,
            [
                ("invalid_field", 422, false, false),
                ("idempotency_key_reused", 409, false, false),
                ("not_found", 404, false, false),
                ("already_exists", 409, false, true),
                ("forbidden", 403, false, false),
                ("unavailable", 503, true, false),
                ("too_late", 422, false, false),
                ("account_frozen", 409, true, true),
                ("hold_closed", 409, false, true),
                ("sequence_conflict", 409, false, true),
                ("conflict", 409, false, true),
                ("conflict", 409, true, true),
                ("insufficient_credits", 402, true, true),
                ("budget_exceeded", 402, true, true),
                ("batch_aborted", 409, false, true),
            ]
        );
    }
}
