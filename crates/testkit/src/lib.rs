//! Test support: a naive model of the ledger, a generator of commands, a checker of clients' histories, and a proxy
//! that makes faults between processes.
//!
//! The [`model`] defines what the ledger must do, in the simplest possible way. The ledger must
//! agree with it after every command of [`generate`]. Tests of the binary read its output with
//! [`binary`].

pub mod binary;
pub mod compare;
pub mod faults;
pub mod generate;
pub mod histories;
pub mod model;
pub mod shrink;
