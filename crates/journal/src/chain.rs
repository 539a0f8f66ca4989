//! The hash chain over batches: which batch follows which, and how a broken link is found.

use std::fmt;

use bursar_core::digest::Digest;
use bursar_core::time::Timestamp;
use bursar_seeded::{Bug, seeded};

use crate::error::JournalError;
use crate::record::Batch;

/// Separates the hash of a batch from every other use of BLAKE3 in this project.
const BATCH_TAG: &[u8; 16] = b"bursar batch v1\0";
/// Separates the hash that the first batch follows from every other use of BLAKE3 in this project.
const GENESIS_TAG: &[u8; 16] = b"bursar genesis1\0";

/// The identity of a journal: 128 random bits, generated when it is created. The chain starts from
/// them, so that a batch of one journal is never valid in another.
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
pub struct JournalId(pub [u8; 16]);

impl JournalId {
    /// Generates a new identity with the operating system's random source.
    pub fn random() -> Result<JournalId, JournalError> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)
            .map_err(|error| JournalError::storage("drawing a journal identity", error))?;
        Ok(JournalId(bytes))
    }
}

impl fmt::Display for JournalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for JournalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JournalId({self})")
    }
}

/// The number of a journal's owner. Each new lease gets the next epoch. Appends under an earlier
/// epoch are refused.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The end of a journal, or of a verified part of it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Number of the last batch; 0 before the first.
    pub sequence: u64,
    /// Number of the last record; 0 before the first.
    pub position: u64,
    /// Hash of the last batch, or of the journal's identity before the first.
    pub hash: Digest,
}

impl Head {
    /// The head of the journal `id` before the first append.
    pub fn genesis(id: JournalId) -> Head {
        let mut hasher = blake3::Hasher::new();
        hasher.update(GENESIS_TAG).update(&id.0);
        Head { sequence: 0, position: 0, hash: Digest(*hasher.finalize().as_bytes()) }
    }

    /// The stored form of `batch` as the successor of this head.
    pub fn followed_by(&self, epoch: Epoch, batch: Batch) -> StoredBatch {
        let mut stored = StoredBatch {
            sequence: self.sequence + 1,
            first_position: self.position + 1,
            records: batch.records(),
            epoch,
            time: batch.time(),
            payload: batch.into_payload(),
            previous: self.hash,
            hash: Digest::default(),
        };
        stored.hash = stored.computed_hash();
        stored
    }

    /// The head after `batch` without copying its payload.
    pub fn after(&self, epoch: Epoch, batch: &Batch) -> Head {
        let hash = batch_hash(
            &self.hash,
            [self.sequence + 1, self.position + 1, u64::from(batch.records()), epoch.0],
            batch.time(),
            batch.payload(),
        );
        Head {
            sequence: self.sequence + 1,
            position: self.position + u64::from(batch.records()),
            hash,
        }
    }
}

/// One batch as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBatch {
    /// Number of this batch, dense from 1.
    pub sequence: u64,
    /// Number of its first record, dense from 1 over all batches.
    pub first_position: u64,
    /// How many records it holds, at least one.
    pub records: u32,
    /// The epoch of the owner that wrote it.
    pub epoch: Epoch,
    /// The time of its last record.
    pub time: Timestamp,
    /// The record frames, one after the other.
    pub payload: Vec<u8>,
    /// Hash of the batch before.
    pub previous: Digest,
    /// Hash over all of the above.
    pub hash: Digest,
}

impl StoredBatch {
    /// The journal's head if this batch is its last.
    pub fn head(&self) -> Head {
        Head {
            sequence: self.sequence,
            // Saturating: a damaged row may contain any number, and is rejected by its hash.
            position: self.first_position.saturating_add(u64::from(self.records)).saturating_sub(1),
            hash: self.hash,
        }
    }

    /// The expected hash of this batch.
    pub fn computed_hash(&self) -> Digest {
        batch_hash(
            &self.previous,
            [self.sequence, self.first_position, u64::from(self.records), self.epoch.0],
            self.time,
            &self.payload,
        )
    }
}

/// `numbers` are sequence, first position, record count and epoch.
fn batch_hash(previous: &Digest, numbers: [u64; 4], time: Timestamp, payload: &[u8]) -> Digest {
    let mut hasher = blake3::Hasher::new();
    hasher.update(BATCH_TAG).update(&previous.0);
    for number in numbers {
        hasher.update(&number.to_le_bytes());
    }
    hasher.update(&time.millis().to_le_bytes());
    hasher.update(payload);
    Digest(*hasher.finalize().as_bytes())
}

/// Follows a journal from a known head and accepts only the next batch.
#[derive(Clone, Debug)]
pub struct Chain {
    head: Head,
    epoch: Epoch,
}

impl Chain {
    /// Starts after a head that is already trusted.
    pub fn from(head: Head) -> Chain {
        Chain { head, epoch: Epoch(0) }
    }

    /// The last accepted batch.
    pub fn head(&self) -> Head {
        self.head
    }

    /// Accepts `batch` if it is exactly the next one, or returns what is wrong with it.
    pub fn accept(&mut self, batch: &StoredBatch) -> Result<(), JournalError> {
        let sequence = self.head.sequence + 1;
        let corrupt = |reason: String| JournalError::Corrupt { sequence, reason };
        if batch.sequence != sequence {
            return Err(corrupt(format!("it is missing; batch {} was found", batch.sequence)));
        }
        let is_checked = !seeded(Bug::SkipsHashChain);
        if batch.previous != self.head.hash && is_checked {
            return Err(corrupt("it does not follow the batch before it".into()));
        }
        if batch.computed_hash() != batch.hash && is_checked {
            return Err(corrupt("its content does not match its hash".into()));
        }
        if batch.first_position != self.head.position + 1 || batch.records == 0 {
            return Err(corrupt(format!(
                "{} records from position {} cannot follow position {}",
                batch.records, batch.first_position, self.head.position
            )));
        }
        if batch.epoch < self.epoch {
            return Err(corrupt(format!("epoch {} comes after epoch {}", batch.epoch, self.epoch)));
        }
        self.head = batch.head();
        self.epoch = batch.epoch;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{BatchBuilder, RecordKind};

    fn batch(time: i64, body: &[u8]) -> Batch {
        let mut builder = BatchBuilder::new();
        builder.push(RecordKind::Decision, Timestamp::from_millis(time), |out| {
            out.extend_from_slice(body)
        });
        builder.finish().expect("one record was pushed")
    }

    fn three() -> (Head, Vec<StoredBatch>) {
        let genesis = Head::genesis(JournalId([7; 16]));
        let mut head = genesis;
        let mut rows = Vec::new();
        for n in 1..=3 {
            let row = head.followed_by(Epoch(1), batch(n, &[u8::try_from(n).unwrap_or(0); 5]));
            head = row.head();
            rows.push(row);
        }
        (genesis, rows)
    }

    fn first_bad(genesis: Head, rows: &[StoredBatch]) -> Option<u64> {
        let mut chain = Chain::from(genesis);
        for row in rows {
            match chain.accept(row) {
                Ok(()) => {}
                Err(JournalError::Corrupt { sequence, .. }) => return Some(sequence),
                Err(other) => panic!("{other}"),
            }
        }
        None
    }

    #[test]
    fn the_hash_of_a_batch_never_changes() {
        let (genesis, rows) = three();
        assert_eq!(
            genesis.hash.to_string(),
            "c23c73f53d0748d06735b06cf61d60185fc998eee7299ad6beb83747e891eb06"
        );
        assert_eq!(
            rows[2].hash.to_string(),
            "0c45a8033fe055ffc60ce275af5bf22835cec651351c1c2253209c7761516fa6"
        );
        assert_eq!(genesis.after(Epoch(1), &batch(1, &[1; 5])), rows[0].head());
    }

    #[test]
    fn every_changed_field_is_found_in_its_own_batch() {
        let (genesis, rows) = three();
        assert_eq!(first_bad(genesis, &rows), None);
        let changes: [fn(&mut StoredBatch); 8] = [
            |row| row.sequence += 1,
            |row| row.first_position += 1,
            |row| row.records += 1,
            |row| row.epoch.0 += 1,
            |row| row.time = row.time.plus_millis(1),
            |row| row.payload[3] ^= 1,
            |row| row.previous.0[31] ^= 128,
            |row| row.hash.0[0] ^= 1,
        ];
        for change in changes {
            let mut damaged = rows.clone();
            change(&mut damaged[1]);
            assert_eq!(first_bad(genesis, &damaged), Some(2));
        }
    }

    #[test]
    fn a_missing_a_swapped_and_a_foreign_batch_are_found() {
        let (genesis, rows) = three();
        let missing = [rows[0].clone(), rows[2].clone()];
        assert_eq!(first_bad(genesis, &missing), Some(2));
        let swapped = [rows[0].clone(), rows[2].clone(), rows[1].clone()];
        assert_eq!(first_bad(genesis, &swapped), Some(2));
        assert_eq!(first_bad(Head::genesis(JournalId([8; 16])), &rows), Some(1));
    }

    #[test]
    fn a_batch_of_an_older_epoch_never_follows_a_newer_one() {
        let genesis = Head::genesis(JournalId([7; 16]));
        let newer = genesis.followed_by(Epoch(2), batch(1, b"newer"));
        let older = newer.head().followed_by(Epoch(1), batch(2, b"older"));
        assert_eq!(first_bad(genesis, &[newer, older]), Some(2));
    }
}
