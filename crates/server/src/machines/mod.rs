//! The machines that this server runs: how they are asked, and what keeps them going.

pub mod cells;
pub mod directory;
pub mod gateway;
pub(crate) mod leader;
mod quiesce;
mod regions;
pub mod wall_time;
