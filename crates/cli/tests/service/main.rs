//! The service from outside: the real binary, real HTTP, a real SQLite journal.

mod authorization;
mod batch;
mod concurrency;
mod credits;
mod feed;
mod idempotency;
mod keys;
mod problems;
mod reading;
#[allow(dead_code, reason = "the tests of jobs use the rest of it")]
mod server;
mod system;
