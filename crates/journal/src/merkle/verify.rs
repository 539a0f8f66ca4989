//! The verifier of proofs. Shares no code with the prover, not even the hash of a node, so that the
//! two do not share errors.

use bursar_core::digest::Digest;
use ed25519_dalek::VerifyingKey;
use thiserror::Error;

use super::checkpoint::{Checkpoint, SignedCheckpoint};
use super::tree::{ConsistencyProof, InclusionProof};
use crate::chain::JournalId;

/// Why a proof was not accepted.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Error)]
pub enum ProofError {
    /// Not signed by the trusted key.
    #[error("the signature does not match the trusted key")]
    Signature,
    /// About another journal than the expected one.
    #[error("the checkpoint is about another journal")]
    Journal,
    /// A checkpoint over no records proves nothing.
    #[error("the checkpoint covers no records")]
    Empty,
    /// The record lies outside the checkpoint.
    #[error("the position is not covered by the checkpoint")]
    Position,
    /// The newer checkpoint covers fewer records than the older one.
    #[error("the newer checkpoint is smaller than the older one: records were taken away")]
    Shrunk,
    /// Too many or too few hashes for the size of the tree.
    #[error("the proof does not have the length that the sizes demand")]
    Length,
    /// The hashes do not lead to the root.
    #[error("the proof does not lead to the checkpoint's root: the record or the history differs")]
    Root,
}

/// Verifies proofs about one journal with one key.
#[derive(Clone, Debug)]
pub struct Verifier {
    journal: JournalId,
    key: VerifyingKey,
}

impl Verifier {
    /// Trusts only checkpoints of `journal` that `key` signed.
    pub fn new(journal: JournalId, key: VerifyingKey) -> Verifier {
        Verifier { journal, key }
    }

    /// Verifies the signature and the journal of a checkpoint.
    pub fn checkpoint(&self, signed: &SignedCheckpoint) -> Result<Checkpoint, ProofError> {
        let checkpoint = signed.checkpoint;
        self.key
            .verify_strict(&checkpoint.to_bytes(), &signed.parsed_signature())
            .map_err(|_| ProofError::Signature)?;
        if checkpoint.journal != self.journal {
            return Err(ProofError::Journal);
        }
        if checkpoint.size == 0 {
            return Err(ProofError::Empty);
        }
        Ok(checkpoint)
    }

    /// Verifies that `frame` is the record at `position`.
    pub fn inclusion(
        &self,
        signed: &SignedCheckpoint,
        position: u64,
        frame: &[u8],
        proof: &InclusionProof,
    ) -> Result<(), ProofError> {
        let checkpoint = self.checkpoint(signed)?;
        if position == 0 || position > checkpoint.size {
            return Err(ProofError::Position);
        }
        let mut walk = Walk { index: position - 1, last: checkpoint.size - 1 };
        let mut hash = hashed(&[&[0], frame]);
        for sibling in &proof.path {
            hash = match walk.up()? {
                Side::Left => inner(sibling, &hash),
                Side::Right => inner(&hash, sibling),
            };
        }
        walk.arrived()?;
        if hash == checkpoint.root { Ok(()) } else { Err(ProofError::Root) }
    }

    /// Verifies the same as [`Verifier::consistency`] with the proof that `frame`, the last record
    /// of `older`, is at its position in `newer`: the nodes on its left are those of the older
    /// tree.
    pub fn continuation(
        &self,
        older: &SignedCheckpoint,
        newer: &SignedCheckpoint,
        frame: &[u8],
        proof: &InclusionProof,
    ) -> Result<(), ProofError> {
        let older = self.checkpoint(older)?;
        if self.checkpoint(newer)?.size < older.size {
            return Err(ProofError::Shrunk);
        }
        self.inclusion(newer, older.size, frame, proof)?;
        let mut walk = Walk { index: older.size - 1, last: newer.checkpoint.size - 1 };
        let mut hash = hashed(&[&[0], frame]);
        for sibling in &proof.path {
            match walk.up()? {
                Side::Left => hash = inner(sibling, &hash),
                Side::Right => {}
            }
        }
        if hash == older.root { Ok(()) } else { Err(ProofError::Root) }
    }

    /// Verifies that the records of `newer` begin with exactly those of `older`.
    pub fn consistency(
        &self,
        older: &SignedCheckpoint,
        newer: &SignedCheckpoint,
        proof: &ConsistencyProof,
    ) -> Result<(), ProofError> {
        let (older, newer) = (self.checkpoint(older)?, self.checkpoint(newer)?);
        if newer.size < older.size {
            return Err(ProofError::Shrunk);
        }
        if newer.size == older.size {
            if !proof.path.is_empty() {
                return Err(ProofError::Length);
            }
            return if newer.root == older.root { Ok(()) } else { Err(ProofError::Root) };
        }
        let mut path = proof.path.iter();
        let mut walk = Walk { index: older.size - 1, last: newer.size - 1 };
        walk.skip_complete();
        // A complete old tree is itself the first node, and is not sent.
        let first = if older.size.is_power_of_two() {
            older.root
        } else {
            *path.next().ok_or(ProofError::Length)?
        };
        let (mut old_hash, mut new_hash) = (first, first);
        for sibling in path {
            match walk.up()? {
                Side::Left => {
                    old_hash = inner(sibling, &old_hash);
                    new_hash = inner(sibling, &new_hash);
                }
                Side::Right => new_hash = inner(&new_hash, sibling),
            }
        }
        walk.arrived()?;
        if old_hash == older.root && new_hash == newer.root {
            Ok(())
        } else {
            Err(ProofError::Root)
        }
    }
}

/// The side of the current node's sibling.
enum Side {
    Left,
    Right,
}

/// The path from a leaf to the root of a tree whose last leaf is `last`.
struct Walk {
    index: u64,
    last: u64,
}

impl Walk {
    /// Moves up past the levels on which the old tree is complete.
    fn skip_complete(&mut self) {
        let levels = self.index.trailing_ones();
        self.index >>= levels;
        self.last >>= levels;
    }

    /// Moves to the next node that has a sibling.
    fn up(&mut self) -> Result<Side, ProofError> {
        if self.last == 0 {
            return Err(ProofError::Length);
        }
        let side = if self.index % 2 == 1 {
            Side::Left
        } else if self.index == self.last {
            // The last node of an incomplete level has no sibling until its index is odd.
            let levels = self.index.trailing_zeros();
            self.index >>= levels;
            self.last >>= levels;
            Side::Left
        } else {
            Side::Right
        };
        self.index >>= 1;
        self.last >>= 1;
        Ok(side)
    }

    fn arrived(&self) -> Result<(), ProofError> {
        if self.last == 0 { Ok(()) } else { Err(ProofError::Length) }
    }
}

fn hashed(parts: &[&[u8]]) -> Digest {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    Digest(*hasher.finalize().as_bytes())
}

fn inner(left: &Digest, right: &Digest) -> Digest {
    hashed(&[&[1], &left.0, &right.0])
}
