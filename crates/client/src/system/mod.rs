//! The audit trail, API keys and the clock.

pub mod audit;
pub mod clock;
pub mod keys;
