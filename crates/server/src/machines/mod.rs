//! The machines that this server runs, and the services around them.

mod campaign;
pub mod cells;
pub mod directory;
pub mod gateway;
pub(crate) mod leader;
pub mod ledgers;
pub(crate) mod losses;
mod pace;
mod quiesce;
mod regions;
pub mod started_cell;
pub(crate) mod trust;
pub mod wall_time;
