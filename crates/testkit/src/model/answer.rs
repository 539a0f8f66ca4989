//! What the model answers: everything by name, nothing by number.

use bursar_core::ledger::holds::hold::HoldState;
use bursar_core::ledger::id::Name;
use bursar_core::ledger::refusal::{Refusal, Resource};

use super::state::Micros;

/// An accepted command's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nothing more to say.
    Done,
    /// An account.
    Account {
        /// Its path.
        path: Name,
    },
    /// A grant, and its units: free, held, spent, expired, revoked, moved.
    Grant {
        /// The grant's place in the order of creation.
        grant: usize,
        /// Its units.
        parts: [Micros; 6],
    },
    /// A hold.
    Hold {
        /// The hold's place in the order of creation.
        hold: usize,
        /// Its state.
        state: HoldState,
        /// How much it has drawn.
        amount: Micros,
        /// How much of that was captured.
        captured: Micros,
        /// Usage that nothing could be found for.
        uncollected: Micros,
        /// When it lapses.
        expires_at: Option<i64>,
    },
    /// A charge.
    Charge {
        /// The charge's place in the order of creation.
        hold: usize,
        /// How much was asked for.
        requested: Micros,
        /// How much was spent.
        charged: Micros,
        /// What the account can still spend in the same context.
        spendable_after: Micros,
    },
    /// A refund, transfer or collection.
    Movement {
        /// Which of the three.
        what: Resource,
        /// Its name.
        name: Name,
        /// How much moved.
        amount: Micros,
    },
    /// A budget.
    Budget {
        /// The path of its account.
        account: Name,
        /// Its name there.
        budget: Name,
    },
}

/// An accepted command's answer, and whether it was given before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelReply {
    /// The answer.
    pub reply: Reply,
    /// Whether it was kept from the first time this request was made.
    pub replayed: bool,
}

/// A refused command's answer, and whether it was given before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelRefusal {
    /// The reason.
    pub refusal: Refusal,
    /// Whether it was kept from the first time this request was made.
    pub replayed: bool,
}
