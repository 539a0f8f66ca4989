//! The stored form of the directory's decisions: a line of JSON per event. The journal is small and
//! changes rarely, so readability with any tool matters more than size.

mod event;

use bursar_core::directory::Event;
use thiserror::Error;

use event::StoredEvent;
pub use event::event_name;

/// Why a line is not a stored event of the directory.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LineError {
    /// It is not the JSON of an event. Contains the error of the parser.
    #[error("{0}")]
    Json(String),
    /// It has a version of a later release.
    #[error("version {0} of a directory event is not known")]
    Version(u8),
    /// A price is below zero.
    #[error("a negative price")]
    NegativePrice,
    /// A hash or a secret is not hexadecimal.
    #[error("`{0}` is not a hexadecimal number of the right length")]
    Hexadecimal(String),
    /// A role of a later release.
    #[error("the role {0} is not known")]
    Role(String),
    /// A capability of a later release.
    #[error("the capability {0} is not known")]
    Capability(String),
    /// A state of a shard of a later release.
    #[error("the state of a shard {0} is not known")]
    ShardState(String),
}

/// The author of a decision, which each of its lines repeats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectoryHeader {
    /// The API key or component; `None` for a timer.
    pub actor: Option<String>,
    /// The id of the request; zero if it has none. Absent in older journals.
    pub request: u128,
}

/// Appends a line for each event, with its author, to `out`.
pub fn encode_body(header: &DirectoryHeader, events: &[Event], out: &mut Vec<u8>) {
    for event in events {
        let stored = StoredEvent::new(header, event);
        let line = serde_json::to_vec(&stored).expect("stored events have only plain fields");
        out.extend_from_slice(&line);
        out.push(b'\n');
    }
}

/// Decodes the lines of a body and appends their events to `events`.
pub fn decode_body_into(
    body: &[u8],
    events: &mut Vec<Event>,
) -> Result<DirectoryHeader, LineError> {
    let mut header = DirectoryHeader::default();
    for line in body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let mut stored: StoredEvent =
            serde_json::from_slice(line).map_err(|error| LineError::Json(error.to_string()))?;
        header = stored.take_header()?;
        events.push(stored.into_event()?);
    }
    Ok(header)
}

fn read_hash(text: &str) -> Result<u128, LineError> {
    u128::from_str_radix(text, 16).map_err(|_| LineError::Hexadecimal(text.to_owned()))
}

/// Reads 32 bytes. An error does not repeat them: they may be secret.
fn read_digest(text: &str) -> Result<[u8; 32], LineError> {
    let read = blake3::Hash::from_hex(text);
    read.map(|bytes| *bytes.as_bytes()).map_err(|_| LineError::Hexadecimal("\u{2026}".to_owned()))
}
