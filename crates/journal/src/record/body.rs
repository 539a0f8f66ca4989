//! The common form of the bodies and images of all machines: `[version, header, events]` and
//! `[version, image]`.

use super::codec::FormatError;
use super::codec::wire::{Reader, Stored, Writer};

/// One decoded body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body<H, E> {
    /// The author and the command. `None` for a timer.
    pub header: Option<H>,
    /// The events.
    pub events: Vec<E>,
}

/// Appends one encoded body to `out`.
pub(super) fn encode<H: Stored, E: Stored>(
    version: u64,
    header: Option<&H>,
    events: &[E],
    out: &mut Vec<u8>,
) {
    let mut out = Writer::new(out);
    out.array(3);
    out.unsigned(version);
    match header {
        Some(header) => header.write(&mut out),
        None => out.null(),
    }
    out.array(events.len());
    events.iter().for_each(|event| event.write(&mut out));
}

/// Decodes exactly one body and appends its events to `events`.
pub(super) fn decode_into<H: Stored, E: Stored>(
    version: u64,
    bytes: &[u8],
    events: &mut Vec<E>,
) -> Result<Option<H>, FormatError> {
    let mut input = Reader::new(bytes);
    input.array_of("the body of a record", 3)?;
    require_version("the body", version, &mut input)?;
    let header = if input.skip_null()? { None } else { Some(H::read(&mut input)?) };
    for _ in 0..input.array()? {
        events.push(E::read(&mut input)?);
    }
    input.finish()?;
    Ok(header)
}

/// Encodes an image.
pub(super) fn encode_image<I: Stored>(version: u64, image: &I) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut out = Writer::new(&mut bytes);
    out.array(2);
    out.unsigned(version);
    image.write(&mut out);
    bytes
}

/// Decodes [`encode_image`].
pub(super) fn decode_image<I: Stored>(version: u64, bytes: &[u8]) -> Result<I, FormatError> {
    let mut input = Reader::new(bytes);
    input.array_of("an image", 2)?;
    require_version("the image", version, &mut input)?;
    let image = I::read(&mut input)?;
    input.finish()?;
    Ok(image)
}

/// Reads the version. There is only one so far.
fn require_version(
    what: &'static str,
    known: u64,
    input: &mut Reader<'_>,
) -> Result<(), FormatError> {
    match input.unsigned()? {
        version if version == known => Ok(()),
        version => Err(FormatError::UnknownVersion { what, version }),
    }
}
