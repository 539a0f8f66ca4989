//! Commands about jobs.

mod arguments;
pub(super) mod follow;
pub(super) mod job;
pub(super) mod quote;
pub(super) mod run;
