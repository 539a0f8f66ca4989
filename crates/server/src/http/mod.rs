//! The HTTP API. All routes are in [`router`]; there is one file per resource, with thin handlers.

mod convert;
pub(crate) mod door;
pub(crate) mod extract;
pub mod front;
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
