//! The caller of a request, its failure, and its task-local data.

mod caller;
mod failure;
pub(crate) mod meta;
mod min_position;

pub use caller::Caller;
pub use failure::Failure;
pub(crate) use failure::{blocker, budget_sum, reused};
pub(crate) use min_position::MinPosition;
