//! Test support for the ledger: a naive model, and a generator of commands.
//!
//! The [`model`] defines what the ledger must do, in the simplest possible way. The ledger must
//! agree with it after every command of [`generate`]. Tests of the binary read its output with
//! [`binary`].

pub mod binary;
pub mod compare;
pub mod generate;
pub mod histories;
pub mod model;
pub mod shrink;
