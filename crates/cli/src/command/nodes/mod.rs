//! Commands about nodes and regions.

pub(super) mod node;
pub(super) mod region;
