//! The writer of a machine: the threads that decide and append, and the interface to them.

mod appender;
mod compactor;
pub(crate) mod counters;
pub(crate) mod durable;
mod group;
pub(crate) mod handle;
mod handoff;
pub(crate) mod lifecycle;
pub(crate) mod mailbox;
pub(crate) mod observer;
pub(crate) mod options;
mod pacing;
mod session;
mod strikes;
mod transaction;
mod turn_budget;
