//! The HTTP interface. Every route is in [`router`]; one file per resource, each handler thin.

mod accounts;
mod audit;
mod balance;
mod batch;
mod budgets;
mod change;
mod charges;
mod clock;
mod convert;
mod directory;
pub(crate) mod extract;
mod grants;
mod history;
mod holds;
mod keys;
mod list;
pub(crate) mod meta;
mod middleware;
pub mod openapi;
pub mod router;
mod system;
