//! The indexes of the ledger: by name, by idempotency key and by time.

pub mod aside;
pub mod blocks;
pub mod hash_index;
pub mod idempotency;
pub mod names;
pub mod recent;
pub mod slab;
pub mod timers;
