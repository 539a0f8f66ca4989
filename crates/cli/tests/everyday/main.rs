//! The commands of every day as a person runs them: real processes against a real server.

mod advice;
#[path = "../jobs/agent.rs"]
#[allow(dead_code, reason = "the other test binary uses the rest of it")]
mod agent;
mod arrays;
mod classes;
mod completions;
mod configuration;
mod confirmations;
mod connection;
mod estimates;
mod keys;
mod mcp;
mod money;
mod nodes;
mod person;
#[path = "../rehearsal/mod.rs"]
mod rehearsal;
mod running;
mod sandbox;
mod selecting;
#[path = "../service/server.rs"]
#[allow(dead_code, reason = "the other test binary uses the rest of it")]
mod server;
mod tops;
mod upgrades;
mod waiting;
#[path = "../jobs/world.rs"]
#[allow(dead_code, reason = "the other test binary uses the rest of it")]
mod world;
