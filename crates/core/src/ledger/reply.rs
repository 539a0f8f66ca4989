//! What a ledger answers. Small, because answers are kept for their idempotency keys: whatever can
//! be read off the things themselves is not repeated here.

use super::command::{AccountSettings, BudgetTerms};
use super::holds::hold::HoldState;
use super::id::{AccountNo, CellNo, GrantNo, HoldNo, JobNo, Name};
use super::jobs::JobState;
use super::refusal::Refusal;
use crate::credits::Credits;
use crate::time::Timestamp;

/// An accepted command's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nothing more to say.
    Done,
    /// An account as it was when the command was answered.
    Account(Box<AccountReply>),
    /// A grant and what became of its units, indexed by the number of [`fefo::Part`].
    Grant {
        /// The grant.
        grant: GrantNo,
        /// Units by part.
        parts: [u64; 6],
    },
    /// A hold as it was when the command was answered.
    Hold(HoldReply),
    /// A charge.
    Charge {
        /// The charge.
        hold: HoldNo,
        /// How much was asked for.
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
    /// Jobs that were submitted together, numbered one after the other.
    Jobs {
        /// The first of them.
        first: JobNo,
        /// How many: more than one for an array.
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
        /// Whether it was the one that was due; false if it was taken before.
        taken: bool,
    },
}

/// An account as it was when a command was answered: what may change later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountReply {
    /// The account.
    pub account: AccountNo,
    /// Its settings.
    pub settings: AccountSettings,
    /// Whether spending was stopped at this account.
    pub frozen: bool,
    /// Usage that nothing could be found for.
    pub uncollected: i128,
}

/// A budget as it was when a command was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetReply {
    /// The account.
    pub account: AccountNo,
    /// The name.
    pub budget: Name,
    /// Its terms.
    pub terms: BudgetTerms,
    /// The instant; the numbers are those of the period that contains it.
    pub at: Timestamp,
    /// What was captured, and usage that could not be collected.
    pub spent: i128,
    /// What was held.
    pub held: i128,
}

/// A hold as it was when a command was answered.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct HoldReply {
    /// The hold.
    pub hold: HoldNo,
    /// Its state.
    pub state: HoldState,
    /// How much it has drawn.
    pub amount: Credits,
    /// How much of that was captured.
    pub captured: Credits,
    /// Usage that nothing could be found for.
    pub uncollected: Credits,
    /// When it lapses.
    pub expires_at: Option<Timestamp>,
    /// How many of its slices were there.
    pub slices: u32,
}

/// The answer kept for an idempotency key.
pub type Answer = Result<Reply, Refusal>;

/// An accepted command's answer, and whether it was given before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The answer.
    pub reply: Reply,
    /// Whether it was kept from the first time this request was made.
    pub replayed: bool,
    /// Whether all was as it is already: what was to be created was there.
    pub unchanged: bool,
}

/// A refused command's answer, and whether it was given before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The reason.
    pub refusal: Refusal,
    /// Whether it was kept from the first time this request was made.
    pub replayed: bool,
    /// The id of the request that was refused first, zero if it is not known.
    pub request: u128,
}
