//! The service from outside: the real binary, real HTTP, a real SQLite journal.

#[path = "../../../journal/tests/support/mod.rs"]
mod journal_support;

mod access;
mod ledger;
mod operation;
#[path = "../rehearsal/mod.rs"]
mod rehearsal;
#[allow(dead_code, reason = "the tests of jobs use the rest of it")]
mod server;
mod store;
