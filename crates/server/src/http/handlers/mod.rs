//! One folder per group of resources, each handler thin.

pub(super) mod accounts;
pub(in crate::http) mod credits;
pub(super) mod jobs;
pub(super) mod nodes;
pub(crate) mod system;
