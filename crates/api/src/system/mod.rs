//! The audit trail, API keys, sessions, search, the clock and the servers of a store.

pub mod audit;
pub mod clock;
pub mod cluster;
pub mod key;
pub mod search;
pub mod session;
pub mod shard;
