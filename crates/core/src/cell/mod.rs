//! The cell: nodes, queue, shares and placement of one region.

pub mod demand;
pub mod intern;
pub mod node;
pub mod pool;
pub mod score;
pub mod shape;
