//! A machine's state at one head, as bytes that are verified before they are used.

use std::borrow::Cow;

use bursar_core::digest::Digest;

use crate::chain::{Head, JournalId};
use crate::error::JournalError;

/// First bytes of every stored snapshot, with the version of this layout at the end.
const MAGIC: &[u8; 16] = b"bursar snapshot\x01";
/// Magic, journal, sequence, position, hash.
const HEADER_BYTES: usize = 16 + 16 + 8 + 8 + 32;
/// The checksum after the state.
const CHECKSUM_BYTES: usize = 32;
/// How many snapshots a journal keeps.
pub(crate) const KEPT_SNAPSHOTS: usize = 2;

/// A state and the head at which the machine had it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The last batch that the state contains.
    pub head: Head,
    /// The machine's own encoding of its state.
    pub state: Vec<u8>,
}

/// The name of a stored snapshot: the batch at which it was taken.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotMark {
    /// Number of the last batch in it.
    pub sequence: u64,
}

impl Snapshot {
    /// The mark of this snapshot.
    pub fn mark(&self) -> SnapshotMark {
        SnapshotMark { sequence: self.head.sequence }
    }

    /// The stored form: magic, journal, head, state, BLAKE3 of all before.
    pub fn encode(&self, journal: JournalId) -> Vec<u8> {
        self.encoded(journal).concat()
    }

    /// The stored form in parts, so that a large state is written without a copy.
    pub(crate) fn encoded(&self, journal: JournalId) -> [Cow<'_, [u8]>; 3] {
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(MAGIC);
        header.extend_from_slice(&journal.0);
        header.extend_from_slice(&self.head.sequence.to_le_bytes());
        header.extend_from_slice(&self.head.position.to_le_bytes());
        header.extend_from_slice(&self.head.hash.0);
        let checksum = blake3::Hasher::new().update(&header).update(&self.state).finalize();
        let checksum = checksum.as_bytes().to_vec();
        [header.into(), Cow::Borrowed(&self.state), checksum.into()]
    }

    /// Decodes the stored form. Rejects anything that [`Snapshot::encode`] did not write for this
    /// journal and mark.
    pub fn decode(
        bytes: &[u8],
        journal: JournalId,
        mark: SnapshotMark,
    ) -> Result<Snapshot, JournalError> {
        let damaged = |reason: &str| JournalError::Damaged {
            part: "snapshot",
            reason: format!("at batch {}: {reason}", mark.sequence),
        };
        if bytes.len() < HEADER_BYTES + CHECKSUM_BYTES {
            return Err(damaged("it is cut off"));
        }
        let (content, checksum) = bytes.split_at(bytes.len() - CHECKSUM_BYTES);
        if blake3::hash(content).as_bytes() != checksum {
            return Err(damaged("its checksum does not match"));
        }
        let (header, state) = content.split_at(HEADER_BYTES);
        if header[..16] != MAGIC[..] {
            return Err(damaged("it has another format version"));
        }
        if header[16..32] != journal.0 {
            return Err(damaged("it belongs to another journal"));
        }
        let number = |at: usize| {
            u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes were taken"))
        };
        let hash = Digest(header[48..80].try_into().expect("32 bytes were taken"));
        let head = Head { sequence: number(32), position: number(40), hash };
        if head.sequence != mark.sequence {
            return Err(damaged("it was taken at another batch"));
        }
        Ok(Snapshot { head, state: state.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_of_a_snapshot_is_found() {
        let id = JournalId([3; 16]);
        let snapshot = Snapshot { head: Head::genesis(id), state: b"state".to_vec() };
        let bytes = snapshot.encode(id);
        assert_eq!(Snapshot::decode(&bytes, id, snapshot.mark()), Ok(snapshot.clone()));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Snapshot::decode(&damaged, id, snapshot.mark()).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(Snapshot::decode(&bytes[..length], id, snapshot.mark()).is_err());
        }
        assert!(Snapshot::decode(&bytes, JournalId([4; 16]), snapshot.mark()).is_err());
        assert!(Snapshot::decode(&bytes, id, SnapshotMark { sequence: 1 }).is_err());
    }
}
