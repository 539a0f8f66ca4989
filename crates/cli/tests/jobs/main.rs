//! Jobs end to end: the real binary, real HTTP, real journals, and a simulated agent.

mod agent;
mod arrays;
mod aside;
mod attackers;
mod blockers;
mod catalog;
mod ends;
mod failures;
mod funds;
mod gpus;
mod idling;
mod lasting;
mod map;
mod postgres;
mod queueing;
mod refunds;
#[path = "../rehearsal/mod.rs"]
mod rehearsal;
mod repeats;
mod scopes;
#[path = "../service/server.rs"]
#[allow(dead_code, reason = "the other test binary uses the rest of it")]
mod server;
mod spending;
mod stores;
mod submitting;
mod usage;
mod wall_clock;
mod world;
