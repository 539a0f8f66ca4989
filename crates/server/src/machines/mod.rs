//! The machines that this server runs, and the services around them.

pub mod cells;
pub mod directory;
pub mod gateway;
pub(crate) mod leader;
mod quiesce;
mod regions;
pub mod wall_time;
