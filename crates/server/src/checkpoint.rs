//! Signed checkpoints of the journal, and proofs against them.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bursar_api::audit::Checkpoint;
use bursar_core::time::Timestamp;
use bursar_journal::merkle::{self, MerkleTree};
use bursar_journal::{Head, Journal};
use ed25519_dalek::SigningKey;

use crate::config::Config;
use crate::render::time;

/// A checkpoint, and the proof of one record if it was asked for.
pub struct Proven {
    /// The signed root.
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

/// Builds the tree over the first `size` records and signs its root. Reads the whole journal.
pub fn prove(
    journal: &dyn Journal,
    key: &SigningKey,
    size: u64,
    position: Option<u64>,
    at: Timestamp,
) -> Result<Proven, String> {
    let mut tree = MerkleTree::new();
    let mut frame = None;
    let genesis = Head::genesis(journal.id());
    'journal: for batch in journal.read(genesis).map_err(|error| error.to_string())? {
        let batch = batch.map_err(|error| error.to_string())?;
        for record in batch.frames() {
            let record = record.map_err(|error| error.to_string())?;
            if record.position > size {
                break 'journal;
            }
            tree.push(record.frame);
            if Some(record.position) == position {
                frame = Some(hex(record.frame));
            }
        }
    }
    let root = tree.root(size).ok_or("the journal is shorter than the ledger's position")?;
    let checkpoint = merkle::Checkpoint { journal: journal.id(), size, root, time: at };
    let signed = checkpoint.sign(key);
    let path = position.and_then(|position| tree.inclusion(position, size));
    let inclusion = frame.zip(path).map(|(frame, proof)| {
        (frame, proof.path.iter().map(|digest| digest.to_string()).collect())
    });
    Ok(Proven {
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

/// Where the key that signs checkpoints is kept: with the data, or, when a database keeps those,
/// beside the root key, so that it outlives the process.
pub fn key_file(config: &Config, folder: &Path) -> PathBuf {
    match (&config.store, &config.root_key_file) {
        (Some(_), Some(root)) => root.with_file_name("checkpoint.key"),
        _ => folder.join("checkpoint.key"),
    }
}

/// Reads the key that signs checkpoints, or makes and keeps one.
pub fn load_key(path: &Path) -> std::io::Result<SigningKey> {
    match std::fs::read(path) {
        Ok(bytes) => {
            let bytes: [u8; 32] = bytes.as_slice().try_into().map_err(|_| {
                let reason = format!("{} must hold 32 bytes", path.display());
                std::io::Error::new(std::io::ErrorKind::InvalidData, reason)
            })?;
            Ok(SigningKey::from_bytes(&bytes))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let mut bytes = [0; 32];
            getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
            let mut options = std::fs::OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            Ok(SigningKey::from_bytes(&bytes))
        }
        Err(error) => Err(error),
    }
}
