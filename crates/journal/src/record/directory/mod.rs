//! The stored form of the directory's decisions: a line of JSON per event. The journal is small and
//! changes rarely, so readability with any tool matters more than size.

mod event;

use bursar_core::directory::Event;
use thiserror::Error;

use event::StoredEvent;

/// Why a line is not a stored event of the directory.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct LineError(String);

/// Appends a line for each event, with its author, to `out`.
pub fn encode_body(actor: Option<&str>, events: &[Event], out: &mut Vec<u8>) {
    for event in events {
        let stored = StoredEvent::new(actor, event);
        let line = serde_json::to_vec(&stored).expect("stored events have only plain fields");
        out.extend_from_slice(&line);
        out.push(b'\n');
    }
}

/// Decodes the lines of a body and appends their events to `events`.
pub fn decode_body_into(body: &[u8], events: &mut Vec<Event>) -> Result<(), LineError> {
    for line in body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let stored: StoredEvent =
            serde_json::from_slice(line).map_err(|error| LineError(error.to_string()))?;
        events.push(stored.into_event().map_err(LineError)?);
    }
    Ok(())
}
