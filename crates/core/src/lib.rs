//! The pure core of Bursar: deterministic state machines without I/O.
//!
//! Nothing in this crate reads a clock, draws a random number, touches a file or a socket, iterates
//! over a hash map, or computes money in floating point. The same commands in the same order give
//! the same events on every computer and in every year. The one exception are the randomly keyed
//! tables over names that callers choose. It has no visible effect: see `name_hash`.
//!
//! Read in this order: [`credits`] and [`time`] (the units), [`machine`] (the trait of every
//! machine), [`ledger`] (money), [`cell`] (placement), [`directory`] (keys and prices).

#![cfg_attr(
    not(test),
    warn(clippy::wildcard_enum_match_arm, clippy::float_arithmetic, clippy::iter_over_hash_type)
)]

pub mod cell;
pub mod credits;
pub mod digest;
pub mod directory;
pub mod ledger;
pub mod machine;
pub mod message;
pub mod name;
mod name_hash;
pub mod opaque;
mod shared_map;
pub mod time;
