//! The ledger's codec: the author and the command are stored before the events.

use bursar_core::ledger::Ledger;
use bursar_core::ledger::event::Event;
use bursar_journal::record::ledger::{
    AuditHeader, Outcome, decode_body_into, decode_image, encode_body, encode_image,
    may_tell_a_cell,
};

use crate::codec::{Codec, CodecError, RecordOrigin};

/// The stored form of a ledger's events and state: see `docs/reference/journal-format.md`.
#[derive(Copy, Clone, Debug, Default)]
pub struct LedgerCodec;

impl Codec for LedgerCodec {
    type Machine = Ledger;

    fn genesis(&self) -> Ledger {
        Ledger::new()
    }

    fn encode(&self, origin: RecordOrigin<'_, Ledger>, events: &[Event], body: &mut Vec<u8>) {
        let header = match origin {
            RecordOrigin::Due => None,
            RecordOrigin::Command { envelope, command, accepted } => {
                let mut header = AuditHeader::of(envelope, command, events);
                // A message of a cell is accepted even if credits are denied because of it.
                if accepted {
                    header.outcome = Outcome::Accepted;
                }
                Some(header)
            }
        };
        #[cfg(debug_assertions)]
        crate::fault::panic_on_demand(&origin, events);
        encode_body(header.as_ref(), events, body);
    }

    fn decode(&self, body: &[u8], events: &mut Vec<Event>) -> Result<(), CodecError> {
        decode_body_into(body, events).map(|_| ()).map_err(|error| CodecError(error.to_string()))
    }

    fn doubt_clock(&self, machine: &Ledger, events: &mut Vec<Event>) {
        machine.doubt_clock(events);
    }

    fn may_hold_messages(&self, payload: &[u8]) -> bool {
        may_tell_a_cell(payload)
    }

    fn encode_state(&self, machine: &Ledger) -> Vec<u8> {
        encode_image(&machine.image())
    }

    fn decode_state(&self, bytes: &[u8]) -> Result<Ledger, CodecError> {
        let image = decode_image(bytes).map_err(|error| CodecError(error.to_string()))?;
        Ledger::from_image(image).map_err(|error| CodecError(error.to_string()))
    }
}
