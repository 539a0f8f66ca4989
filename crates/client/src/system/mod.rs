//! The audit trail, API keys, sessions, search and the clock.

pub mod audit;
pub mod clock;
pub mod keys;
pub mod search;
pub mod sessions;
