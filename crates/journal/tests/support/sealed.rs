//! Journals whose old batches are sealed.
#![allow(dead_code, unreachable_pub, reason = "every test binary uses another part")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use bursar_journal::merkle::SigningKey;
use bursar_journal::sqlite::{SqliteJournal, SqliteOptions};
use bursar_journal::{
    Epoch, Head, Journal, JournalError, Sealing, SegmentMark, Snapshot, StoredBatch,
};

use super::support::{read_all, sample};

/// Small segments, signed.
pub fn sealing() -> Sealing {
    let signer = Some(SigningKey::from_bytes(&[5; 32]));
    Sealing { segment_bytes: 8 << 10, level: 3, signer }
}

pub fn file(directory: &Path) -> PathBuf {
    directory.join("journal.db")
}

pub fn open(directory: &Path) -> SqliteJournal {
    SqliteJournal::open(&file(directory), SqliteOptions::default()).expect("it is ours and whole")
}

pub fn owned(journal: &dyn Journal) -> Epoch {
    journal.acquire_lease("test", Duration::from_secs(60)).expect("alone").epoch
}

/// Appends `count` samples.
pub fn append(journal: &dyn Journal, epoch: Epoch, count: u64) -> Head {
    let mut head = journal.head().expect("it is open");
    for _ in 0..count {
        let batch = sample(head.sequence + 1);
        head = journal.append(epoch, head, batch).expect("there is space");
    }
    head
}

/// Stores a snapshot at the end.
pub fn snapshot(journal: &dyn Journal) -> Head {
    let head = journal.head().expect("it is open");
    let snapshot = Snapshot { head, state: b"state".to_vec() };
    journal.put_snapshot(&snapshot).expect("there is space");
    head
}

/// Seals everything that can be sealed.
pub fn seal_all(journal: &dyn Journal) -> Vec<SegmentMark> {
    let mut sealed = Vec::new();
    while let Some(mark) = journal.seal(&sealing(), &|| true).expect("it can be sealed") {
        sealed.push(mark);
    }
    sealed
}

/// A journal of 300 batches with a snapshot at batch 250, sealed as far as possible.
pub fn sealed(directory: &Path) -> (SqliteJournal, Epoch) {
    let journal = open(directory);
    let epoch = owned(&journal);
    append(&journal, epoch, 250);
    snapshot(&journal);
    append(&journal, epoch, 50);
    journal.compact().expect("there is space");
    let marks = seal_all(&journal);
    assert!(marks.len() > 5, "{} segments", marks.len());
    (journal, epoch)
}

/// The file of a segment beside the journal.
pub fn segment_file(directory: &Path, mark: &SegmentMark) -> PathBuf {
    directory.join("journal.db.segments").join(mark.name())
}

/// All batches, which must be the samples.
pub fn check(journal: &dyn Journal, count: u64) -> Vec<StoredBatch> {
    let genesis = Head::genesis(journal.id());
    let batches = read_all(journal, genesis);
    let mut head = genesis;
    for batch in &batches {
        assert_eq!(*batch, head.followed_by(batch.epoch, sample(head.sequence + 1)));
        head = batch.head();
    }
    assert_eq!(head.sequence, count);
    batches
}

pub fn first_error(journal: &dyn Journal) -> JournalError {
    let mut reader = journal.read(Head::genesis(journal.id())).expect("it is open");
    reader.find_map(Result::err).expect("something is missing")
}

/// Whether an error names a segment and its range.
pub fn names(error: &JournalError, mark: &SegmentMark) -> bool {
    let words = error.to_string();
    let range = format!("batches {} to {}", mark.first, mark.last);
    words.contains(&mark.name()) && words.contains(&range)
}

/// Rows that are left in the database.
pub fn rows(directory: &Path) -> u64 {
    let database = rusqlite::Connection::open(file(directory)).expect("it is there");
    let count: i64 = database
        .query_row("SELECT count(*) FROM batch", [], |row| row.get(0))
        .expect("it is a journal");
    count.cast_unsigned()
}
