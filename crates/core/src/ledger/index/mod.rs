//! Tables through which the ledger finds things, and what is due when.

pub mod aside;
pub mod hash_index;
pub mod idempotency;
pub mod names;
pub(super) mod prefetch;
pub mod slab;
pub mod timers;
