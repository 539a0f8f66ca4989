//! Proofs for third parties: that a record is in the journal, and that history was only appended
//! to.
//!
//! A Merkle tree as in RFC 6962 over the record frames, with BLAKE3: a leaf is `BLAKE3(0x00 ‖
//! frame)`, an inner node `BLAKE3(0x01 ‖ left ‖ right)`. The record at position `p` is leaf `p −
//! 1`. A signed [`Checkpoint`] fixes size and root. [`Verifier`] checks proofs against checkpoints
//! and needs nothing else: no store, no server, no code of the prover.

mod checkpoint;
mod chunked;
mod tree;
mod verify;

pub use checkpoint::{Checkpoint, SignedCheckpoint};
pub use chunked::ChunkedTree;
pub use ed25519_dalek::{SigningKey, VerifyingKey};
pub use tree::{ConsistencyProof, Frontier, InclusionProof, MerkleTree};
pub use verify::{ProofError, Verifier};
