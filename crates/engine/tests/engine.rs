//! The engine in one process: writer, couriers, followers, leases.

mod archive_repair;
mod archive_steps;
mod behind;
mod cell;
mod compaction;
mod courier;
mod durability;
mod followers;
mod following;
mod lease;
mod ledger;
mod look_ups;
mod panics;
mod priority;
mod replay;
mod seeded;
mod support;
#[path = "../../journal/tests/support/temp_dir.rs"]
mod temp_dir;
#[path = "../../journal/tests/support/traffic.rs"]
mod traffic;
mod turns;
mod writer;
