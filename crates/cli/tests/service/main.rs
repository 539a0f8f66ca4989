//! The service from outside: the real binary, real HTTP, a real SQLite journal.

mod authorization;
mod batch;
mod codes;
mod concurrency;
mod credits;
mod feed;
mod idempotency;
mod keys;
mod load;
mod postgres;
mod problems;
mod reading;
mod self_check;
mod server;
mod system;
