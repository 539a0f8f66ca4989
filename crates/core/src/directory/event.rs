//! The events of the directory. Only events are stored.

use super::command::{Refusal, Reply};
use super::shards::ShardState;
use super::state::{ApiKey, Class, Quota, Secret};
use crate::credits::Credits;
use crate::name::{AccountPath, ClassName, GpuModel, KeyId, Region};
use crate::time::Timestamp;

/// The tenant of keys that belong to the platform.
pub const PLATFORM_KEYS: &str = "*";

/// Something that happened in the directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A region was added.
    RegionAdded {
        /// Its name.
        region: Region,
    },
    /// An org was assigned to a shard.
    OrgAssigned {
        /// The org.
        org: AccountPath,
        /// The shard.
        shard: u16,
    },
    /// A shard was added, or its state was set.
    ShardSet {
        /// Its number.
        shard: u16,
        /// Its state.
        state: ShardState,
    },
    /// A key was created.
    KeyCreated {
        /// Its id.
        id: KeyId,
        /// The key's terms.
        key: Box<ApiKey>,
    },
    /// A key was revoked.
    KeyRevoked {
        /// The key.
        id: KeyId,
        /// The tenant that had the key, or [`PLATFORM_KEYS`]. Absent in older journals, where ids
        /// were unique over all tenants.
        tenant: Option<AccountPath>,
        /// Whether the request used a key of the platform. False in older journals, which did not
        /// record it.
        by_platform: bool,
    },
    /// A version of a price was added.
    PriceSet {
        /// The GPU type.
        gpu_type: GpuModel,
        /// The region; absent: every region without a price of its own.
        region: Option<Region>,
        /// Credits per hour of one whole GPU.
        per_gpu_hour: Credits,
        /// When it takes effect.
        effective_at: Timestamp,
    },
    /// A priority class was added or replaced.
    ClassSet {
        /// Its name.
        name: ClassName,
        /// Its terms.
        class: Box<Class>,
    },
    /// A quota was set or replaced. Only in older journals, from before quotas moved to the ledger.
    QuotaSet {
        /// The account.
        account: AccountPath,
        /// The region; absent: each region.
        region: Option<Region>,
        /// Its limits.
        quota: Box<Quota>,
    },
    /// A quota was removed. Only in older journals, from before quotas moved to the ledger.
    QuotaRemoved {
        /// The account.
        account: AccountPath,
        /// The region; absent: each region.
        region: Option<Region>,
    },
    /// The secret that encrypts attempt ids was set.
    AttemptSecretSet {
        /// The secret.
        secret: Secret,
    },
    /// A manual clock was moved to the instant of this event.
    ClockNoted,
    /// An answer was stored for its idempotency key.
    Answered {
        /// The hash of scope and idempotency key.
        key: u128,
        /// The hash of the request.
        fingerprint: u128,
        /// The answer.
        answer: Box<Result<Reply, Refusal>>,
        /// The id of the refused request; zero if it was accepted.
        request: u128,
    },
    /// Answers whose retention had ended were forgotten.
    AnswersForgotten {
        /// The number of answers, oldest first.
        answers: u32,
    },
}
