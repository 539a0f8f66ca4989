//! The stored form of what a cell decided.
//!
//! The body of a record is the CBOR array `[version, header, events]`, as a ledger's: who asked for
//! what (`null` if nobody did), and what happened. Keys and tags are pinned and never reused;
//! `docs/journal-format.md` lists every number.

mod event;
mod header;
mod image;
mod job;

use bursar_core::cell::event::Event;

use super::body::{self, Body};
use super::codec::FormatError;
pub use event::event_name;
pub use header::{AuditHeader, Author, CommandKind, Outcome};
pub use image::{IMAGE_VERSION, decode_image, encode_image};

/// The version of the body that this build writes. Every version ever written stays readable.
pub const BODY_VERSION: u64 = 1;

/// One body, read back.
pub type CellBody = Body<AuditHeader, Event>;

/// Writes one body behind what is in `out`.
pub fn encode_body(header: Option<&AuditHeader>, events: &[Event], out: &mut Vec<u8>) {
    body::encode(BODY_VERSION, header, events, out);
}

/// Reads one body, and nothing but that.
pub fn decode_body(bytes: &[u8]) -> Result<CellBody, FormatError> {
    let mut events = Vec::new();
    let header = decode_body_into(bytes, &mut events)?;
    Ok(CellBody { header, events })
}

/// Reads one body and puts its events behind what is in `events`.
pub fn decode_body_into(
    bytes: &[u8],
    events: &mut Vec<Event>,
) -> Result<Option<AuditHeader>, FormatError> {
    body::decode_into(BODY_VERSION, bytes, events)
}
