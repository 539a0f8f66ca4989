//! Reads a segment. Nothing is used before it is verified.

use std::collections::VecDeque;
use std::ops::Range;

use bursar_core::digest::Digest;
use bursar_core::time::Timestamp;

use super::damage::SegmentDamage;
use super::{
    BATCH_BYTES, BLOCK_HEADER_BYTES, CHECKPOINT_BYTES, DIGEST_BYTES, FOOTER_BYTES, MAGIC,
    START_BYTES, SegmentMark,
};
use crate::chain::{Epoch, Head, JournalId, StoredBatch};
use crate::merkle::{Frontier, SignedCheckpoint};

/// The largest block that a reader makes room for. One batch may be larger than a block should be.
const MAX_BLOCK_BYTES: u64 = 1 << 31;

/// A segment whose file is as it was written. Its batches are verified when they are read.
#[derive(Debug)]
pub struct OpenSegment {
    bytes: Vec<u8>,
    mark: SegmentMark,
    follows: Digest,
    tree: Frontier,
    checkpoint: Option<SignedCheckpoint>,
    blocks: Vec<BlockPlace>,
}

/// A block in the file.
#[derive(Clone, Debug)]
struct BlockPlace {
    before: Head,
    batches: u32,
    length: usize,
    compressed: Range<usize>,
}

/// Splits numbers and hashes off bytes.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], SegmentDamage> {
        let (field, rest) = self.0.split_first_chunk::<N>().ok_or(SegmentDamage::CutOff)?;
        self.0 = rest;
        Ok(*field)
    }

    fn number(&mut self) -> Result<u64, SegmentDamage> {
        self.take().map(u64::from_le_bytes)
    }

    fn digest(&mut self) -> Result<Digest, SegmentDamage> {
        self.take().map(Digest)
    }
}

impl OpenSegment {
    /// Opens the file's bytes, which must be those of a segment of this journal.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn open(bytes: Vec<u8>, id: JournalId) -> Result<OpenSegment, SegmentDamage> {
        let end = bytes.len().checked_sub(DIGEST_BYTES).ok_or(SegmentDamage::CutOff)?;
        let (content, digest) = bytes.split_at(end);
        if blake3::hash(content).as_bytes() != digest {
            return Err(SegmentDamage::Checksum);
        }
        if content.len() < START_BYTES + FOOTER_BYTES || content[..15] != MAGIC[..15] {
            return Err(SegmentDamage::NotASegment);
        }
        if content[15] != MAGIC[15] {
            return Err(SegmentDamage::Version { found: content[15], known: MAGIC[15] });
        }
        if content[16..32] != id.0 {
            return Err(SegmentDamage::OtherJournal);
        }
        let footer = content.len() - FOOTER_BYTES;
        let mut fields = Fields(&content[footer..]);
        let mut mark = SegmentMark {
            first: fields.number()?,
            last: fields.number()?,
            first_position: fields.number()?,
            last_position: fields.number()?,
            began_at: Timestamp::from_millis(fields.number()?.cast_signed()),
            previous: fields.digest()?,
            hash: fields.digest()?,
            digest: Digest::default(),
            bytes: bytes.len() as u64,
        };
        mark.digest = Digest(digest.try_into().map_err(|_| SegmentDamage::CutOff)?);
        let follows = fields.digest()?;
        let blocks = fields.number()?;
        let checkpoint = match fields.take::<CHECKPOINT_BYTES>()? {
            zeros if zeros == [0; CHECKPOINT_BYTES] => None,
            signed => Some(SignedCheckpoint::from_bytes(&signed).ok_or(SegmentDamage::Checkpoint)?),
        };
        let count = mark.last_position.count_ones() as usize;
        let peaks = footer.checked_sub(count * 32).ok_or(SegmentDamage::CutOff)?;
        let tree = peaks_of(&content[peaks..footer], mark.last_position)?;
        let blocks = places(content, START_BYTES..peaks, blocks, &mark)?;
        Ok(OpenSegment { mark, follows, tree, checkpoint, blocks, bytes })
    }

    /// All bytes of its file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What the journal has recorded of it.
    pub fn mark(&self) -> &SegmentMark {
        &self.mark
    }

    /// The digest of the segment before; zeros for the first.
    pub fn follows(&self) -> Digest {
        self.follows
    }

    /// The tree over all records of the journal up to its last one.
    pub fn tree(&self) -> &Frontier {
        &self.tree
    }

    /// The signed checkpoint of the same records.
    pub fn checkpoint(&self) -> Option<&SignedCheckpoint> {
        self.checkpoint.as_ref()
    }

    /// The batches from `sequence` on to the end of its block.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn batches_from(&self, sequence: u64) -> Result<VecDeque<StoredBatch>, SegmentDamage> {
        let after = self.blocks.partition_point(|block| block.before.sequence < sequence);
        let number = after.checked_sub(1).ok_or(SegmentDamage::BatchMissing { sequence })?;
        let mut batches = self.block(number)?;
        while batches.front().is_some_and(|batch| batch.sequence < sequence) {
            batches.pop_front();
        }
        Ok(batches)
    }

    /// Reads and verifies all batches.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn check(&self) -> Result<(), SegmentDamage> {
        (0..self.blocks.len()).try_for_each(|number| self.block(number).map(drop))
    }

    fn block(&self, number: usize) -> Result<VecDeque<StoredBatch>, SegmentDamage> {
        let place = self.blocks.get(number).ok_or(SegmentDamage::BlockMissing)?;
        let compressed = &self.bytes[place.compressed.clone()];
        let content = zstd::bulk::decompress(compressed, place.length).map_err(|error| {
            SegmentDamage::Compression { block: number, reason: error.to_string() }
        })?;
        let wrong = || SegmentDamage::BlockForm { block: number };
        let count = usize::try_from(place.batches).map_err(|_| wrong())?;
        let numbers = count.checked_mul(BATCH_BYTES).filter(|_| content.len() == place.length);
        let (numbers, mut payloads) =
            numbers.and_then(|numbers| content.split_at_checked(numbers)).ok_or_else(wrong)?;
        let mut fields = Fields(numbers);
        let mut head = place.before;
        let mut batches = VecDeque::with_capacity(count);
        for _ in 0..count {
            let records = fields.take().map(u32::from_le_bytes)?;
            let epoch = Epoch(fields.number()?);
            let time = Timestamp::from_millis(fields.number()?.cast_signed());
            let length = usize::try_from(fields.number()?).map_err(|_| wrong())?;
            let (payload, rest) = payloads.split_at_checked(length).ok_or_else(wrong)?;
            payloads = rest;
            let mut batch = StoredBatch {
                sequence: head.sequence + 1,
                first_position: head.position + 1,
                records,
                epoch,
                time,
                payload: payload.to_vec(),
                previous: head.hash,
                hash: Digest::default(),
            };
            batch.hash = batch.computed_hash();
            head = batch.head();
            batches.push_back(batch);
        }
        let end = self.blocks.get(number + 1).map_or(self.mark.end(), |next| next.before);
        if head != end || !payloads.is_empty() {
            return Err(SegmentDamage::BlockHashes { block: number });
        }
        Ok(batches)
    }
}

fn peaks_of(bytes: &[u8], size: u64) -> Result<Frontier, SegmentDamage> {
    let (peaks, _) = bytes.as_chunks::<32>();
    let peaks = peaks.iter().map(|peak| Digest(*peak)).collect();
    Frontier::from_peaks(size, peaks).ok_or(SegmentDamage::TreeSize)
}

/// The blocks, which must fill the given part of the file and begin after the batch before.
fn places(
    content: &[u8],
    part: Range<usize>,
    expected: u64,
    mark: &SegmentMark,
) -> Result<Vec<BlockPlace>, SegmentDamage> {
    let mut found = Vec::new();
    let mut sequence = mark.before().sequence;
    let mut place = part.start;
    while place < part.end {
        let mut fields = Fields(&content[place..part.end]);
        let (compressed, length) = (fields.number()?, fields.number()?);
        let batches = fields.take().map(u32::from_le_bytes)?;
        let (first, hash) = (fields.number()?, fields.digest()?);
        let start = place + BLOCK_HEADER_BYTES;
        let end = usize::try_from(compressed).ok().and_then(|bytes| start.checked_add(bytes));
        let end = end.filter(|end| *end <= part.end).ok_or(SegmentDamage::BlockCutOff)?;
        let length = usize::try_from(length).ok().filter(|_| length <= MAX_BLOCK_BYTES);
        let length = length.ok_or(SegmentDamage::BlockTooLong)?;
        let before = Head { sequence, position: first.saturating_sub(1), hash };
        if found.is_empty() && before != mark.before() || batches == 0 {
            return Err(SegmentDamage::FirstBlock);
        }
        found.push(BlockPlace { before, batches, length, compressed: start..end });
        sequence = sequence.saturating_add(u64::from(batches));
        place = end;
    }
    if found.len() as u64 != expected || sequence != mark.last {
        return Err(SegmentDamage::BlockMissing);
    }
    Ok(found)
}
