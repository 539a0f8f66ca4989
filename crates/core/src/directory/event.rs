//! Everything that can happen in the directory. Only this is ever stored.

use super::command::{Refusal, Reply};
use super::state::{ApiKey, Class, Quota, Secret};
use crate::credits::Credits;
use crate::ledger::id::Name;
use crate::time::Timestamp;

/// Stands for the tenant of keys that have none.
pub const PLATFORM_KEYS: &str = "*";

/// Everything that can happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A region became known.
    RegionAdded {
        /// Its name.
        region: Name,
    },
    /// An org got its shard.
    OrgAssigned {
        /// The org.
        org: Name,
        /// The shard.
        shard: u16,
    },
    /// A key was made.
    KeyCreated {
        /// Its id.
        id: Name,
        /// Who it is and what it may do.
        key: Box<ApiKey>,
    },
    /// A key was ended.
    KeyRevoked {
        /// The key.
        id: Name,
        /// The tenant whose key it is, or [`PLATFORM_KEYS`]. Absent in journals of when ids were
        /// unique over all tenants.
        tenant: Option<Name>,
        /// Whether a key of the platform asked. False in journals of before this was noted.
        by_platform: bool,
    },
    /// A version of a price was added.
    PriceSet {
        /// The GPU type.
        gpu_type: Name,
        /// The region; every region without a price of its own if absent.
        region: Option<Name>,
        /// Credits per hour of one whole GPU.
        per_gpu_hour: Credits,
        /// From when on it counts.
        effective_at: Timestamp,
    },
    /// A priority class was set or replaced.
    ClassSet {
        /// Its name.
        name: Name,
        /// Its terms.
        class: Box<Class>,
    },
    /// A quota was set or replaced. Only in journals of before quotas belonged to the ledger.
    QuotaSet {
        /// The account.
        account: Name,
        /// The region; each if absent.
        region: Option<Name>,
        /// Its numbers.
        quota: Box<Quota>,
    },
    /// A quota was removed. Only in journals of before quotas belonged to the ledger.
    QuotaRemoved {
        /// The account.
        account: Name,
        /// The region; each if absent.
        region: Option<Name>,
    },
    /// Ids of attempts are written under this secret from now on.
    AttemptSecretSet {
        /// The secret.
        secret: Secret,
    },
    /// A manual clock was moved to the instant of this event.
    ClockNoted,
    /// An answer was kept for its idempotency key.
    Answered {
        /// The hash of scope and key.
        key: u128,
        /// The hash of the request.
        fingerprint: u128,
        /// The answer.
        answer: Box<Result<Reply, Refusal>>,
        /// The id of the request that was refused; zero if it was not.
        request: u128,
    },
    /// Answers that were kept long enough were forgotten.
    AnswersForgotten {
        /// How many, oldest first.
        answers: u32,
    },
}
