//! The stored form of a cell's decisions.
//!
//! The body of a record is the CBOR array `[version, header, events]`, as for a ledger. The header
//! has the author and the command, or is `null` for timers. Keys and tags are pinned and never
//! reused. `docs/reference/journal-format.md` lists every number.

mod event;
mod header;
mod image;
mod job;

use bursar_core::cell::event::Event;

use super::body::{self, Body};
use super::codec::FormatError;
pub use event::event_name;
pub use header::{Author, CellHeader, CellOutcome, CommandKind};
pub use image::{IMAGE_VERSION, decode_image, encode_image};

/// The version of the body that this build writes. Every version ever written stays readable.
pub const BODY_VERSION: u64 = 1;

/// One decoded body.
pub type CellBody = Body<CellHeader, Event>;

/// Appends one encoded body to `out`.
pub fn encode_body(header: Option<&CellHeader>, events: &[Event], out: &mut Vec<u8>) {
    body::encode(BODY_VERSION, header, events, out);
}

/// Decodes exactly one body.
pub fn decode_body(bytes: &[u8]) -> Result<CellBody, FormatError> {
    let mut events = Vec::new();
    let header = decode_body_into(bytes, &mut events)?;
    Ok(CellBody { header, events })
}

/// Decodes one body and appends its events to `events`.
pub fn decode_body_into(
    bytes: &[u8],
    events: &mut Vec<Event>,
) -> Result<Option<CellHeader>, FormatError> {
    body::decode_into(BODY_VERSION, bytes, events)
}
