//! The HTTP service: keys, limits, telemetry, and thin handlers over the engine.
//!
//! Read in this order: [`http::router`] (every route), one of `http/<resource>.rs` (from a body to
//! a command), [`operation`] (from a command to an answer), [`render`] (from the ledger to a body),
//! [`problem`] (every way to fail), [`auth`] and [`permissions`] (who may do what), [`start`] (how
//! it all comes together).

pub mod app;
pub mod attempt_ids;
pub mod auth;
mod blockers;
mod cell_copy;
pub mod cells;
pub mod checkpoint;
pub mod codec;
pub mod config;
mod database;
pub mod directory;
mod door;
pub mod feed;
pub mod gateway;
pub mod history;
pub mod http;
pub mod ids;
mod leader;
pub mod limits;
pub mod logs;
pub mod monotonic;
pub mod operation;
pub mod pages;
mod past_jobs;
pub mod permissions;
pub mod problem;
mod regions;
pub mod render;
mod render_job;
pub mod root_key;
pub mod selfcheck;
pub mod serve;
mod settle;
pub mod shed;
pub mod start;
pub mod store;
mod stored;
pub mod telemetry;
mod timeline;
pub mod trace;
pub mod unstalled;
mod waiting;
pub mod waits;
pub mod wall_time;
mod written;
