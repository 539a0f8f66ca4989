//! The stored form of a ledger's decisions.
//!
//! The body of a record is the CBOR array `[version, header, events]`. The header has the author
//! and the command, or is `null` for timers. A group record contains several such bodies. Every
//! struct is a map with integer keys, every enum with content an array `[tag, content]`. Keys and
//! tags are pinned and never reused. [`codec`](super::codec) defines the strict encoding,
//! `docs/reference/journal-format.md` lists every number.

mod answer;
mod archive;
mod event;
pub(super) mod header;
mod hold;
mod image;
mod job;
mod job_terms;
mod message;
mod refusal;
mod terms;

use bursar_core::ledger::event::Event;
use bursar_core::ledger::holds::archive::ArchivedHold;

use super::body::{self, Body};
use super::codec::wire::{FormatError, Reader, Stored, Writer};
pub use archive::{
    answer_key, archive_entries, decode_answer, decode_job, decode_movement, object_key,
};
pub use event::event_name;
pub use header::{AuditHeader, CommandKind, Outcome};
pub use image::{IMAGE_VERSION, decode_image, encode_image};
pub use refusal::RefusalCode;

/// The version of the body that this build writes. Every version ever written stays readable.
pub const BODY_VERSION: u64 = 1;

/// One decoded body.
pub type LedgerBody = Body<AuditHeader, Event>;

/// Appends one encoded body to `out`.
pub fn encode_body(header: Option<&AuditHeader>, events: &[Event], out: &mut Vec<u8>) {
    body::encode(BODY_VERSION, header, events, out);
}

/// Decodes exactly one body.
pub fn decode_body(bytes: &[u8]) -> Result<LedgerBody, FormatError> {
    let mut events = Vec::new();
    let header = decode_body_into(bytes, &mut events)?;
    Ok(LedgerBody { header, events })
}

/// Decodes one body and appends its events to `events`.
pub fn decode_body_into(
    bytes: &[u8],
    events: &mut Vec<Event>,
) -> Result<Option<AuditHeader>, FormatError> {
    body::decode_into(BODY_VERSION, bytes, events)
}

/// Whether any of the bodies in these bytes may contain a message to a cell. False is certain. True
/// may be wrong, because the same three bytes may have another meaning.
pub fn may_tell_a_cell(bytes: &[u8]) -> bool {
    // An array of two and the event's tag, in their only encoding.
    const TOLD: [u8; 3] = [0x82, 0x18, 42];
    memchr::memmem::find(bytes, &TOLD).is_some()
}

/// The bodies of a record: one, or several for a group.
pub fn decode_record(kind: super::RecordKind, body: &[u8]) -> Result<Vec<LedgerBody>, FormatError> {
    match kind {
        super::RecordKind::Barrier => match body.len() {
            0 => Ok(Vec::new()),
            left => Err(FormatError::TrailingBytes { left }),
        },
        super::RecordKind::Decision | super::RecordKind::Due => Ok(vec![decode_body(body)?]),
        super::RecordKind::Group => {
            let mut bodies = Vec::new();
            let mut rest = body;
            while let Some((length, after)) = rest.split_first_chunk::<4>() {
                let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
                let Some((one, after)) = after.split_at_checked(length) else {
                    let at = body.len() - after.len();
                    let reason = format!("{length} bytes announced, {} left", after.len());
                    return Err(FormatError::Syntax { at, reason });
                };
                bodies.push(decode_body(one)?);
                rest = after;
            }
            match rest.len() {
                0 => Ok(bodies),
                left => Err(FormatError::TrailingBytes { left }),
            }
        }
    }
}

/// The stored form of an archived hold, as in history.
pub fn encode_archived(record: &ArchivedHold) -> Vec<u8> {
    // Enough for nearly all holds.
    let mut bytes = Vec::with_capacity(192);
    record.write(&mut Writer::new(&mut bytes));
    bytes
}

/// Decodes an archived hold.
pub fn decode_archived(bytes: &[u8]) -> Result<ArchivedHold, FormatError> {
    let mut input = Reader::new(bytes);
    let record = ArchivedHold::read(&mut input)?;
    input.finish()?;
    Ok(record)
}
