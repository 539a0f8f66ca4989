//! The tail beside a SQLite journal, decoded according to `docs/reference/journal-format.md`: batches that
//! are durable and not yet in the database.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::chain;
use crate::source::{RawBatch, RawHead};

const PAGE: usize = 4096;
const MAGIC: &[u8; 16] = b"\xffbursar tail v1\xff";
const HEADER: usize = 136;

/// How often a tail with a missing batch is read again. A tail in use may have been written while
/// it was read.
pub(crate) const MAX_TRIES: u32 = 20;
/// The pause before each of these reads.
pub(crate) const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// The complete frames of one read.
pub(crate) struct Tail(Vec<([u8; 16], RawBatch)>);

impl Tail {
    /// Reads the tail of the journal in `file`. Must run before the database is read: batches that
    /// are moved meanwhile are then in both, not in neither.
    pub(crate) fn read(file: &Path) -> io::Result<Tail> {
        match std::fs::read(path(file)) {
            Ok(bytes) => Ok(Tail(frames(&bytes))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Tail(Vec::new())),
            Err(error) => Err(error),
        }
    }

    /// The batches after the database's head, in order.
    pub(crate) fn behind(self, journal: [u8; 16], head: RawHead) -> TailBatches {
        let newer: BTreeMap<u64, RawBatch> = self
            .0
            .into_iter()
            .filter(|(id, batch)| *id == journal && batch.sequence > head.sequence)
            .map(|(_, batch)| (batch.sequence, batch))
            .collect();
        let whole = (head.sequence + 1..).zip(newer.keys()).all(|(next, found)| next == *found);
        TailBatches { batches: newer.into_values().collect(), whole }
    }
}

/// Batches that are not in the database.
pub(crate) struct TailBatches {
    pub(crate) batches: Vec<RawBatch>,
    /// Whether no batch between them is missing.
    pub(crate) whole: bool,
}

impl TailBatches {
    /// The head of the journal including these batches.
    pub(crate) fn head(&self, stored: RawHead) -> RawHead {
        self.batches.last().map_or(stored, |last| RawHead {
            sequence: last.sequence,
            position: (last.first_position + u64::from(last.records)).saturating_sub(1),
            hash: last.hash,
        })
    }
}

fn path(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push("-tail");
    name.into()
}

fn frames(bytes: &[u8]) -> Vec<([u8; 16], RawBatch)> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while let Some((header, _)) = rest.split_first_chunk::<HEADER>() {
        let frame = frame(header, &rest[HEADER..]);
        let length = frame.as_ref().map_or(0, |(_, batch)| batch.payload.len());
        found.extend(frame);
        rest = rest.get((HEADER + length).next_multiple_of(PAGE)..).unwrap_or_default();
    }
    found
}

fn frame(header: &[u8; HEADER], rest: &[u8]) -> Option<([u8; 16], RawBatch)> {
    let (magic, header) = header.split_first_chunk::<16>()?;
    let (journal, header) = header.split_first_chunk::<16>()?;
    let (sequence, header) = header.split_first_chunk::<8>()?;
    let (first_position, header) = header.split_first_chunk::<8>()?;
    let (records, header) = header.split_first_chunk::<4>()?;
    let (length, header) = header.split_first_chunk::<4>()?;
    let (epoch, header) = header.split_first_chunk::<8>()?;
    let (time, header) = header.split_first_chunk::<8>()?;
    let (previous, hash) = header.split_first_chunk::<32>()?;
    let payload = rest.get(..usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    let batch = RawBatch {
        sequence: u64::from_le_bytes(*sequence),
        first_position: u64::from_le_bytes(*first_position),
        records: u32::from_le_bytes(*records),
        epoch: u64::from_le_bytes(*epoch),
        time: i64::from_le_bytes(*time),
        payload: payload.to_vec(),
        previous: *previous,
        hash: hash.try_into().ok()?,
    };
    (magic == MAGIC && chain::hash(&batch) == batch.hash).then_some((*journal, batch))
}
