//! The stored form of what the directory decided: a line of JSON per event. It is small and changes
//! rarely, so that being readable with any tool counts for more than being short.

mod event;

use bursar_core::directory::Event;
use thiserror::Error;

use event::StoredEvent;

/// Why a line is not a stored event of the directory.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct LineError(String);

/// Writes a line for each event behind what is in `out`, with who brought it about.
pub fn encode_body(actor: Option<&str>, events: &[Event], out: &mut Vec<u8>) {
    for event in events {
        let stored = StoredEvent::new(actor, event);
        let line = serde_json::to_vec(&stored).expect("stored events have only plain fields");
        out.extend_from_slice(&line);
        out.push(b'\n');
    }
}

/// Reads the lines of a body and puts their events behind what is in `events`.
pub fn decode_body_into(body: &[u8], events: &mut Vec<Event>) -> Result<(), LineError> {
    for line in body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let stored: StoredEvent =
            serde_json::from_slice(line).map_err(|error| LineError(error.to_string()))?;
        events.push(stored.into_event().map_err(LineError)?);
    }
    Ok(())
}
