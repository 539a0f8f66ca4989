//! The ledger shards of a store.

use bursar_api::system::shard::{AddLedgerShard, LedgerShard, LedgerShards};

use crate::call::{Call, Method, path};

/// All shards.
pub fn list() -> Call<LedgerShards> {
    Call::get("/v1/shards")
}

/// Adds a shard.
pub fn add(shard: &AddLedgerShard) -> Call<LedgerShard> {
    Call::post("/v1/shards", shard)
}

/// Drains a shard: it takes no new orgs.
pub fn drain(id: &str) -> Call<LedgerShard> {
    change(id, "drain")
}

/// Opens a shard: it takes new orgs.
pub fn open(id: &str) -> Call<LedgerShard> {
    change(id, "open")
}

fn change(id: &str, verb: &str) -> Call<LedgerShard> {
    Call::new(Method::Post, path(&["v1", "shards", id, verb]))
}
