//! The service from outside: the real binary, real HTTP, a real SQLite journal.

#[path = "../../../journal/tests/support/mod.rs"]
mod journal_support;

mod authorization;
mod batch;
mod concurrency;
mod credits;
mod feed;
mod idempotency;
mod keys;
mod postgres;
mod problems;
mod reading;
mod server;
mod storage;
mod system;
mod verify;
