//! Signed checkpoints of the journal, and proofs against them.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bursar_api::system::audit::Checkpoint;
use bursar_core::time::Timestamp;
use bursar_journal::merkle::{self, ChunkedTree, MerkleTree};
use bursar_journal::{Head, Journal, JournalError};
use ed25519_dalek::SigningKey;

use crate::config::Config;
use crate::followers::error::FollowerError;
use crate::render::time;

/// A checkpoint, and the proof of one record if it was requested.
pub struct ProvenCheckpoint {
    /// The signed checkpoint.
    pub checkpoint: Checkpoint,
    /// The record's bytes and the hashes to the root, in hex.
    pub inclusion: Option<(String, Vec<String>)>,
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string never fails.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The Merkle tree over the journal, which grows with it. A checkpoint reads the new records; a
/// proof also reads the few hundred records around its own.
pub struct Prover {
    tree: ChunkedTree,
    head: Head,
}

impl Prover {
    /// Creates a prover that has read nothing.
    pub fn new(journal: &dyn Journal) -> Prover {
        Prover { tree: ChunkedTree::new(), head: Head::genesis(journal.id()) }
    }

    /// Reads the journal to its end, unless the tree has `size` records already.
    fn reach(&mut self, journal: &dyn Journal, size: u64) -> Result<(), JournalError> {
        if self.tree.size() >= size {
            return Ok(());
        }
        for batch in journal.read(self.head)? {
            let batch = batch?;
            for record in batch.frames() {
                self.tree.push(record?.frame);
            }
            self.head = batch.head();
        }
        Ok(())
    }

    /// Signs the root over at least the first `size` records, and proves the inclusion of one of
    /// them.
    pub fn prove(
        &mut self,
        journal: &dyn Journal,
        key: &SigningKey,
        (size, at): (u64, Timestamp),
        position: Option<u64>,
    ) -> Result<ProvenCheckpoint, FollowerError> {
        self.reach(journal, size)?;
        if self.tree.size() < size {
            return Err(FollowerError::Short);
        }
        let (size, root) = (self.tree.size(), self.tree.root());
        let inclusion = match position.filter(|position| (1..=size).contains(position)) {
            Some(position) => self.inclusion(journal, position)?,
            None => None,
        };
        let signed = merkle::Checkpoint { journal: journal.id(), size, root, time: at }.sign(key);
        Ok(ProvenCheckpoint {
            checkpoint: Checkpoint {
                journal: journal.id().to_string(),
                size,
                root: root.to_string(),
                signed_at: time(at),
                signed: hex(&signed.to_bytes()),
                public_key: hex(key.verifying_key().as_bytes()),
            },
            inclusion,
        })
    }

    /// A record's bytes and the hashes from it to the root.
    fn inclusion(
        &self,
        journal: &dyn Journal,
        position: u64,
    ) -> Result<Option<(String, Vec<String>)>, JournalError> {
        let (first, last) = self.tree.needed(position).unwrap_or((position, position));
        let mut chunk = MerkleTree::new();
        let mut frame = None;
        'journal: for batch in journal.read(journal.head_before(first)?)? {
            let batch = batch?;
            for record in batch.frames() {
                let record = record?;
                if record.position > last {
                    break 'journal;
                }
                if record.position >= first {
                    chunk.push(record.frame);
                }
                if record.position == position {
                    frame = Some(hex(record.frame));
                }
            }
        }
        let chunk = self.tree.needed(position).map(|_| &chunk);
        let proof = self.tree.inclusion(position, chunk);
        Ok(frame
            .zip(proof)
            .map(|(frame, proof)| (frame, proof.path.iter().map(ToString::to_string).collect())))
    }
}

/// The file of the key that signs checkpoints: in the data folder, or beside the root key if a
/// database has the data, so that it outlives the process.
pub fn key_file(config: &Config, folder: &Path) -> PathBuf {
    match (&config.store, &config.root_key_file) {
        (Some(_), Some(root)) => root.with_file_name("checkpoint.key"),
        _ => folder.join("checkpoint.key"),
    }
}

/// Reads the key that signs checkpoints, if there is one.
pub fn read_key(path: &Path) -> std::io::Result<Option<SigningKey>> {
    match std::fs::read(path) {
        Ok(bytes) => {
            let bytes: [u8; 32] = bytes.as_slice().try_into().map_err(|_| {
                let reason = format!(
                    "{} must hold 32 bytes. Put back the file as it was. If it is lost, remove it and \
                     start once with --new-checkpoint-key: outsiders must be given the new public key",
                    path.display()
                );
                std::io::Error::new(std::io::ErrorKind::InvalidData, reason)
            })?;
            Ok(Some(SigningKey::from_bytes(&bytes)))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The public key of a signing key, in hex.
pub fn public_key(key: &SigningKey) -> String {
    hex(key.verifying_key().as_bytes())
}

/// Reads the key that signs checkpoints, or generates and stores one.
pub fn load_key(path: &Path) -> std::io::Result<SigningKey> {
    if let Some(key) = read_key(path)? {
        return Ok(key);
    }
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    Ok(SigningKey::from_bytes(&bytes))
}
