//! Keys, roles and limits, and the answers to requests that are refused.

mod authorization;
mod codes;
mod edges;
pub(crate) mod framing;
mod keys;
mod problems;
mod terminal;
