//! Small tables: numbers for names, sets of numbers, and what is due when.

pub mod aside;
pub(super) mod bitset;
pub mod interner;
pub(super) mod timers;
