//! What can be wrong with the file of a segment.

use thiserror::Error;

/// Why a file is not the segment that was sealed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SegmentDamage {
    /// The file ends too early.
    #[error("it is cut off")]
    CutOff,
    /// The bytes are not those that were written.
    #[error("its checksum does not match")]
    Checksum,
    /// It does not begin like a segment.
    #[error("it is not a segment")]
    NotASegment,
    /// A newer build wrote it.
    #[error("it has version {found}; this build knows {known}")]
    Version {
        /// The version of the file.
        found: u8,
        /// The version that this build reads.
        known: u8,
    },
    /// It was sealed by another journal.
    #[error("it belongs to another journal")]
    OtherJournal,
    /// It is a segment of this journal, but another one.
    #[error("it is another segment than the one that was sealed")]
    OtherSegment,
    /// The bytes of its signed checkpoint are not a checkpoint.
    #[error("its checkpoint is not valid")]
    Checkpoint,
    /// The tree over the records does not have their number.
    #[error("its tree has another size")]
    TreeSize,
    /// A batch that it should contain is not in it.
    #[error("batch {sequence} is not in it")]
    BatchMissing {
        /// The number of the batch.
        sequence: u64,
    },
    /// It has fewer blocks than it says, or they end before its last batch.
    #[error("a block is missing")]
    BlockMissing,
    /// A block is longer than the rest of the file.
    #[error("a block is cut off")]
    BlockCutOff,
    /// A block is longer than a reader makes room for.
    #[error("a block is too long")]
    BlockTooLong,
    /// Its blocks do not continue the previous segment.
    #[error("its first block does not follow the batch before")]
    FirstBlock,
    /// A block cannot be decompressed.
    #[error("block {block}: {reason}")]
    Compression {
        /// The block.
        block: usize,
        /// The error of the decompressor.
        reason: String,
    },
    /// The lengths in a block do not add up to its content.
    #[error("the lengths in block {block} do not match its content")]
    BlockForm {
        /// The block.
        block: usize,
    },
    /// The batches of a block do not hash to the hash after it.
    #[error("the hashes of block {block} do not match its content")]
    BlockHashes {
        /// The block.
        block: usize,
    },
}
