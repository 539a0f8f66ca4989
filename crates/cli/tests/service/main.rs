//! The service from outside: the real binary, real HTTP, a real SQLite journal.

#[path = "../../../journal/tests/support/mod.rs"]
mod journal_support;

mod archive;
mod archive_moves;
mod aside;
mod authorization;
mod batch;
mod bounds;
mod codes;
mod concurrency;
mod credits;
mod edges;
mod feed;
mod file_table;
mod files;
mod histories;
mod idempotency;
mod keys;
mod load;
mod money;
mod movements;
mod postgres;
mod postgres_serve;
mod postgres_store;
mod problems;
mod reading;
#[path = "../rehearsal/mod.rs"]
mod rehearsal;
mod retention;
mod segments;
mod self_check;
#[allow(dead_code, reason = "the tests of jobs use the rest of it")]
mod server;
mod standby;
mod statements;
mod storage;
mod store_test;
mod system;
mod takeover;
mod terminal;
mod time;
mod verify;
