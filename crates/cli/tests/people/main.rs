//! What people use: the dashboard, sessions, search. The real binary, real HTTP, real journals.

mod dashboard;
mod login;
mod machines;
mod oidc;
#[path = "../rehearsal/mod.rs"]
mod rehearsal;
mod search;
#[path = "../service/server.rs"]
#[allow(dead_code, reason = "the other test binaries use the rest of it")]
mod server;
mod sessions;
mod trail;
