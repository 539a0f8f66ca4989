//! Credits: grants, holds, charges, usage, and batches of them.

pub(in crate::http) mod batch;
pub(in crate::http) mod charges;
pub(in crate::http) mod grants;
pub(in crate::http) mod holds;
pub(in crate::http) mod movements;
pub(in crate::http) mod usage;
