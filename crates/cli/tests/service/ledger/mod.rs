//! Credits: holds, charges, movements, batches, idempotency keys and statements.

mod batch;
pub(crate) mod concurrency;
mod credits;
mod idempotency;
mod money;
mod movements;
mod shard_parts;
mod shards;
mod statements;
