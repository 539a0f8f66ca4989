//! Answers of the model. Accounts, movements and budgets are given by name.

use bursar_core::ledger::holds::hold::HoldState;
use bursar_core::ledger::refusal::{Refusal, Resource};
use bursar_core::name::{AccountPath, BudgetName, MovementId};

use super::state::Micros;

/// The answer to an accepted command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Done, without a result.
    Done,
    /// An account.
    Account {
        /// Its path.
        path: AccountPath,
    },
    /// A grant, and its units: free, held, spent, expired, revoked, moved.
    Grant {
        /// The index of the grant in order of creation.
        grant: usize,
        /// Its units.
        parts: [Micros; 6],
    },
    /// A hold.
    Hold {
        /// The index of the hold in order of creation.
        hold: usize,
        /// Its state.
        state: HoldState,
        /// The drawn amount.
        amount: Micros,
        /// The captured part of it.
        captured: Micros,
        /// Usage for which no credits were found.
        uncollected: Micros,
        /// When it lapses.
        expires_at: Option<i64>,
    },
    /// A charge.
    Charge {
        /// The index of the charge in order of creation.
        hold: usize,
        /// The requested amount.
        requested: Micros,
        /// The spent amount.
        charged: Micros,
        /// The amount that the account can still spend in the same context.
        spendable_after: Micros,
    },
    /// A refund, transfer or collection.
    Movement {
        /// The kind of movement.
        what: Resource,
        /// Its name.
        name: MovementId,
        /// The moved amount.
        amount: Micros,
    },
    /// A budget.
    Budget {
        /// The path of its account.
        account: AccountPath,
        /// Its name in the account.
        budget: BudgetName,
    },
}

/// The answer to an accepted command, and whether it was replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelReply {
    /// The answer.
    pub reply: Reply,
    /// Whether it is the stored answer to the first such request.
    pub replayed: bool,
}

/// The answer to a refused command, and whether it was replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelRefusal {
    /// The reason.
    pub refusal: Refusal,
    /// Whether it is the stored answer to the first such request.
    pub replayed: bool,
}
