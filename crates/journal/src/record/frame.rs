//! The frame of one record.

use bursar_core::time::Timestamp;
use thiserror::Error;

/// The version that this build writes. Every version ever written stays readable.
pub const FORMAT_VERSION: u8 = 1;
/// The largest body of one record: 64 MiB.
pub const MAX_BODY_BYTES: usize = 64 << 20;
/// Bytes of the length field.
const LENGTH_BYTES: usize = 4;
/// Version, kind and time.
const HEADER_BYTES: usize = 10;

/// The kind of a record. The numbers are stored and never reused.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RecordKind {
    /// An owner took over. No events, but everything before is durable. The body is empty.
    Barrier = 0,
    /// The events of one command.
    Decision = 1,
    /// The events of due timers, at their own instant.
    Due = 2,
    /// The events of a group of commands that all happened: `length u32 | body` for each.
    Group = 3,
}

impl RecordKind {
    fn from_byte(byte: u8) -> Option<RecordKind> {
        match byte {
            0 => Some(RecordKind::Barrier),
            1 => Some(RecordKind::Decision),
            2 => Some(RecordKind::Due),
            3 => Some(RecordKind::Group),
            _ => None,
        }
    }
}

/// One record, decoded in place.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its number in the journal.
    pub position: u64,
    /// Its kind.
    pub kind: RecordKind,
    /// When it happened.
    pub time: Timestamp,
    /// The machine's own encoding of the events.
    pub body: &'a [u8],
    /// All bytes of the record, for hashing.
    pub frame: &'a [u8],
}

/// Why bytes are not valid records.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// Written by a newer build, or damaged.
    #[error(
        "record {position} has format version {version}; this build reads versions 1 to {FORMAT_VERSION}: use the build that wrote it or a newer one"
    )]
    UnknownVersion {
        /// The position.
        position: u64,
        /// The version.
        version: u8,
    },
    /// A kind that this build does not know.
    #[error(
        "record {position} has the unknown kind {kind}: use the build that wrote it or a newer one"
    )]
    UnknownKind {
        /// The position.
        position: u64,
        /// The kind.
        kind: u8,
    },
    /// Its length exceeds the batch or is impossible.
    #[error("record {position} is cut off: {needed} bytes announced, {left} left")]
    Truncated {
        /// The position.
        position: u64,
        /// The bytes that its length declares.
        needed: usize,
        /// The bytes that are left.
        left: usize,
    },
    /// A time outside the years 0 to 9999.
    #[error("record {position} has the impossible time {millis} ms")]
    ImpossibleTime {
        /// The position.
        position: u64,
        /// The time.
        millis: i64,
    },
    /// More or fewer records than the batch declares.
    #[error("the batch from position {first} announces {announced} records and holds {found}")]
    WrongCount {
        /// Position of the first record.
        first: u64,
        /// The declared number.
        announced: u32,
        /// The number found, counted to at most one above `announced`.
        found: u32,
    },
}

/// A record that exceeds its size limit.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Error)]
#[error("a record of {bytes} bytes is more than the {most} that one record may have")]
pub struct RecordTooLarge {
    /// Bytes of its body.
    pub bytes: usize,
    /// The limit.
    pub most: usize,
}

/// Appends one record to `out`. `body` writes the body in place. If it is larger than `most` bytes,
/// or than any record may be, `out` is unchanged.
pub(super) fn write_frame(
    out: &mut Vec<u8>,
    kind: RecordKind,
    time: Timestamp,
    most: usize,
    body: impl FnOnce(&mut Vec<u8>),
) -> Result<(), RecordTooLarge> {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    out.push(FORMAT_VERSION);
    out.push(kind as u8);
    out.extend_from_slice(&time.millis().to_le_bytes());
    body(out);
    let length = out.len() - start - LENGTH_BYTES;
    let (bytes, most) = (length - HEADER_BYTES, most.min(MAX_BODY_BYTES));
    if bytes > most {
        out.truncate(start);
        return Err(RecordTooLarge { bytes, most });
    }
    let length = u32::try_from(length).expect("64 MiB fit in 32 bits");
    out[start..start + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

/// Iterates over the records of a payload whose first record has the position `first`.
pub fn frames(payload: &[u8], first: u64, records: u32) -> Frames<'_> {
    Frames { rest: payload, first, announced: records, found: 0, failed: false }
}

/// Iterator over the records of one batch. Stops at the first error.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    rest: &'a [u8],
    first: u64,
    announced: u32,
    found: u32,
    failed: bool,
}

impl<'a> Frames<'a> {
    fn read(&mut self) -> Result<Record<'a>, RecordError> {
        let position = self.first.saturating_add(u64::from(self.found));
        if self.found == self.announced || self.rest.is_empty() {
            // One more than declared is enough to prove that the number is wrong.
            let found = if self.rest.is_empty() { self.found } else { self.found + 1 };
            return Err(RecordError::WrongCount {
                first: self.first,
                announced: self.announced,
                found,
            });
        }
        let truncated = |needed, left| RecordError::Truncated { position, needed, left };
        let Some((length, rest)) = self.rest.split_first_chunk::<LENGTH_BYTES>() else {
            return Err(truncated(LENGTH_BYTES, self.rest.len()));
        };
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        if !(HEADER_BYTES..=HEADER_BYTES + MAX_BODY_BYTES).contains(&length) || length > rest.len()
        {
            return Err(truncated(length, rest.len()));
        }
        let (content, after) = rest.split_at(length);
        let record = parse(position, content, &self.rest[..LENGTH_BYTES + length])?;
        self.rest = after;
        self.found += 1;
        Ok(record)
    }
}

fn parse<'a>(position: u64, content: &'a [u8], frame: &'a [u8]) -> Result<Record<'a>, RecordError> {
    let Some((header, body)) = content.split_first_chunk::<HEADER_BYTES>() else {
        let left = content.len();
        return Err(RecordError::Truncated { position, needed: HEADER_BYTES, left });
    };
    let [version, kind, time @ ..] = *header;
    if version != FORMAT_VERSION {
        return Err(RecordError::UnknownVersion { position, version });
    }
    let Some(kind) = RecordKind::from_byte(kind) else {
        return Err(RecordError::UnknownKind { position, kind });
    };
    let millis = i64::from_le_bytes(time);
    let time = Timestamp::from_millis(millis);
    if time.millis() != millis {
        return Err(RecordError::ImpossibleTime { position, millis });
    }
    Ok(Record { position, kind, time, body, frame })
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Record<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || (self.rest.is_empty() && self.found == self.announced) {
            return None;
        }
        let record = self.read();
        self.failed = record.is_err();
        Some(record)
    }
}
