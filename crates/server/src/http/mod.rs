//! The HTTP API. All routes are in [`router`]; there is one file per resource, with thin handlers.

mod convert;
pub(crate) mod dashboard;
pub mod dispatch;
pub(crate) mod entry;
pub(crate) mod extract;
pub(crate) mod forward;
pub(crate) mod handlers;
mod idempotent_call;
mod labels;
mod list;
mod middleware;
pub mod openapi;
pub mod pages;
pub mod problem;
mod respond;
pub mod router;
pub(crate) mod shards;
