//! The scheduler: the pass and its parts.

pub(super) mod candidates;
pub mod demand;
pub mod explain;
pub(super) mod forecast;
pub(super) mod pass;
pub(super) mod placement;
pub mod preemption;
pub(super) mod reservation;
pub mod score;
pub mod shape;
pub mod supply;
