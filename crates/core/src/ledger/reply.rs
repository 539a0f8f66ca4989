//! The replies of a ledger. They are small, because answers are kept for their idempotency keys:
//! data that can be read from the state is not repeated here.

use super::command::{AccountSettings, BudgetTerms};
use super::holds::archive::RecalledRecord;
use super::holds::hold::HoldState;
use super::id::{AccountNo, CellNo, GrantNo, HoldNo, JobNo};
use super::index::idempotency::Refers;
use super::jobs::JobState;
use super::refusal::Refusal;
use crate::credits::Credits;
use crate::name::BudgetName;
use crate::time::Timestamp;

/// The reply to an accepted command.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// The command was accepted, without further data.
    Done,
    /// An account as it was when the command was answered.
    Account(Box<AccountReply>),
    /// A grant and its units by state, indexed by the number of [`fefo::Part`].
    Grant {
        /// The grant.
        grant: GrantNo,
        /// The number of units in each state.
        parts: [u64; 6],
    },
    /// A hold as it was when the command was answered.
    Hold(HoldReply),
    /// A charge.
    Charge {
        /// The charge.
        hold: HoldNo,
        /// The requested amount.
        requested: Credits,
        /// How much was spent.
        charged: Credits,
        /// What the account could still spend in the same context afterwards.
        spendable_after: i128,
    },
    /// A refund, transfer or collection.
    Movement {
        /// Its number.
        movement: u32,
        /// How much moved.
        amount: Credits,
    },
    /// A budget as it was when the command was answered.
    Budget(Box<BudgetReply>),
    /// Jobs that were submitted together, with consecutive numbers.
    Jobs {
        /// The first of them.
        first: JobNo,
        /// The number of jobs; more than one for an array.
        count: u32,
    },
    /// A job as it was when the command was answered.
    Job {
        /// The job.
        job: JobNo,
        /// Its state.
        state: JobState,
    },
    /// A cell, by its number.
    Region(CellNo),
    /// A message from a cell.
    Received {
        /// Whether it was taken now; false if it was taken before.
        taken: bool,
    },
    /// A hold, charge or movement as the archive has it: the ledger has forgotten it.
    Archived(Box<RecalledRecord>),
}

impl Reply {
    /// What it refers to by a number that is used again.
    pub(in crate::ledger) fn refers_to(&self) -> Option<Refers> {
        match self {
            Reply::Hold(reply) => Some(Refers::Hold(reply.hold)),
            Reply::Charge { hold, .. } => Some(Refers::Hold(*hold)),
            Reply::Movement { movement, .. } => Some(Refers::Movement(*movement)),
            Reply::Done
            | Reply::Account(_)
            | Reply::Grant { .. }
            | Reply::Budget(_)
            | Reply::Jobs { .. }
            | Reply::Job { .. }
            | Reply::Region(_)
            | Reply::Received { .. }
            | Reply::Archived(_) => None,
        }
    }
}

/// The fields of an account that may change later, as they were when a command was answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AccountReply {
    /// The account.
    pub account: AccountNo,
    /// Its settings.
    pub settings: AccountSettings,
    /// Whether spending was stopped at this account.
    pub frozen: bool,
    /// Usage for which no credits were found.
    pub uncollected: i128,
}

/// A budget as it was when a command was answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BudgetReply {
    /// The account.
    pub account: AccountNo,
    /// The name.
    pub budget: BudgetName,
    /// Its terms.
    pub terms: BudgetTerms,
    /// The instant of the answer. The numbers are those of the period that contains it.
    pub at: Timestamp,
    /// Captured credits and uncollected usage.
    pub spent: i128,
    /// Held credits.
    pub held: i128,
}

impl BudgetReply {
    /// Spent and held together.
    pub fn used(&self) -> i128 {
        self.spent + self.held
    }

    /// What is left of the limit; zero if it is exceeded.
    pub fn remaining(&self) -> i128 {
        (self.terms.limit_units() - self.used()).max(0)
    }
}

/// A hold as it was when a command was answered.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct HoldReply {
    /// The hold.
    pub hold: HoldNo,
    /// Its state.
    pub state: HoldState,
    /// How much it has drawn.
    pub amount: Credits,
    /// How much of that was captured.
    pub captured: Credits,
    /// Usage for which no credits were found.
    pub uncollected: Credits,
    /// When it lapses.
    pub expires_at: Option<Timestamp>,
    /// The number of its slices.
    pub slices: u32,
}

impl HoldReply {
    /// How much could still be captured without drawing more; zero if it had ended.
    pub fn remaining(&self) -> Credits {
        match self.state {
            HoldState::Open => self.amount.saturating_sub(self.captured),
            HoldState::Settled | HoldState::Released | HoldState::Lapsed => Credits::ZERO,
        }
    }
}

/// The answer kept for an idempotency key.
pub type LedgerAnswer = Result<Reply, Refusal>;

/// The reply to an accepted command, and whether it was given before.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Accepted {
    /// The answer.
    pub reply: Reply,
    /// Whether it is the kept answer to an earlier execution of this request.
    pub replayed: bool,
    /// Whether the command changed nothing, because the resource existed already.
    pub unchanged: bool,
}

/// The refusal of a command, and whether it was given before.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Refused {
    /// The reason.
    pub refusal: Refusal,
    /// Whether it is the kept answer to an earlier execution of this request.
    pub replayed: bool,
    /// The id of the request that was refused first; zero if it is not known.
    pub request: u128,
}
