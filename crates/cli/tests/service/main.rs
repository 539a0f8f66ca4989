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
mod server;
mod storage;
mod system;
