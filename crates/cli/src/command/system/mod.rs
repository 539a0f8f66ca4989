//! Commands about the server: keys, audit, events, the clock, servers of a store, any request.

pub(super) mod api;
pub(super) mod audit;
pub(crate) mod clock;
pub(super) mod cluster;
pub(super) mod events;
pub(super) mod key;
pub(super) mod mcp;
pub(super) mod session;
pub(super) mod shard;
pub(crate) mod verify;
