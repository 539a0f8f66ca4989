//! Commands about jobs.

mod arguments;
mod array;
pub(super) mod class;
mod efficiency;
pub(super) mod follow;
pub(super) mod job;
mod layout;
pub(super) mod logs;
pub(super) mod quote;
mod retry;
pub(super) mod run;
pub(super) mod select;
