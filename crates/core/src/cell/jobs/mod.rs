//! Jobs and their attempts, from admission to the end.

pub(super) mod admission;
pub(super) mod attempt;
pub mod demands;
pub(super) mod funding;
pub mod idempotency;
pub(super) mod job;
pub(super) mod metering;
pub mod orders;
pub(super) mod report;
pub(super) mod stopping;
pub(super) mod table;
