//! Sealed segments: consecutive old batches in one compressed file that never changes.
//!
//! A segment has everything that its batches had except what follows from it: hashes, numbers and
//! positions are computed again from the content, so a segment that is read is a segment that was
//! verified. It names the batch before it and the segment before it, and carries the signed
//! checkpoint of the records up to its end. `docs/reference/journal-format.md` has its bytes.

mod damage;
mod folder;
mod list;
mod places;
mod read;
mod write;

use bursar_core::digest::Digest;
use bursar_core::time::Timestamp;
use ed25519_dalek::SigningKey;

use crate::chain::{Head, JournalId};
use crate::error::{JournalError, SegmentFault};

pub use damage::SegmentDamage;
pub use folder::ArchiveTotals;
pub(crate) use folder::{ArchiveFolder, failed as archive_failed};
pub(crate) use list::{SegmentStore, Segments, altered};
pub use places::{ArchivedSegment, Places};
pub(crate) use places::{open_file, sync_folder};
pub use read::OpenSegment;
pub(crate) use write::{SegmentWriter, write_rows};

/// The first bytes of a segment. The last one is the version.
const MAGIC: &[u8; 16] = b"bursar segment\0\x01";
/// The magic and the journal's identity.
const START_BYTES: usize = 32;
/// Compressed length, length, number of batches, first position, hash of the batch before.
const BLOCK_HEADER_BYTES: usize = 8 + 8 + 4 + 8 + 32;
/// For each batch in a block: records, epoch, time, length of the payload.
const BATCH_BYTES: usize = 4 + 8 + 8 + 8;
/// The bytes of payload after which a block ends. A reader of one batch decompresses
/// one block.
const BLOCK_BYTES: usize = 1 << 20;
/// A signed checkpoint. All zeros if there is none.
const CHECKPOINT_BYTES: usize = 144;
/// Five numbers, three hashes, the number of blocks, the checkpoint.
const FOOTER_BYTES: usize = 5 * 8 + 3 * 32 + 8 + CHECKPOINT_BYTES;
/// BLAKE3 of everything before.
const DIGEST_BYTES: usize = 32;

/// When batches are sealed, and how.
#[derive(Clone, Debug)]
pub struct Sealing {
    /// The bytes of payload, before compression, after which a segment ends.
    pub segment_bytes: u64,
    /// The level of the compression, 1 to 19.
    pub level: i32,
    /// Signs the checkpoint of each segment. Without it segments have none.
    pub signer: Option<SigningKey>,
}

impl Sealing {
    /// The bytes of payload in a segment, if nothing else is set.
    pub const DEFAULT_BYTES: u64 = 64 << 20;
    /// The level of the compression, if nothing else is set.
    pub const DEFAULT_LEVEL: i32 = 3;
}

impl Default for Sealing {
    fn default() -> Sealing {
        let (segment_bytes, level) = (Sealing::DEFAULT_BYTES, Sealing::DEFAULT_LEVEL);
        Sealing { segment_bytes, level, signer: None }
    }
}

/// A sealed segment as recorded in the journal.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SegmentMark {
    /// Number of its first batch.
    pub first: u64,
    /// Number of its last batch.
    pub last: u64,
    /// Number of its first record.
    pub first_position: u64,
    /// Number of its last record.
    pub last_position: u64,
    /// The time of its first record.
    pub began_at: Timestamp,
    /// Hash of the batch before its first.
    pub previous: Digest,
    /// Hash of its last batch.
    pub hash: Digest,
    /// The last 32 bytes of the file: BLAKE3 of everything before.
    pub digest: Digest,
    /// The length of the file.
    pub bytes: u64,
}

impl SegmentMark {
    /// The head before its first batch.
    pub fn before(&self) -> Head {
        // Saturating: damaged numbers are rejected by a checksum or by the chain.
        let position = self.first_position.saturating_sub(1);
        Head { sequence: self.first.saturating_sub(1), position, hash: self.previous }
    }

    /// The head at its last batch.
    pub fn end(&self) -> Head {
        Head { sequence: self.last, position: self.last_position, hash: self.hash }
    }

    /// Whether it has this batch.
    pub fn has(&self, sequence: u64) -> bool {
        (self.first..=self.last).contains(&sequence)
    }

    /// The name of its file. Other batches never have the same name, not even those of another
    /// history of the same journal.
    pub fn name(&self) -> String {
        let hash: String = self.hash.0.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        // Twenty digits hold every u64, so names sort like numbers.
        format!("{:020}-{:020}-{hash}.segment", self.first, self.last)
    }

    pub(crate) fn error(&self, fault: SegmentFault) -> JournalError {
        JournalError::Segment { name: self.name(), first: self.first, last: self.last, fault }
    }
}

/// The segments of a journal, oldest first. Each continues the one before, or they are damaged.
pub(crate) fn check_chain(id: JournalId, marks: &[SegmentMark]) -> Result<(), JournalError> {
    let mut end = Head::genesis(id);
    for mark in marks {
        if mark.before() != end || mark.last < mark.first {
            let reason = format!(
                "batches {} to {} do not follow batch {}",
                mark.first, mark.last, end.sequence
            );
            return Err(JournalError::Damaged { part: "list of segments", reason });
        }
        end = mark.end();
    }
    Ok(())
}

/// The segment that has this batch, among consecutive ones.
pub(crate) fn covering(marks: &[SegmentMark], sequence: u64) -> Option<SegmentMark> {
    let place = marks.partition_point(|mark| mark.last < sequence);
    marks.get(place).filter(|mark| mark.has(sequence)).copied()
}
