//! The directory's codec.

use bursar_core::directory::{Directory, Event as DirectoryEvent};
use bursar_journal::record::directory::{DirectoryHeader, decode_body_into, encode_body};

use crate::codec::{Codec, CodecError, RecordOrigin};

/// The directory's stored form: a line of JSON per event. The journal is small and changes rarely,
/// so readability with any tool matters more than size.
#[derive(Copy, Clone, Debug, Default)]
pub struct DirectoryCodec;

impl Codec for DirectoryCodec {
    type Machine = Directory;

    fn genesis(&self) -> Directory {
        Directory::new()
    }

    fn encode(
        &self,
        origin: RecordOrigin<'_, Directory>,
        events: &[DirectoryEvent],
        body: &mut Vec<u8>,
    ) {
        let header = match &origin {
            RecordOrigin::Command { envelope, .. } => DirectoryHeader {
                actor: Some(envelope.actor.to_string()),
                request: envelope.request,
            },
            RecordOrigin::Due => DirectoryHeader::default(),
        };
        encode_body(&header, events, body);
    }

    fn decode(&self, body: &[u8], events: &mut Vec<DirectoryEvent>) -> Result<(), CodecError> {
        decode_body_into(body, events).map(|_| ()).map_err(|error| CodecError(error.to_string()))
    }

    fn encode_state(&self, _: &Directory) -> Vec<u8> {
        // The journal of the directory is short, so no snapshots are made of it.
        Vec::new()
    }

    fn decode_state(&self, _: &[u8]) -> Result<Directory, CodecError> {
        Err(CodecError("no snapshots are made of the directory".into()))
    }
}
