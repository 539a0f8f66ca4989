//! The stored form of the directory, as the engine wants it.

use bursar_core::directory::{Directory, Event as DirectoryEvent};
use bursar_engine::{Codec, CodecError, Origin};

use crate::stored::StoredEvent;

fn unreadable(error: impl std::fmt::Display) -> CodecError {
    CodecError(error.to_string())
}

/// The directory's stored form: a line of JSON per event. It is small and changes rarely, so that
/// being readable with any tool counts for more than being short.
#[derive(Copy, Clone, Debug, Default)]
pub struct DirectoryCodec;

impl Codec for DirectoryCodec {
    type Machine = Directory;

    fn genesis(&self) -> Directory {
        Directory::new()
    }

    fn encode(&self, origin: Origin<'_, Directory>, events: &[DirectoryEvent], body: &mut Vec<u8>) {
        let actor = match &origin {
            Origin::Command { envelope, .. } => Some(envelope.actor.as_str()),
            Origin::Due => None,
        };
        for event in events {
            let stored = StoredEvent::new(actor, event);
            let line = serde_json::to_vec(&stored).expect("stored events have only plain fields");
            body.extend_from_slice(&line);
            body.push(b'\n');
        }
    }

    fn decode(&self, body: &[u8], events: &mut Vec<DirectoryEvent>) -> Result<(), CodecError> {
        for line in body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let stored: StoredEvent = serde_json::from_slice(line).map_err(unreadable)?;
            events.push(stored.into_event().map_err(CodecError)?);
        }
        Ok(())
    }

    fn encode_state(&self, _: &Directory) -> Vec<u8> {
        // The journal of the directory is short: no snapshots are made of it.
        Vec::new()
    }

    fn decode_state(&self, _: &[u8]) -> Result<Directory, CodecError> {
        Err(CodecError("no snapshots are made of the directory".into()))
    }
}
