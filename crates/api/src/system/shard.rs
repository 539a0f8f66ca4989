//! The ledger shards of a store.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Whether a shard takes new orgs.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LedgerShardState {
    /// It takes new orgs.
    Open,
    /// It takes no new orgs and keeps those that it has.
    Draining,
    /// It was added and has no orgs. It opens when the server starts again.
    Closed,
}

/// A ledger shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LedgerShard {
    /// Its name, the same as that of its machine.
    #[schema(example = "ledger-1")]
    pub id: String,
    /// Whether it takes new orgs.
    pub state: LedgerShardState,
    /// The number of its orgs.
    pub orgs: u64,
    /// A new org goes to the open shard with the lowest load: the number of its orgs.
    pub load: u64,
    /// What has to be done before it is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// All shards of a store, by number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LedgerShards {
    /// The shards.
    pub data: Vec<LedgerShard>,
}

/// A shard that is added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddLedgerShard {
    /// Its name: `ledger-` and the next number. Chosen by the server if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}
