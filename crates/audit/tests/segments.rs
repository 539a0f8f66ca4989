//! Journals with sealed segments, read by the auditor's own code.

use crate::support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use bursar_audit::check::check;
use bursar_audit::export::{JournalKind, export};
use bursar_audit::{Report, Source, SqliteSource, proof, verify};
use bursar_core::time::Timestamp;
use bursar_journal::merkle::SigningKey;
use bursar_journal::sqlite::{SqliteJournal, SqliteOptions, archive};
use bursar_journal::{Journal, Sealing, SegmentMark, Snapshot};
use support::TempDir;
use support::traffic::World;

fn file(directory: &TempDir) -> PathBuf {
    directory.path().join("journal.db")
}

/// A journal of a ledger's traffic, most of it sealed.
fn sealed(directory: &TempDir) -> (SqliteJournal, Vec<SegmentMark>) {
    let journal = SqliteJournal::open(&file(directory), SqliteOptions::default()).expect("alone");
    let epoch = journal.acquire_lease("test", Duration::from_secs(60)).expect("alone").epoch;
    let mut head = journal.head().expect("it is open");
    let batches = World::after(6, 900).batches(3);
    let (last, count) = (batches.len(), batches.len() * 3 / 4);
    for (number, batch) in batches.into_iter().enumerate() {
        head = journal.append(epoch, head, batch).expect("there is space");
        if number == count {
            let snapshot = Snapshot { head, state: Vec::new() };
            journal.put_snapshot(&snapshot).expect("there is space");
        }
    }
    assert_eq!(head.sequence, last as u64);
    journal.compact().expect("there is space");
    let signer = Some(SigningKey::from_bytes(&[5; 32]));
    let sealing = Sealing { segment_bytes: 16 << 10, level: 3, signer };
    let mut marks = Vec::new();
    while let Some(mark) = journal.seal(&sealing, &|| true).expect("it can be sealed") {
        marks.push(mark);
    }
    assert!(marks.len() >= 3, "{} segments", marks.len());
    (journal, marks)
}

fn verified(directory: &TempDir) -> Report {
    verify(&SqliteSource::open(&file(directory)).expect("it can be read"), None, |_| {})
}

fn segment(directory: &TempDir, mark: &SegmentMark) -> PathBuf {
    directory.path().join("journal.db.segments").join(mark.name())
}

/// The problem names the segment and its range.
fn assert_names(report: &Report, mark: &SegmentMark, words: &str) {
    let problem = report.problem.as_ref().expect("it is found").to_string();
    let range = format!("batches {} to {}", mark.first, mark.last);
    for part in [mark.name().as_str(), range.as_str(), words] {
        assert!(problem.contains(part), "{problem}");
    }
}

fn replaced(path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let whole = std::fs::read(path).expect("it is there");
    let mut changed = whole.clone();
    change(&mut changed);
    std::fs::write(path, changed).expect("it is ours");
    whole
}

#[test]
fn sealed_records_are_verified_exported_and_proven_like_others() {
    let plain = TempDir::new();
    let journal = SqliteJournal::open(&file(&plain), SqliteOptions::default()).expect("alone");
    World::after(6, 900).write_to(&journal, 3);
    drop(journal);
    let directory = TempDir::new();
    let (journal, _) = sealed(&directory);
    let [expected, report] = [&plain, &directory].map(verified);
    assert!(report.holds(), "{report}");
    assert_eq!((report.records, report.accounts), (expected.records, expected.accounts));
    assert_eq!((report.grants, report.parts), (expected.grants, expected.parts));
    assert!(check(&file(&directory), |_| {}).expect("it can be read").holds());
    let [expected, lines] = [&plain, &directory].map(|directory| {
        let source = SqliteSource::open(&file(directory)).expect("it can be read");
        let mut out = Vec::new();
        export(&source, JournalKind::Ledger, &mut out, |_| {}).expect("it can be written");
        out
    });
    assert!(lines == expected, "the exports differ");
    let source = SqliteSource::open(&file(&directory)).expect("it can be read");
    let key = SigningKey::from_bytes(&[6; 32]);
    let signed = proof::sign_checkpoint(&source, &key, Timestamp::from_millis(5)).expect("signed");
    let proven = proof::prove_record(&source, 7, &signed).expect("it is sealed and proven");
    let text = proven.to_string();
    proof::check(&text, journal.id(), key.verifying_key()).expect("it is valid");
    assert_eq!(source.head().position, report.records);
}

#[test]
fn a_missing_or_altered_segment_is_named() {
    let directory = TempDir::new();
    let (_journal, marks) = sealed(&directory);
    let path = segment(&directory, &marks[1]);
    let length = std::fs::metadata(&path).expect("it is there").len();
    for place in [0, 20, 40, 100, length / 2, length - 400, length - 200, length - 1] {
        let place = usize::try_from(place).expect("small");
        let whole = replaced(&path, |bytes| bytes[place] ^= 4);
        assert_names(&verified(&directory), &marks[1], "altered");
        std::fs::write(&path, whole).expect("it is ours");
    }
    let away = directory.path().join("away");
    std::fs::rename(&path, &away).expect("it is ours");
    assert_names(&verified(&directory), &marks[1], "mount");
    std::fs::rename(&away, &path).expect("it is ours");
    assert!(verified(&directory).holds());
}

/// A process that can write the store can also compute its checksums. What was signed stays.
#[test]
fn a_segment_with_new_checksums_and_other_records_is_found() {
    let directory = TempDir::new();
    let (journal, marks) = sealed(&directory);
    let path = segment(&directory, &marks[0]);
    drop(journal);
    // The signed root, 180 bytes before the digest: tag, journal, size, root, time, signature.
    let whole = replaced(&path, |bytes| {
        let content = bytes.len() - 32;
        bytes[content - 100] ^= 1;
        let digest = *blake3::hash(&bytes[..content]).as_bytes();
        bytes[content..].copy_from_slice(&digest);
    });
    assert_names(&verified(&directory), &marks[0], "altered");
    std::fs::write(&path, whole).expect("it is ours");
    assert!(verified(&directory).holds());
}

#[test]
fn archived_segments_are_verified_where_they_are() {
    let directory = TempDir::new();
    let (_journal, marks) = sealed(&directory);
    let target = TempDir::new();
    archive(&file(&directory), target.path()).expect("there is space");
    assert!(!segment(&directory, &marks[0]).exists());
    assert!(verified(&directory).holds());
    drop(target);
    assert_names(&verified(&directory), &marks[0], "missing");
}
