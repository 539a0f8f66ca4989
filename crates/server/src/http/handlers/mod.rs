//! The handlers: one folder per group of resources.

pub(super) mod accounts;
pub(in crate::http) mod credits;
pub(super) mod jobs;
pub(super) mod nodes;
pub(crate) mod system;
