//! The cell's codec: the author and the command are stored before the events.

use bursar_core::cell::Cell;
use bursar_core::cell::event::Event;
use bursar_journal::record::cell::{
    CellHeader, decode_body_into, decode_image, encode_body, encode_image,
};

use crate::codec::{Codec, CodecError, RecordOrigin};

/// The stored form of a cell's events and state: see `docs/reference/journal-format.md`.
#[derive(Copy, Clone, Debug, Default)]
pub struct CellCodec;

impl Codec for CellCodec {
    type Machine = Cell;

    fn genesis(&self) -> Cell {
        Cell::new()
    }

    fn encode(&self, origin: RecordOrigin<'_, Cell>, events: &[Event], body: &mut Vec<u8>) {
        let header = match origin {
            RecordOrigin::Due => None,
            RecordOrigin::Command { envelope, command, accepted } => {
                Some(CellHeader::of(envelope, command, accepted))
            }
        };
        #[cfg(debug_assertions)]
        crate::fault::panic_on_demand(&origin, events);
        encode_body(header.as_ref(), events, body);
    }

    fn decode(&self, body: &[u8], events: &mut Vec<Event>) -> Result<(), CodecError> {
        decode_body_into(body, events).map(|_| ()).map_err(|error| CodecError(error.to_string()))
    }

    fn encode_state(&self, machine: &Cell) -> Vec<u8> {
        encode_image(&machine.image())
    }

    fn decode_state(&self, bytes: &[u8]) -> Result<Cell, CodecError> {
        let image = decode_image(bytes).map_err(|error| CodecError(error.to_string()))?;
        Cell::from_image(image).map_err(|error| CodecError(error.to_string()))
    }
}
