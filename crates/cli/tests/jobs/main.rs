//! Jobs end to end: the real binary, real HTTP, real journals, and a simulated agent.

mod agent;
mod arrays;
mod blockers;
mod ends;
mod funding;
mod gpus;
mod idling;
mod isolation;
mod lasting;
mod map;
mod postgres;
mod queueing;
#[path = "../rehearsal/mod.rs"]
mod rehearsal;
#[path = "../service/server.rs"]
#[allow(dead_code, reason = "the other test binary uses the rest of it")]
mod server;
mod stores;
mod submitting;
mod wall_clock;
mod world;
