//! The cell's codec: who asked for what, in front of what happened.

use bursar_core::cell::Cell;
use bursar_core::cell::event::Event;
use bursar_journal::record::cell::{AuditHeader, decode_body_into, encode_body};

use crate::codec::{Codec, CodecError, Origin};

/// The stored form of a cell's events and state: see `docs/journal-format.md`.
#[derive(Copy, Clone, Debug, Default)]
pub struct CellCodec;

impl Codec for CellCodec {
    type Machine = Cell;

    fn genesis(&self) -> Cell {
        Cell::new()
    }

    fn encode(&self, origin: Origin<'_, Cell>, events: &[Event], body: &mut Vec<u8>) {
        let header = match origin {
            Origin::Due => None,
            Origin::Command { envelope, command, accepted } => {
                Some(AuditHeader::of(envelope, command, accepted))
            }
        };
        encode_body(header.as_ref(), events, body);
    }

    fn decode(&self, body: &[u8], events: &mut Vec<Event>) -> Result<(), CodecError> {
        decode_body_into(body, events).map(|_| ()).map_err(|error| CodecError(error.to_string()))
    }

    /// Cells are rebuilt from their journals: there is no image yet, and an empty one is skipped.
    fn encode_state(&self, _machine: &Cell) -> Vec<u8> {
        Vec::new()
    }

    fn decode_state(&self, _bytes: &[u8]) -> Result<Cell, CodecError> {
        Err(CodecError("cells have no snapshots".into()))
    }
}
