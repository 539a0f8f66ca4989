//! The commands of the directory, its replies and its refusals.

use super::shards::ShardState;
use super::state::{ApiKey, Class, Secret};
use crate::credits::Credits;
use crate::name::{AccountPath, ClassName, GpuModel, KeyId, Region};
use crate::time::Timestamp;

/// A command to the directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Adds a region.
    AddRegion {
        /// Its name.
        region: Region,
    },
    /// Assigns an org to this shard. An org never moves.
    AssignOrg {
        /// The org.
        org: AccountPath,
        /// The shard.
        shard: u16,
    },
    /// Assigns an org to the open shard with the fewest orgs, unless it has a shard.
    PlaceOrg {
        /// The org.
        org: AccountPath,
        /// How many orgs of the first shard were opened before orgs were assigned.
        unassigned: u64,
    },
    /// Adds a shard. The number is the next one; a shard that exists is left as it is.
    AddShard {
        /// Its number.
        shard: u16,
        /// Its state.
        state: ShardState,
    },
    /// Sets whether a shard takes new orgs.
    SetShard {
        /// Its number.
        shard: u16,
        /// Its state.
        state: ShardState,
    },
    /// Creates an API key.
    CreateKey {
        /// Its id.
        id: KeyId,
        /// The key's terms; `created_at` is set by the directory.
        key: Box<ApiKey>,
    },
    /// Revokes a key, permanently and at once.
    RevokeKey {
        /// The key.
        id: KeyId,
        /// The tenant that has the key; none for keys of the platform.
        tenant: Option<AccountPath>,
        /// Whether the request used a key of the platform.
        by_platform: bool,
    },
    /// Sets a price by adding a version.
    SetPrice {
        /// The GPU type.
        gpu_type: GpuModel,
        /// The region; absent: every region without a price of its own.
        region: Option<Region>,
        /// Credits per hour of one whole GPU.
        per_gpu_hour: Credits,
        /// When it takes effect; absent: now.
        effective_at: Option<Timestamp>,
    },
    /// Adds or replaces a priority class.
    SetClass {
        /// Its name.
        name: ClassName,
        /// Its terms.
        class: Box<Class>,
    },
    /// Sets the secret that encrypts attempt ids, unless one is set.
    SetAttemptSecret {
        /// The secret.
        secret: Secret,
    },
    /// Fixes the target of a manual clock before the clock moves. Under one idempotency key the
    /// target stays the same, so a repeated move changes nothing. Also records the instant at which
    /// the wall clock was accepted.
    AimClock {
        /// The instant.
        target: Timestamp,
    },
    /// Records under its idempotency key that the wall clock was refused because it is behind the
    /// time of the records.
    RefuseClock {
        /// By how many milliseconds.
        behind_ms: i64,
    },
    /// Records the current instant, so that a manual clock continues from there.
    NoteClock,
}

/// The answer to an accepted command.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// No further data.
    Done,
    /// A key.
    Key {
        /// Its id.
        id: KeyId,
        /// Whether this command created it; false if an equal request did before.
        created: bool,
    },
    /// A version of a price.
    Price {
        /// The number of the version.
        version: u32,
        /// When it takes effect.
        effective_at: Timestamp,
    },
    /// A shard.
    Shard {
        /// Its number.
        shard: u16,
        /// Whether this command added it.
        created: bool,
    },
    /// The target of a manual clock.
    Clock {
        /// The instant.
        target: Timestamp,
    },
}

/// Why a command was refused, in order of precedence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// A field is invalid in every state.
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
    /// There is no such shard.
    UnknownShard,
    /// No shard would take new orgs.
    NoOpenShard,
    /// The id belongs to something that was created differently.
    AlreadyExists,
    /// The wall clock is behind the time of the records and is refused.
    ClockBehind {
        /// By how many milliseconds.
        behind_ms: i64,
    },
}

impl Refusal {
    /// Whether the answer is kept for the request's idempotency key.
    pub fn is_remembered(&self) -> bool {
        match self {
            Refusal::AlreadyExists | Refusal::ClockBehind { .. } | Refusal::NoOpenShard => true,
            Refusal::InvalidField { .. }
            | Refusal::IdempotencyKeyReused
            | Refusal::NotFound
            | Refusal::UnknownShard => false,
        }
    }
}

/// The answer to an accepted command, and whether it is a repetition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DirectoryAccepted {
    /// The answer.
    pub reply: Reply,
    /// Whether it was stored when this request was first made.
    pub replayed: bool,
}

/// The answer to a refused command, and whether it is a repetition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DirectoryRefused {
    /// The reason.
    pub refusal: Refusal,
    /// Whether it was stored when this request was first made.
    pub replayed: bool,
    /// The id of the request that was first refused; zero if unknown.
    pub request: u128,
}
