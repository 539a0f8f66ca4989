//! Everything that can be asked of the directory, and what it can answer.

use super::state::{ApiKey, Class, Secret};
use crate::credits::Credits;
use crate::ledger::id::Name;
use crate::time::Timestamp;

/// Everything that can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Makes a region known.
    AddRegion {
        /// Its name.
        region: Name,
    },
    /// Says on which shard an org lives. It never moves.
    AssignOrg {
        /// The org.
        org: Name,
        /// The shard.
        shard: u16,
    },
    /// Makes an API key.
    CreateKey {
        /// Its id.
        id: Name,
        /// Who it is and what it may do; `created_at` is set by the directory.
        key: Box<ApiKey>,
    },
    /// Ends a key, at once and for good.
    RevokeKey {
        /// The key.
        id: Name,
        /// The tenant whose key it is; none for keys of the platform.
        tenant: Option<Name>,
        /// Whether a key of the platform asks.
        by_platform: bool,
    },
    /// Adds a version of a price.
    SetPrice {
        /// The GPU type.
        gpu_type: Name,
        /// The region; every region without a price of its own if absent.
        region: Option<Name>,
        /// Credits per hour of one whole GPU.
        per_gpu_hour: Credits,
        /// From when on it counts; now if absent.
        effective_at: Option<Timestamp>,
    },
    /// Sets or replaces a priority class.
    SetClass {
        /// Its name.
        name: Name,
        /// Its terms.
        class: Box<Class>,
    },
    /// Sets the secret under which ids of attempts are written, unless there is one.
    SetAttemptSecret {
        /// The secret.
        secret: Secret,
    },
    /// Fixes where a manual clock is to be moved, before it moves: under one key always to the same
    /// instant, so that repeating the move changes nothing. Also keeps at which instant the wall clock
    /// was accepted.
    AimClock {
        /// The instant.
        target: Timestamp,
    },
    /// Keeps under its key that the wall clock was not accepted, because it is so far behind the time of
    /// the records.
    RefuseClock {
        /// By how many milliseconds.
        behind_ms: i64,
    },
    /// Writes the present instant down, so that a manual clock goes on from there.
    NoteClock,
}

/// An accepted command's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nothing more to say.
    Done,
    /// A key.
    Key {
        /// Its id.
        id: Name,
        /// Whether this command made it; false if the same request had made it before.
        created: bool,
    },
    /// A version of a price.
    Price {
        /// The number of the version.
        version: u32,
        /// From when on it counts.
        effective_at: Timestamp,
    },
    /// Where a manual clock is to be moved.
    Clock {
        /// The instant.
        target: Timestamp,
    },
}

/// Why a command was not carried out. In order of precedence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A field can never be right.
    InvalidField {
        /// The field, as the API names it.
        field: &'static str,
        /// What it must be.
        reason: &'static str,
    },
    /// The idempotency key was used for another request.
    IdempotencyKeyReused,
    /// There is no such key.
    NotFound,
    /// The id is taken by something that was created differently.
    AlreadyExists,
    /// The wall clock is behind the time of the records, so it is not accepted.
    ClockBehind {
        /// By how many milliseconds.
        behind_ms: i64,
    },
}

impl Refusal {
    /// Whether the answer is kept for the request's idempotency key.
    pub fn is_remembered(&self) -> bool {
        match self {
            Refusal::AlreadyExists | Refusal::ClockBehind { .. } => true,
            Refusal::InvalidField { .. } | Refusal::IdempotencyKeyReused | Refusal::NotFound => {
                false
            }
        }
    }
}

/// An accepted command's answer, and whether it was given before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The answer.
    pub reply: Reply,
    /// Whether it was kept from the first time this request was made.
    pub replayed: bool,
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
