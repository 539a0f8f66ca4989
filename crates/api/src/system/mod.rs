//! The audit trail, API keys, sessions, search and the clock.

pub mod audit;
pub mod clock;
pub mod key;
pub mod search;
pub mod session;
