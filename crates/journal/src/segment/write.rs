//! Writes a segment.

use std::io::{self, Write};

use bursar_core::digest::Digest;
use zstd::bulk::Compressor;

use super::{BATCH_BYTES, BLOCK_BYTES, CHECKPOINT_BYTES, MAGIC, SegmentMark};
use crate::chain::{Chain, Head, JournalId, StoredBatch};
use crate::error::JournalError;
use crate::journal::{RowSource, first_time};
use crate::merkle::{Checkpoint, Frontier, SigningKey};

/// Writes batches, block by block, with one block in memory.
pub(crate) struct SegmentWriter<W> {
    out: Hashed<W>,
    compressor: Compressor<'static>,
    id: JournalId,
    before: Head,
    /// The digest of the segment before.
    follows: Digest,
    /// The tree over all records up to the last batch.
    tree: Frontier,
    first: Option<StoredBatch>,
    last: Option<StoredBatch>,
    block: Block,
    blocks: u64,
}

/// The batches of a block that is not written yet.
#[derive(Default)]
struct Block {
    before: Option<Head>,
    batches: u32,
    /// The numbers of all batches, then their payloads.
    numbers: Vec<u8>,
    payloads: Vec<u8>,
}

fn failed(error: io::Error) -> JournalError {
    JournalError::io("writing a segment", error)
}

impl<W: Write> SegmentWriter<W> {
    /// Begins a segment after `before`, the end of the segment with the digest `follows`. `tree` is
    /// the tree over all records up to there.
    pub(crate) fn begin(
        out: W,
        id: JournalId,
        (before, follows, tree): (Head, Digest, Frontier),
        level: i32,
    ) -> Result<SegmentWriter<W>, JournalError> {
        let mut out = Hashed { out, hasher: blake3::Hasher::new(), bytes: 0 };
        out.write(MAGIC)?;
        out.write(&id.0)?;
        let compressor = Compressor::new(level).map_err(failed)?;
        let (block, blocks) = (Block::default(), 0);
        let (first, last) = (None, None);
        Ok(SegmentWriter { out, compressor, id, before, follows, tree, first, last, block, blocks })
    }

    /// Adds the next batch, which the caller has verified.
    pub(crate) fn push(&mut self, batch: StoredBatch) -> Result<(), JournalError> {
        for record in batch.frames() {
            self.tree.push(record?.frame);
        }
        let block = &mut self.block;
        if block.before.is_none() {
            block.before = Some(self.last.as_ref().map_or(self.before, StoredBatch::head));
        }
        block.batches += 1;
        block.numbers.extend_from_slice(&batch.records.to_le_bytes());
        block.numbers.extend_from_slice(&batch.epoch.0.to_le_bytes());
        block.numbers.extend_from_slice(&batch.time.millis().to_le_bytes());
        block.numbers.extend_from_slice(&(batch.payload.len() as u64).to_le_bytes());
        debug_assert_eq!(block.numbers.len(), BATCH_BYTES * block.batches as usize);
        block.payloads.extend_from_slice(&batch.payload);
        let is_full = block.payloads.len() >= BLOCK_BYTES;
        if self.first.is_none() {
            self.first = Some(batch.clone());
        }
        self.last = Some(batch);
        if is_full { self.end_block() } else { Ok(()) }
    }

    fn end_block(&mut self) -> Result<(), JournalError> {
        let block = std::mem::take(&mut self.block);
        let Some(before) = block.before else { return Ok(()) };
        let mut content = block.numbers;
        content.extend_from_slice(&block.payloads);
        let compressed = self.compressor.compress(&content).map_err(failed)?;
        self.out.write(&(compressed.len() as u64).to_le_bytes())?;
        self.out.write(&(content.len() as u64).to_le_bytes())?;
        self.out.write(&block.batches.to_le_bytes())?;
        self.out.write(&(before.position + 1).to_le_bytes())?;
        self.out.write(&before.hash.0)?;
        self.out.write(&compressed)?;
        self.blocks += 1;
        Ok(())
    }

    /// Ends the segment. Returns `None` if no batch was added.
    pub(crate) fn finish(
        mut self,
        signer: Option<&SigningKey>,
    ) -> Result<Option<(W, SegmentMark)>, JournalError> {
        self.end_block()?;
        let (Some(first), Some(last)) = (self.first.take(), self.last.take()) else {
            return Ok(None);
        };
        let end = last.head();
        let began_at = first_time(&first)?;
        for peak in self.tree.peaks() {
            self.out.write(&peak.0)?;
        }
        for number in [first.sequence, last.sequence, first.first_position, end.position] {
            self.out.write(&number.to_le_bytes())?;
        }
        self.out.write(&began_at.millis().to_le_bytes())?;
        for hash in [first.previous, last.hash, self.follows] {
            self.out.write(&hash.0)?;
        }
        self.out.write(&self.blocks.to_le_bytes())?;
        let checkpoint = signer.map_or([0; CHECKPOINT_BYTES], |key| {
            let (size, root) = (self.tree.size(), self.tree.root());
            // The time of the last record, so that the same batches give the same bytes.
            Checkpoint { journal: self.id, size, root, time: last.time }.sign(key).to_bytes()
        });
        self.out.write(&checkpoint)?;
        let digest = Digest(*self.out.hasher.finalize().as_bytes());
        self.out.write(&digest.0)?;
        let mark = SegmentMark {
            first: first.sequence,
            last: last.sequence,
            first_position: first.first_position,
            last_position: end.position,
            began_at,
            previous: first.previous,
            hash: last.hash,
            digest,
            bytes: self.out.bytes,
        };
        Ok(Some((self.out.out, mark)))
    }
}

/// Writes the rows after `before` up to batch `last` into a segment, each verified, so that what is
/// sealed is what was written. Returns `None` once `going` returns false.
pub(crate) fn write_rows<W: Write>(
    mut writer: SegmentWriter<W>,
    rows: &mut dyn RowSource,
    last: u64,
    signer: Option<&SigningKey>,
    going: &dyn Fn() -> bool,
) -> Result<Option<(W, SegmentMark)>, JournalError> {
    let mut chain = Chain::from(writer.before);
    while chain.head().sequence < last {
        if !going() {
            return Ok(None);
        }
        let Some(batch) = rows.next_row()? else {
            let (sequence, reason) = (chain.head().sequence + 1, "it is missing".into());
            return Err(JournalError::Corrupt { sequence, reason });
        };
        chain.accept(&batch)?;
        writer.push(batch)?;
    }
    writer.finish(signer)
}

/// Hashes and counts what is written.
struct Hashed<W> {
    out: W,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl<W: Write> Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), JournalError> {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes).map_err(failed)
    }
}
