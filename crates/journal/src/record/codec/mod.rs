//! The encoding of values in the records of ledgers and cells.

mod cbor;
pub(super) mod value;
pub(super) mod wire;

pub use wire::FormatError;
