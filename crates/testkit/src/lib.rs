//! What tests of the ledger are made of: a naive model of it, and a generator of commands.
//!
//! The [`model`] says what the ledger must do, in the plainest way that can be written down; the
//! ledger must agree with it after every command that [`generate`] thinks of.

pub mod compare;
pub mod generate;
pub mod model;
pub mod shrink;
