//! Nodes and regions.

pub mod node;
pub mod region;
