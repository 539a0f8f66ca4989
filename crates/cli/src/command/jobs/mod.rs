//! Commands about jobs.

mod arguments;
mod array;
pub(super) mod class;
pub(super) mod follow;
pub(super) mod job;
pub(super) mod quote;
pub(super) mod run;
