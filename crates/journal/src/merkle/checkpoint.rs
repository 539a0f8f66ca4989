//! The signed size and root of a journal's tree.

use bursar_core::digest::Digest;
use bursar_core::time::Timestamp;
use ed25519_dalek::{Signature, Signer, SigningKey};

use crate::chain::JournalId;

/// Separates these signatures from everything else that the key may sign.
pub(super) const TAG: &[u8; 16] = b"bursar check v1\0";
/// Bytes of a checkpoint: tag, journal, size, root, time.
const CHECKPOINT_BYTES: usize = 16 + 16 + 8 + 32 + 8;
/// Bytes of an Ed25519 signature.
const SIGNATURE_BYTES: usize = 64;

/// A statement of a journal's owner: the first `size` records have this root.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The journal.
    pub journal: JournalId,
    /// The number of records, at least one.
    pub size: u64,
    /// The root of the tree over them.
    pub root: Digest,
    /// When it was signed.
    pub time: Timestamp,
}

impl Checkpoint {
    /// The bytes that are signed.
    pub fn to_bytes(&self) -> [u8; CHECKPOINT_BYTES] {
        let mut bytes = [0; CHECKPOINT_BYTES];
        bytes[..16].copy_from_slice(TAG);
        bytes[16..32].copy_from_slice(&self.journal.0);
        bytes[32..40].copy_from_slice(&self.size.to_le_bytes());
        bytes[40..72].copy_from_slice(&self.root.0);
        bytes[72..].copy_from_slice(&self.time.millis().to_le_bytes());
        bytes
    }

    /// Signs the checkpoint.
    pub fn sign(self, key: &SigningKey) -> SignedCheckpoint {
        SignedCheckpoint { checkpoint: self, signature: key.sign(&self.to_bytes()).to_bytes() }
    }
}

/// A checkpoint with its signature, not yet verified.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SignedCheckpoint {
    /// The statement.
    pub checkpoint: Checkpoint,
    /// Ed25519 over [`Checkpoint::to_bytes`].
    pub signature: [u8; SIGNATURE_BYTES],
}

impl SignedCheckpoint {
    /// The checkpoint's bytes followed by the signature.
    pub fn to_bytes(&self) -> [u8; CHECKPOINT_BYTES + SIGNATURE_BYTES] {
        let mut bytes = [0; CHECKPOINT_BYTES + SIGNATURE_BYTES];
        bytes[..CHECKPOINT_BYTES].copy_from_slice(&self.checkpoint.to_bytes());
        bytes[CHECKPOINT_BYTES..].copy_from_slice(&self.signature);
        bytes
    }

    /// Decodes [`SignedCheckpoint::to_bytes`]. `None` if the length, the tag or the time is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Option<SignedCheckpoint> {
        let (tag, rest) = bytes.split_first_chunk::<16>()?;
        let (journal, rest) = rest.split_first_chunk::<16>()?;
        let (size, rest) = rest.split_first_chunk::<8>()?;
        let (root, rest) = rest.split_first_chunk::<32>()?;
        let (millis, signature) = rest.split_first_chunk::<8>()?;
        let millis = i64::from_le_bytes(*millis);
        let time = Timestamp::from_millis(millis);
        if tag != TAG || time.millis() != millis {
            return None;
        }
        let checkpoint = Checkpoint {
            journal: JournalId(*journal),
            size: u64::from_le_bytes(*size),
            root: Digest(*root),
            time,
        };
        Some(SignedCheckpoint { checkpoint, signature: signature.try_into().ok()? })
    }

    pub(super) fn parsed_signature(&self) -> Signature {
        Signature::from_bytes(&self.signature)
    }
}
