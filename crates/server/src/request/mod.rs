//! What all that serves a request shares: its caller, its failure, and the data of the request itself.

mod caller;
mod failure;
pub(crate) mod meta;

pub use caller::Caller;
pub use failure::Failure;
pub(crate) use failure::{blocker, budget_sum, reused};
