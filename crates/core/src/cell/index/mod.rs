//! Small tables: interned ids, bit sets, timers and skipped work.

pub mod aside;
pub(super) mod bitset;
pub mod interner;
pub(super) mod timers;
