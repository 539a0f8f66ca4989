//! The newest batches, in a separate file until they are in the database.
//!
//! An append is one write and one sync of this file, in space that it already has. The additional
//! cost of a database (pages, locks, a head row) is paid later, for many batches at once and by
//! another thread. Each batch begins on a new page and fills its last page with zeros, so that no
//! write ever touches an acknowledged batch. Space is reused only once the database has the batch
//! that was there, durably. The newest frame stays until a later one is complete, so that a tail
//! that is older than its database is known as one ([`super::inspect`]).
//!
//! Only frames are stored. The chain decides whether a frame counts: it does if it follows the
//! database's last batch, or another frame that counts. Everything else is a leftover.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use bursar_core::digest::Digest;
use bursar_core::time::Timestamp;
use bursar_seeded::{Bug, seeded};

use super::files::beside;
use crate::chain::{Chain, Epoch, Head, JournalId, StoredBatch};
use crate::error::{JournalError, is_full};

/// Frames begin at multiples of this: the unit in which the system writes, so that no two frames
/// share one.
const PAGE: usize = 4096;
/// The step in which the file grows. A sync that extends a file takes twice the time.
const GROWTH_BYTES: u64 = 256 << 10;
/// The first bytes of a frame. 0xff is not valid in UTF-8, so no text of a user contains them.
const MAGIC: &[u8; 16] = b"\xffbursar tail v1\xff";
/// The bytes of [`MAGIC`] that all versions share.
const MAGIC_NAME: usize = 14;
const HEADER_BYTES: usize = 136;

/// A batch that is in the tail and not known to be in the database.
#[derive(Clone)]
pub(super) struct TailBatch {
    pub(super) batch: Arc<StoredBatch>,
    /// Where it begins, and where the next one may begin.
    start: u64,
    end: u64,
}

/// The part of the file that must not be overwritten: from the oldest waiting batch, in a circle,
/// to the end of the newest. If both positions are equal, all of the file is occupied.
#[derive(Copy, Clone)]
pub(super) struct OccupiedRange {
    start: u64,
    end: u64,
}

impl From<&TailBatch> for OccupiedRange {
    fn from(waiting: &TailBatch) -> OccupiedRange {
        OccupiedRange { start: waiting.start, end: waiting.end }
    }
}

impl OccupiedRange {
    pub(super) fn by(waiting: &VecDeque<TailBatch>) -> Option<OccupiedRange> {
        let (oldest, newest) = waiting.front().zip(waiting.back())?;
        Some(OccupiedRange { start: oldest.start, end: newest.end })
    }

    /// Whether it is at least half of a file of this length.
    pub(super) fn is_half_of(self, capacity: u64) -> bool {
        let free = if self.end <= self.start {
            self.start - self.end
        } else {
            capacity.saturating_sub(self.end) + self.start
        };
        free <= capacity / 2
    }
}

/// The file of the tail.
pub(super) struct Tail {
    file: File,
    id: JournalId,
    /// The maximum length of the file.
    capacity: u64,
    /// The current length.
    length: u64,
    sync: bool,
    buffer: Vec<u8>,
}

impl Tail {
    /// Opens the file beside `path`, or creates it.
    pub(super) fn open(
        path: &Path,
        id: JournalId,
        capacity: u64,
        sync: bool,
    ) -> Result<Tail, JournalError> {
        let open = || {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(beside(path, "-tail"))?;
            let length = file.metadata()?.len();
            // A frame that was written but not synced will be accepted, so it must be durable
            // first.
            if sync && length > 0 {
                file.sync_all()?;
            }
            Ok(Tail { file, id, capacity, length, sync, buffer: Vec::new() })
        };
        open().map_err(|error: io::Error| JournalError::io("opening the tail", error))
    }

    /// Opens the file beside `path` for reading.
    pub(super) fn open_read_only(path: &Path, id: JournalId) -> Result<Tail, JournalError> {
        let open = || {
            let file = File::open(beside(path, "-tail"))?;
            let length = file.metadata()?.len();
            Ok(Tail { file, id, capacity: 0, length, sync: true, buffer: Vec::new() })
        };
        open().map_err(|error: io::Error| JournalError::io("opening the tail", error))
    }

    /// Whether a frame of this journal was ever written here, torn or not. Its first bytes are
    /// never removed.
    pub(super) fn was_written(&self) -> Result<bool, JournalError> {
        let mut start = [0; MAGIC.len() + 16];
        let mut place = 0;
        while place + start.len() as u64 <= self.length {
            self.file
                .read_exact_at(&mut start, place)
                .map_err(|error| JournalError::io("reading the tail", error))?;
            if start[..MAGIC.len()] == *MAGIC && start[MAGIC.len()..] == self.id.0 {
                return Ok(true);
            }
            place += PAGE as u64;
        }
        Ok(false)
    }

    /// The minimum length of the file after a power loss. Its writer may have extended it and not
    /// synced yet.
    pub(super) fn durable_length(&self) -> Result<u64, JournalError> {
        let synced = self.file.sync_all().map(|()| self.length);
        synced.map_err(|error| JournalError::io("syncing the tail", error))
    }

    /// The batches after `head`, the last batch in the database.
    ///
    /// # Errors
    /// Rejects a tail that has lost an acknowledged batch. An append begins only after the one
    /// before it was synced, so a power loss tears at most the last one.
    pub(super) fn recover(&self, head: Head) -> Result<Recovered, JournalError> {
        let mut found = self.scan()?;
        let newest = found.last_key_value();
        let frame = newest.map(|(_, frame)| OccupiedRange::from(frame));
        let newest = newest.map(|(sequence, _)| *sequence);
        let mut found = found.split_off(&(head.sequence + 1));
        let mut chain = Chain::from(head);
        let mut waiting = VecDeque::new();
        while let Some(next) = found.remove(&(chain.head().sequence + 1)) {
            chain.accept(&next.batch)?;
            waiting.push_back(next);
        }
        match found.last_key_value() {
            // Without syncs more than one frame may be torn.
            Some((last, _)) if self.sync => {
                let sequence = chain.head().sequence + 1;
                let reason = format!("it is missing in the tail, which has batch {last}");
                Err(JournalError::Corrupt { sequence, reason })
            }
            Some(_) | None => {
                // Earlier builds wrote larger frames, beside which another might not fit.
                let fits = |frame: &OccupiedRange| {
                    frame.end - frame.start <= largest(self.capacity) && frame.end <= self.capacity
                };
                let frame = frame.filter(fits);
                Ok(Recovered { waiting, newest, frame })
            }
        }
    }

    /// The batches of all complete frames, in order, whether they follow one another or not.
    pub(super) fn frames(&self) -> Result<Vec<Arc<StoredBatch>>, JournalError> {
        Ok(self.scan()?.into_values().map(|waiting| waiting.batch).collect())
    }

    /// All complete frames, by the numbers of their batches.
    fn scan(&self) -> Result<BTreeMap<u64, TailBatch>, JournalError> {
        let mut bytes = vec![0; usize::try_from(self.length).expect("it is a few megabytes long")];
        self.file
            .read_exact_at(&mut bytes, 0)
            .map_err(|error| JournalError::io("reading the tail", error))?;
        let mut found = BTreeMap::new();
        let mut start = 0;
        while start + HEADER_BYTES <= bytes.len() {
            let mut end = start + PAGE;
            if let Some(batch) = decode(&bytes[start..], self.id)? {
                end = start + (HEADER_BYTES + batch.payload.len()).next_multiple_of(PAGE);
                let [start, end] = [start, end].map(|place| place as u64);
                found.insert(batch.sequence, TailBatch { batch: Arc::new(batch), start, end });
            }
            start = end;
        }
        Ok(found)
    }

    /// Where a frame for `payload` bytes fits without overwriting waiting batches or the `newest`
    /// frame. Space is used in a circle, from the beginning if nothing waits.
    pub(super) fn place(
        &self,
        payload: usize,
        waiting: Option<OccupiedRange>,
        newest: Option<OccupiedRange>,
    ) -> Option<u64> {
        let bytes = frame_bytes(payload);
        if bytes > largest(self.capacity) {
            return None;
        }
        let Some(OccupiedRange { start, end }) = waiting else {
            let is_free = newest.is_none_or(|newest| bytes <= newest.start);
            return Some(newest.filter(|_| !is_free).map_or(0, |newest| newest.end));
        };
        if end <= start {
            return (end + bytes <= start).then_some(end);
        }
        if end + bytes <= self.capacity {
            return Some(end);
        }
        (bytes <= start).then_some(0)
    }

    /// Writes `batch` at `start`, which was returned by [`Tail::place`], and syncs it.
    pub(super) fn write(
        &mut self,
        start: u64,
        batch: StoredBatch,
    ) -> Result<TailBatch, WriteError> {
        let end = start + frame_bytes(batch.payload.len());
        self.grow(end)?;
        encode(&mut self.buffer, self.id, &batch);
        // A full disk fails before it has written anything. After a part of the frame the rest must
        // follow, or the contents of the disk are unknown.
        let written = self.file.write_at(&self.buffer, start)?;
        self.file
            .write_all_at(&self.buffer[written..], start + written as u64)
            .map_err(WriteError::Failed)?;
        if self.sync {
            self.file.sync_data().map_err(WriteError::Failed)?;
        }
        Ok(TailBatch { batch: Arc::new(batch), start, end })
    }

    /// Makes the file long enough, with spare room.
    fn grow(&mut self, end: u64) -> Result<(), WriteError> {
        if end <= self.length {
            return Ok(());
        }
        let longer = (self.length + GROWTH_BYTES).max(end).min(self.capacity.max(end));
        let zeros = vec![0; usize::try_from(longer - self.length).expect("it fits in memory")];
        self.file.write_all_at(&zeros, self.length)?;
        self.length = longer;
        Ok(())
    }
}

/// The result of [`Tail::recover`].
pub(super) struct Recovered {
    /// The batches that the database does not have.
    pub(super) waiting: VecDeque<TailBatch>,
    /// The number of the newest batch with a complete frame, whether the database has it or not.
    pub(super) newest: Option<u64>,
    /// Where that frame is.
    pub(super) frame: Option<OccupiedRange>,
}

/// The size of the largest frame: there is always space for another one beside it.
fn largest(capacity: u64) -> u64 {
    capacity / 3 / PAGE as u64 * PAGE as u64
}

/// The most bytes of payload of a batch in a tail of this length. Others go into the database at
/// once.
pub(super) fn largest_payload(capacity: u64) -> u64 {
    largest(capacity).saturating_sub(HEADER_BYTES as u64)
}

/// Why a batch was not written.
pub(super) enum WriteError {
    /// There is no space for it, and nothing of it was written.
    Full(io::Error),
    /// The contents of the disk are unknown.
    Failed(io::Error),
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> WriteError {
        if is_full(&error) { WriteError::Full(error) } else { WriteError::Failed(error) }
    }
}

/// The size of a frame with this payload, in whole pages.
fn frame_bytes(payload: usize) -> u64 {
    (HEADER_BYTES + payload).next_multiple_of(PAGE) as u64
}

fn encode(out: &mut Vec<u8>, id: JournalId, batch: &StoredBatch) {
    let length = u32::try_from(batch.payload.len()).expect("a batch fits into the file");
    out.clear();
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&id.0);
    out.extend_from_slice(&batch.sequence.to_le_bytes());
    out.extend_from_slice(&batch.first_position.to_le_bytes());
    out.extend_from_slice(&batch.records.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&batch.epoch.0.to_le_bytes());
    out.extend_from_slice(&batch.time.millis().to_le_bytes());
    out.extend_from_slice(&batch.previous.0);
    out.extend_from_slice(&batch.hash.0);
    out.extend_from_slice(&batch.payload);
    out.resize(out.len().next_multiple_of(PAGE), 0);
}

/// The batch whose frame begins `bytes`, if it is complete and of this journal.
fn decode(bytes: &[u8], id: JournalId) -> Result<Option<StoredBatch>, JournalError> {
    let (header, rest) = bytes.split_at(HEADER_BYTES);
    if header[..16] != *MAGIC {
        return unknown_version(header);
    }
    let number =
        |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
    let short = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
    let digest = |at: usize| Digest(header[at..at + 32].try_into().expect("32 bytes"));
    let length = usize::try_from(short(52)).expect("at least 32 bits");
    if header[16..32] != id.0 || length > rest.len() {
        return Ok(None);
    }
    let batch = StoredBatch {
        sequence: number(32),
        first_position: number(40),
        records: short(48),
        epoch: Epoch(number(56)),
        time: Timestamp::from_millis(number(64).cast_signed()),
        payload: rest[..length].to_vec(),
        previous: digest(72),
        hash: digest(104),
    };
    let is_whole = batch.computed_hash() == batch.hash || seeded(Bug::AcceptsTornFrame);
    Ok(is_whole.then_some(batch))
}

/// A frame of a later version must not be treated as a leftover.
fn unknown_version(header: &[u8]) -> Result<Option<StoredBatch>, JournalError> {
    let newer = header[..MAGIC_NAME] == MAGIC[..MAGIC_NAME]
        && header[15] == MAGIC[15]
        && header[14].is_ascii_digit();
    if newer {
        let version = char::from(header[14]);
        return Err(JournalError::Refused(format!(
            "the journal's tail has version {version}; this build knows version 1"
        )));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: u64 = 12 * PAGE as u64;

    fn batch(sequence: u64, payload: usize) -> StoredBatch {
        let mut batch = StoredBatch {
            sequence,
            first_position: sequence,
            records: 1,
            epoch: Epoch(2),
            time: Timestamp::from_millis(1_577_836_800_000),
            payload: vec![0x5a; payload],
            previous: Digest([6; 32]),
            hash: Digest([0; 32]),
        };
        batch.hash = batch.computed_hash();
        batch
    }

    #[test]
    fn the_bytes_of_a_frame_never_change() {
        let mut bytes = Vec::new();
        encode(&mut bytes, JournalId([3; 16]), &batch(9, 5));
        assert_eq!(bytes.len(), PAGE);
        let mut expected = b"\xffbursar tail v1\xff".to_vec();
        expected.extend([3; 16]);
        expected.extend([9, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([1, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([0x00, 0xe8, 0x66, 0x5e, 0x6f, 0x01, 0, 0]);
        expected.extend([6; 32]);
        expected.extend(batch(9, 5).hash.0);
        expected.extend([0x5a; 5]);
        assert_eq!(bytes[..expected.len()], expected);
        assert!(bytes[expected.len()..].iter().all(|byte| *byte == 0));
        let read = decode(&bytes, JournalId([3; 16])).expect("a known version");
        assert_eq!(read, Some(batch(9, 5)));
    }

    #[test]
    fn a_frame_of_another_journal_and_a_torn_frame_do_not_count() {
        let mut bytes = Vec::new();
        encode(&mut bytes, JournalId([3; 16]), &batch(9, 5_000));
        let read = |bytes: &[u8], id| decode(bytes, JournalId([id; 16]));
        assert_eq!(read(&bytes, 3), Ok(Some(batch(9, 5_000))));
        assert_eq!(read(&bytes, 4), Ok(None));
        assert_eq!(read(&bytes[..PAGE], 3), Ok(None));
        bytes[PAGE..].fill(0);
        assert_eq!(read(&bytes, 3), Ok(None));
    }

    #[test]
    fn a_frame_of_a_later_version_is_refused() {
        let mut bytes = Vec::new();
        encode(&mut bytes, JournalId([3; 16]), &batch(9, 5));
        bytes[14] = b'2';
        let refused = decode(&bytes, JournalId([3; 16])).expect_err("version 2");
        assert!(refused.to_string().contains("version 2"), "{refused}");
    }

    #[test]
    fn no_frame_ever_overwrites_a_waiting_one_or_the_newest() {
        let directory = std::env::temp_dir().join(format!("bursar-tail-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("it is writable");
        let path = directory.join("journal.db");
        let mut tail = Tail::open(&path, JournalId([3; 16]), CAPACITY, false).expect("a new file");
        let mut waiting = VecDeque::<TailBatch>::new();
        let mut newest = None::<OccupiedRange>;
        let (mut wrapped, mut refused, mut alone) = (0, 0, 0);
        let mut random = 1_u64;
        for sequence in 1..=2_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let payload = usize::try_from(random >> 33).expect("31 bits") % (3 * PAGE);
            let occupied = OccupiedRange::by(&waiting);
            let Some(start) = tail.place(payload, occupied, newest) else {
                assert!(!waiting.is_empty(), "there is always space beside the newest");
                refused += 1;
                waiting.pop_front();
                continue;
            };
            let end = start + frame_bytes(payload);
            assert!(end <= CAPACITY);
            for other in &waiting {
                assert!(end <= other.start || other.end <= start, "{start}..{end}");
            }
            if let Some(newest) = newest {
                assert!(end <= newest.start || newest.end <= start, "{start}..{end}");
            }
            alone += u32::from(waiting.is_empty());
            wrapped += u32::from(waiting.back().is_some_and(|last| start < last.start));
            let Ok(written) = tail.write(start, batch(sequence, payload)) else {
                panic!("there is space");
            };
            newest = Some(OccupiedRange::from(&written));
            waiting.push_back(written);
            match random >> 60 {
                0 => waiting.clear(),
                1..5 => drop(waiting.pop_front()),
                _ => {}
            }
        }
        let counts = [wrapped, refused, alone];
        assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
        std::fs::remove_dir_all(&directory).expect("the test owns it");
    }
}
