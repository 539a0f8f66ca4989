//! Records: the events of one decision, framed so that they stay readable for years.
//!
//! A frame is `length u32 | version u8 | kind u8 | time i64 | body`, little endian, where `length`
//! counts everything after itself. The body belongs to the machine's codec. There is exactly one
//! encoding of a record, so decoding and encoding again gives the same bytes.

mod batch;
mod body;
pub mod cell;
pub mod codec;
pub mod directory;
mod frame;
pub mod ledger;
mod message;

pub use batch::{Batch, BatchBuilder, BuilderMark};
pub use body::Body;
pub use frame::{
    FORMAT_VERSION, Frames, MAX_BODY_BYTES, Record, RecordError, RecordKind, RecordTooLarge, frames,
};
