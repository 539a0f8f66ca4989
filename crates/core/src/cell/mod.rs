//! The cell: nodes, queue, shares and placement of one region.

pub mod intern;
pub mod node;
pub mod shape;
