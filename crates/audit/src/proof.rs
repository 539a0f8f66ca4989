//! Proofs in plain files: that a record is in the journal, and that history was only appended to.
//!
//! The owner of the journal makes them. A holder of the public key checks them offline and without
//! the journal. The files are JSON with hashes and frames in hexadecimal.

use bursar_core::digest::Digest;
use bursar_core::time::Timestamp;
use bursar_journal::JournalId;
use bursar_journal::merkle::{
    Checkpoint, ConsistencyProof, Frontier, InclusionProof, MerkleTree, ProofError,
    SignedCheckpoint, SigningKey, Verifier, VerifyingKey,
};
use serde_json::{Value, json};
use thiserror::Error;

use crate::chain::first_record;
use crate::source::Source;

/// Why a proof was not made or not accepted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProofFileError {
    /// The journal could not be read.
    #[error("the journal cannot be read: {0}")]
    Journal(String),
    /// The checkpoint covers more records than the journal has, or not the requested record.
    #[error("{0}")]
    Outside(String),
    /// The journal does not have the root that was signed.
    #[error("the journal does not match the checkpoint: its history differs from what was signed")]
    OtherHistory,
    /// The file is not a proof.
    #[error("not a proof: {0}")]
    Form(String),
    /// The proof is invalid.
    #[error(transparent)]
    Refused(#[from] ProofError),
}

/// What a valid proof shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proven {
    /// This frame is the record at this position of the journal of the checkpoint.
    Record {
        /// Its position.
        position: u64,
        /// Its bytes.
        frame: Vec<u8>,
        /// The signed checkpoint.
        checkpoint: Checkpoint,
    },
    /// The newer checkpoint continues the older one.
    Continued {
        /// The earlier checkpoint.
        older: Checkpoint,
        /// The later checkpoint.
        newer: Checkpoint,
    },
}

/// Passes every frame of a journal to `take`, in order, until it returns false.
fn each_frame(
    source: &dyn Source,
    mut take: impl FnMut(u64, &[u8]) -> bool,
) -> Result<(), ProofFileError> {
    let mut failure = None;
    let read = source.each(&mut |batch| {
        let mut rest = &batch.payload[..];
        for offset in 0..u64::from(batch.records) {
            let after = match first_record(rest) {
                Ok((_, after)) => after,
                Err(detail) => {
                    failure = Some(format!("batch {}: {detail}", batch.sequence));
                    return false;
                }
            };
            let frame = &rest[..rest.len() - after.len()];
            if !take(batch.first_position.saturating_add(offset), frame) {
                return false;
            }
            rest = after;
        }
        true
    });
    match failure.or(read.err().map(|error| error.to_string())) {
        Some(words) => Err(ProofFileError::Journal(words)),
        None => Ok(()),
    }
}

/// Signs a checkpoint of the whole journal.
pub fn sign_checkpoint(
    source: &dyn Source,
    key: &SigningKey,
    time: Timestamp,
) -> Result<SignedCheckpoint, ProofFileError> {
    let mut frontier = Frontier::new();
    each_frame(source, |_, frame| {
        frontier.push(frame);
        true
    })?;
    if frontier.size() == 0 {
        return Err(ProofFileError::Outside("an empty journal has nothing to sign".into()));
    }
    let journal = JournalId(source.journal());
    let (size, root) = (frontier.size(), frontier.root());
    Ok(Checkpoint { journal, size, root, time }.sign(key))
}

/// The tree over the records that a checkpoint covers, and the frame at `position`.
fn tree(
    source: &dyn Source,
    checkpoint: &Checkpoint,
    position: u64,
) -> Result<(MerkleTree, Vec<u8>), ProofFileError> {
    let mut tree = MerkleTree::new();
    let mut found = Vec::new();
    each_frame(source, |at, frame| {
        tree.push(frame);
        if at == position {
            found = frame.to_vec();
        }
        tree.size() < checkpoint.size
    })?;
    match tree.root(checkpoint.size) {
        None => Err(ProofFileError::Outside(format!(
            "the checkpoint covers {} records, the journal has {}",
            checkpoint.size,
            tree.size()
        ))),
        Some(root) if root != checkpoint.root => Err(ProofFileError::OtherHistory),
        Some(_) => Ok((tree, found)),
    }
}

/// Proves that a record is in the journal, against an earlier checkpoint.
pub fn prove_record(
    source: &dyn Source,
    position: u64,
    signed: &SignedCheckpoint,
) -> Result<Value, ProofFileError> {
    let (tree, frame) = tree(source, &signed.checkpoint, position)?;
    let proof = tree.inclusion(position, signed.checkpoint.size).ok_or_else(|| {
        let size = signed.checkpoint.size;
        ProofFileError::Outside(format!("the checkpoint covers records 1 to {size}"))
    })?;
    Ok(json!({
        "proof": "record",
        "position": position,
        "frame": hex(&frame),
        "path": proof.path.iter().map(|hash| hex(&hash.0)).collect::<Vec<_>>(),
        "checkpoint": hex(&signed.to_bytes()),
    }))
}

/// Proves that one checkpoint continues another.
pub fn prove_continuation(
    source: &dyn Source,
    older: &SignedCheckpoint,
    newer: &SignedCheckpoint,
) -> Result<Value, ProofFileError> {
    let (tree, _) = tree(source, &newer.checkpoint, 0)?;
    let (old, new) = (older.checkpoint.size, newer.checkpoint.size);
    if tree.root(old) != Some(older.checkpoint.root) {
        return Err(ProofFileError::OtherHistory);
    }
    let proof = tree
        .consistency(old, new)
        .ok_or_else(|| ProofFileError::Outside(format!("{new} records do not continue {old}")))?;
    Ok(json!({
        "proof": "continuation",
        "path": proof.path.iter().map(|hash| hex(&hash.0)).collect::<Vec<_>>(),
        "older": hex(&older.to_bytes()),
        "newer": hex(&newer.to_bytes()),
    }))
}

/// Checks a proof file. Needs only the journal's identity and the public key.
pub fn check(file: &str, journal: JournalId, key: VerifyingKey) -> Result<Proven, ProofFileError> {
    let file: Value =
        serde_json::from_str(file).map_err(|error| ProofFileError::Form(error.to_string()))?;
    let verifier = Verifier::new(journal, key);
    match file["proof"].as_str() {
        Some("record") => {
            let signed = checkpoint(&file, "checkpoint")?;
            let missing = || ProofFileError::Form("it names no position".into());
            let position = file["position"].as_u64().ok_or_else(missing)?;
            let frame = bytes(&file["frame"], "frame")?;
            let proof = InclusionProof { path: path(&file)? };
            verifier.inclusion(&signed, position, &frame, &proof)?;
            Ok(Proven::Record { position, frame, checkpoint: signed.checkpoint })
        }
        Some("continuation") => {
            let (older, newer) = (checkpoint(&file, "older")?, checkpoint(&file, "newer")?);
            let proof = ConsistencyProof { path: path(&file)? };
            verifier.consistency(&older, &newer, &proof)?;
            Ok(Proven::Continued { older: older.checkpoint, newer: newer.checkpoint })
        }
        Some(_) | None => Err(ProofFileError::Form("it does not say what it proves".into())),
    }
}

fn checkpoint(file: &Value, field: &str) -> Result<SignedCheckpoint, ProofFileError> {
    let wrong = || ProofFileError::Form(format!("{field} is not a checkpoint"));
    SignedCheckpoint::from_bytes(&bytes(&file[field], field)?).ok_or_else(wrong)
}

fn path(file: &Value) -> Result<Vec<Digest>, ProofFileError> {
    let wrong = || ProofFileError::Form("path is not a list of hashes".into());
    let hash = |value: &Value| bytes(value, "path")?.try_into().map(Digest).map_err(|_| wrong());
    file["path"].as_array().ok_or_else(wrong)?.iter().map(hash).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(value: &Value, field: &str) -> Result<Vec<u8>, ProofFileError> {
    let wrong = || ProofFileError::Form(format!("{field} is not hexadecimal"));
    let digits = value.as_str().filter(|text| text.len() % 2 == 0).ok_or_else(wrong)?.as_bytes();
    let digit = |byte: u8| (byte as char).to_digit(16).ok_or_else(wrong);
    // The value of two hexadecimal digits fits into a byte.
    digits.chunks(2).map(|pair| Ok((digit(pair[0])? * 16 + digit(pair[1])?) as u8)).collect()
}
