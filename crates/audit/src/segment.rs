//! Sealed segments beside a SQLite journal, decoded according to `docs/reference/journal-format.md`.

use std::io;
use std::path::{Path, PathBuf};

use bursar_journal::merkle::{SignedCheckpoint, Verifier, VerifyingKey};
use bursar_journal::{JournalId, SegmentMark};
use rusqlite::Connection;

use crate::chain::{self, first_record};
use crate::malformed::Malformed;
use crate::source::{RawBatch, SourceError, row_checksum};

const MAGIC: &[u8; 16] = b"bursar segment\0\x01";
/// Bytes before the first block.
const START: usize = 32;
/// Bytes of the footer, without the roots before it and the digest after it.
const FOOTER: usize = 288;
/// Bytes before the content of a block.
const BLOCK: usize = 60;
/// Bytes of the numbers of one batch.
const NUMBERS: usize = 28;
/// The largest block that is decompressed.
const MAX_BLOCK: u64 = 1 << 31;

/// A row of the list of segments.
pub(crate) struct Listed {
    pub(crate) first: u64,
    pub(crate) last: u64,
    first_position: u64,
    last_position: u64,
    began_at: i64,
    previous: [u8; 32],
    hash: [u8; 32],
    digest: [u8; 32],
    bytes: u64,
}

impl From<SegmentMark> for Listed {
    fn from(mark: SegmentMark) -> Listed {
        Listed {
            first: mark.first,
            last: mark.last,
            first_position: mark.first_position,
            last_position: mark.last_position,
            began_at: mark.began_at.millis(),
            previous: mark.previous.0,
            hash: mark.hash.0,
            digest: mark.digest.0,
            bytes: mark.bytes,
        }
    }
}

impl Listed {
    fn name(&self) -> String {
        let hash: String = self.hash[..4].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{:020}-{:020}-{hash}.segment", self.first, self.last)
    }

    fn error(&self, reason: impl Into<String>) -> SourceError {
        let (name, first, last) = (self.name(), self.first, self.last);
        SourceError::Segment { name, first, last, reason: reason.into() }
    }
}

/// The list of segments, oldest first, each row verified.
pub(crate) fn list(
    connection: &Connection,
    journal: &[u8; 16],
) -> Result<Vec<Listed>, SourceError> {
    let sql = "SELECT count(*) FROM sqlite_schema WHERE name = 'segment'";
    let tables: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    if tables == 0 {
        return Ok(Vec::new());
    }
    let mut statement = connection.prepare(
        "SELECT first, last, first_position, last_position, began_at, previous, hash, digest, bytes,
                checksum FROM segment ORDER BY first",
    )?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let number = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
        let listed = Listed {
            first: number(0)?,
            last: number(1)?,
            first_position: number(2)?,
            last_position: number(3)?,
            began_at: row.get(4)?,
            previous: row.get(5)?,
            hash: row.get(6)?,
            digest: row.get(7)?,
            bytes: number(8)?,
        };
        let numbers = [listed.first, listed.last, listed.first_position, listed.last_position];
        let numbers = numbers.map(u64::to_le_bytes);
        let mut fields: Vec<&[u8]> = vec![journal];
        fields.extend(numbers.iter().map(|number| &number[..]));
        let (began_at, bytes) = (listed.began_at.to_le_bytes(), listed.bytes.to_le_bytes());
        fields.push(&began_at);
        fields.extend([&listed.previous[..], &listed.hash, &listed.digest, &bytes]);
        if row_checksum("segment", &fields)[..] != row.get::<_, Vec<u8>>(9)?[..] {
            return Err(SourceError::Checksum("list of segments"));
        }
        found.push(listed);
    }
    Ok(found)
}

/// Where the segments of a journal are.
pub(crate) struct Folders {
    beside: PathBuf,
    archived: PathBuf,
}

impl Folders {
    pub(crate) fn of(file: &Path) -> Folders {
        let with = |suffix: &str| {
            let mut name = file.as_os_str().to_owned();
            name.push(suffix);
            PathBuf::from(name)
        };
        Folders { beside: with(".segments"), archived: with(".archived") }
    }

    /// The bytes of a segment.
    pub(crate) fn read(&self, listed: &Listed) -> Result<Vec<u8>, SourceError> {
        let name = listed.name();
        let mut places = vec![self.beside.clone()];
        let mut next = 0;
        while let Some(folder) = places.get(next) {
            match std::fs::read(folder.join(&name)) {
                Ok(bytes) => return Ok(bytes),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(listed.error(format!("{}: {error}", folder.display())));
                }
            }
            next += 1;
            // A segment leaves the first folder after its place was remembered.
            if next == 1 {
                places.extend(
                    self.archived(&name).map_err(|reason| listed.error(reason.to_string()))?,
                );
            }
        }
        let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
        Err(listed.error(format!(
            "it is missing in {}: mount that folder or put back the file; backups have the same file",
            places.join(" and in ")
        )))
    }

    /// The folders that this segment was moved to.
    fn archived(&self, name: &str) -> Result<Vec<PathBuf>, Malformed> {
        let text = match std::fs::read(&self.archived) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(format!("{}: {error}", self.archived.display()).into()),
        };
        let file: serde_json::Value = serde_json::from_slice(&text)
            .map_err(|error| format!("{}: {error}", self.archived.display()))?;
        let segments = file["segments"].as_array().map(Vec::as_slice).unwrap_or_default();
        let ours = segments.iter().filter(|segment| segment["name"] == name);
        Ok(ours.filter_map(|segment| segment["folder"].as_str()).map(PathBuf::from).collect())
    }
}

/// Reads the segments of a journal one after the other.
pub(crate) struct Reader<'a> {
    journal: [u8; 16],
    /// The keys that sign checkpoints; none if they are not known.
    keys: &'a [VerifyingKey],
    /// The digest of the segment before.
    follows: [u8; 32],
    /// The tree over the records so far.
    tree: Tree,
    /// How many signatures were verified.
    pub(crate) signatures: u64,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(journal: [u8; 16], keys: &'a [VerifyingKey]) -> Reader<'a> {
        let (follows, tree) = ([0; 32], Tree::default());
        Reader { journal, keys, follows, tree, signatures: 0 }
    }

    /// Passes the batches of the next segment to `take`, until it returns false. Returns whether it
    /// never did.
    pub(crate) fn each(
        &mut self,
        listed: &Listed,
        bytes: &[u8],
        take: &mut dyn FnMut(RawBatch) -> bool,
    ) -> Result<bool, SourceError> {
        let altered = |reason: Malformed| {
            listed.error(format!(
                "it was altered: {reason}; put back the file, of which backups have a copy"
            ))
        };
        let segment = self.open(bytes, listed).map_err(altered)?;
        let (mut sequence, mut rest) = (listed.first, segment.blocks);
        while !rest.is_empty() {
            let (batches, after) = block(rest, sequence).map_err(altered)?;
            rest = after;
            sequence += batches.len() as u64;
            for batch in batches {
                self.tree.add(&batch).map_err(altered)?;
                if !take(batch) {
                    return Ok(false);
                }
            }
        }
        self.check_end(listed, &segment, sequence).map_err(altered)?;
        self.follows = listed.digest;
        Ok(true)
    }

    /// Checks the frame of the file: its digest, its journal, its range, and what it follows.
    fn open<'b>(&self, bytes: &'b [u8], listed: &Listed) -> Result<Parts<'b>, Malformed> {
        let (content, digest) = bytes.split_last_chunk::<32>().ok_or("it is cut off")?;
        if *digest != listed.digest || blake3::hash(content).as_bytes() != digest {
            return Err("its checksum does not match".into());
        }
        let (start, rest) = content.split_first_chunk::<START>().ok_or("it is cut off")?;
        if start[..16] != MAGIC[..] || start[16..] != self.journal {
            return Err("it is not a segment of this journal".into());
        }
        let (rest, footer) = rest.split_last_chunk::<FOOTER>().ok_or("it is cut off")?;
        let mut expected = Vec::new();
        for number in [listed.first, listed.last, listed.first_position, listed.last_position] {
            expected.extend(number.to_le_bytes());
        }
        expected.extend(listed.began_at.to_le_bytes());
        for hash in [listed.previous, listed.hash, self.follows] {
            expected.extend(hash);
        }
        if footer[..136] != expected[..] {
            return Err("it does not continue the segment before it".into());
        }
        let count = usize::try_from(listed.last_position.count_ones()).unwrap_or(usize::MAX);
        let place = rest.len().checked_sub(count * 32).ok_or("it is cut off")?;
        let (blocks, peaks) = rest.split_at(place);
        Ok(Parts { blocks, peaks, checkpoint: &footer[144..] })
    }

    /// The tree and the checkpoint must be those of the records.
    fn check_end(
        &mut self,
        listed: &Listed,
        parts: &Parts<'_>,
        after: u64,
    ) -> Result<(), Malformed> {
        if after != listed.last + 1 || self.tree.size != listed.last_position {
            return Err("it has other batches than it says".into());
        }
        if self.tree.peaks.concat() != parts.peaks {
            return Err("its tree is not that of the records".into());
        }
        let signed = parts.checkpoint;
        if signed.iter().all(|byte| *byte == 0) {
            return match self.keys {
                [] => Ok(()),
                _ => Err("its signed checkpoint is missing".into()),
            };
        }
        let mut expected = b"bursar check v1\0".to_vec();
        expected.extend(self.journal);
        expected.extend(self.tree.size.to_le_bytes());
        expected.extend(self.tree.root());
        if signed[..72] != expected[..] {
            return Err("its signed checkpoint is of other records".into());
        }
        self.check_signature(signed)
    }

    /// A known key must have signed the checkpoint.
    fn check_signature(&mut self, signed: &[u8]) -> Result<(), Malformed> {
        if self.keys.is_empty() {
            return Ok(());
        }
        let signed = SignedCheckpoint::from_bytes(signed).ok_or("its checkpoint is none")?;
        let journal = JournalId(self.journal);
        let is_signed =
            |key: &VerifyingKey| Verifier::new(journal, *key).checkpoint(&signed).is_ok();
        if !self.keys.iter().any(is_signed) {
            return Err(
                "the signature of its checkpoint is not of the key of this store; if that \
                 key was replaced, give the public keys of both with --public-key"
                    .into(),
            );
        }
        self.signatures += 1;
        Ok(())
    }
}

/// The parts of a segment's file.
struct Parts<'a> {
    blocks: &'a [u8],
    peaks: &'a [u8],
    checkpoint: &'a [u8],
}

fn number(bytes: &[u8], place: usize) -> Result<u64, Malformed> {
    let field = bytes.get(place..).and_then(|rest| rest.first_chunk::<8>());
    field.map(|field| u64::from_le_bytes(*field)).ok_or_else(|| "it is cut off".into())
}

fn short(bytes: &[u8], place: usize) -> Result<u32, Malformed> {
    let field = bytes.get(place..).and_then(|rest| rest.first_chunk::<4>());
    field.map(|field| u32::from_le_bytes(*field)).ok_or_else(|| "it is cut off".into())
}

/// The batches of the first block, and what follows it. Their hashes are computed from the content,
/// and checked against the journal's chain by the caller.
fn block(bytes: &[u8], mut sequence: u64) -> Result<(Vec<RawBatch>, &[u8]), Malformed> {
    let (compressed, length) = (number(bytes, 0)?, number(bytes, 8)?);
    let (count, mut position) = (short(bytes, 16)?, number(bytes, 20)?);
    let (header, rest) = bytes.split_first_chunk::<BLOCK>().ok_or("it is cut off")?;
    let mut previous = *header.last_chunk::<32>().ok_or("it is cut off")?;
    let compressed = usize::try_from(compressed).map_err(|_| "a block is too long")?;
    let (content, after) = rest.split_at_checked(compressed).ok_or("a block is cut off")?;
    let length = usize::try_from(length.min(MAX_BLOCK)).map_err(|_| "a block is too long")?;
    let content = zstd::bulk::decompress(content, length).map_err(|error| error.to_string())?;
    let count = usize::try_from(count).map_err(|_| "too many batches")?;
    let numbers = count.checked_mul(NUMBERS).ok_or("too many batches")?;
    let (numbers, mut payloads) = content.split_at_checked(numbers).ok_or("a block is cut off")?;
    let mut batches = Vec::with_capacity(count);
    for fields in numbers.chunks_exact(NUMBERS) {
        let bytes = usize::try_from(number(fields, 20)?).map_err(|_| "a batch is too long")?;
        let (payload, rest) = payloads.split_at_checked(bytes).ok_or("a batch is cut off")?;
        payloads = rest;
        let mut batch = RawBatch {
            sequence,
            first_position: position,
            records: short(fields, 0)?,
            epoch: number(fields, 4)?,
            time: number(fields, 12)?.cast_signed(),
            payload: payload.to_vec(),
            previous,
            hash: [0; 32],
        };
        batch.hash = chain::hash(&batch);
        previous = batch.hash;
        position = position.saturating_add(batch.records.into());
        sequence += 1;
        batches.push(batch);
    }
    if payloads.is_empty() { Ok((batches, after)) } else { Err("a block is too long".into()) }
}

/// The roots of the complete subtrees over all records, largest first.
#[derive(Default)]
struct Tree {
    size: u64,
    peaks: Vec<[u8; 32]>,
}

fn node(left: &[u8; 32], right: &[u8; 32]) -> [u8; 32] {
    let mut content = vec![1];
    content.extend(left);
    content.extend(right);
    *blake3::hash(&content).as_bytes()
}

impl Tree {
    fn add(&mut self, batch: &RawBatch) -> Result<(), Malformed> {
        let mut rest = &batch.payload[..];
        for _ in 0..batch.records {
            let (_, after) = first_record(rest)?;
            let mut hasher = blake3::Hasher::new();
            hasher.update(&[0]).update(&rest[..rest.len() - after.len()]);
            rest = after;
            let mut hash = *hasher.finalize().as_bytes();
            let mut level = self.size;
            while level % 2 == 1 {
                hash = node(&self.peaks.pop().ok_or("its tree has a gap")?, &hash);
                level /= 2;
            }
            self.peaks.push(hash);
            self.size += 1;
        }
        Ok(())
    }

    fn root(&self) -> [u8; 32] {
        let mut peaks = self.peaks.iter().rev();
        let last = peaks.next().copied().unwrap_or_default();
        peaks.fold(last, |right, left| node(left, &right))
    }
}
