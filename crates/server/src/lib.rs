//! The HTTP service: API keys, limits, telemetry, and thin handlers over the engine.
//!
//! Read in this order: [`operations`] (every operation: route, roles, priority), one of
//! `http/handlers/` (from a request body to a command), [`change`] (from a command to an answer),
//! [`render`] (from the ledger's state to a response body), [`request`] (the caller, and every error
//! as a problem), [`auth`] (authentication), [`start`] (startup and shutdown).

pub mod app;
pub mod auth;
pub mod backup;
pub mod change;
pub mod config;
pub mod followers;
pub mod http;
pub mod ids;
pub mod logs;
pub mod machines;
pub mod net;
pub mod operations;
pub mod render;
pub mod request;
pub mod start;
pub mod store;
pub mod telemetry;
