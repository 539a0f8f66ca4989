//! Nodes and regions.

pub mod map;
pub mod node;
pub mod region;
