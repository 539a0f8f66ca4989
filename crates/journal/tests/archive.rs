//! The archive: what was put is found, the newest of each key, also after the file is opened again.

mod support;

use std::collections::BTreeMap;
use std::path::Path;

use bursar_journal::archive::{Archive, ArchiveEntry, ArchiveFamily};
use bursar_journal::{JournalError, JournalId};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use support::TempDir;

const ID: JournalId = JournalId([7; 16]);

fn open(path: &Path) -> Archive {
    Archive::open(path, ID).expect("the file is whole").with_runs_of(300)
}

fn entry(family: ArchiveFamily, key: &str, value: &str, at: i64) -> ArchiveEntry {
    ArchiveEntry { family, key: key.into(), value: value.into(), at }
}

fn found(archive: &Archive, family: ArchiveFamily, key: &str) -> Option<String> {
    let (found, _) = archive.get(family, key.as_bytes()).expect("it can be read");
    found.map(|bytes| String::from_utf8(bytes).expect("text was put"))
}

#[test]
fn the_newest_entry_of_every_key_is_found_in_blocks_runs_and_after_a_start() {
    let folder = TempDir::in_memory();
    let path = folder.path().join("archive.db");
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut archives = [open(&path), Archive::in_memory().with_runs_of(300)];
    let mut expected: BTreeMap<(bool, String), String> = BTreeMap::new();
    for position in 1..60u64 {
        let entries: Vec<ArchiveEntry> = (0..random.next_u32() % 120)
            .map(|_| {
                let is_answer = random.next_u32() % 3 == 0;
                let key = format!("key{}", random.next_u32() % 3000);
                let value =
                    format!("{key} {position} {}", "x".repeat(random.next_u32() as usize % 300));
                expected.insert((is_answer, key.clone()), value.clone());
                let family =
                    if is_answer { ArchiveFamily::Answers } else { ArchiveFamily::Objects };
                entry(family, &key, &value, i64::try_from(position).expect("small"))
            })
            .collect();
        for archive in &archives {
            archive.put(&entries, position).expect("the disk works");
            assert_eq!(archive.position(), position);
        }
        if position % 10 == 0 {
            archives[0] = open(&path);
        }
    }
    let (mut excluded, mut checked) = (0, 0);
    for archive in &archives {
        for number in 0..4000 {
            for (is_answer, family) in
                [(false, ArchiveFamily::Objects), (true, ArchiveFamily::Answers)]
            {
                let key = format!("key{number}");
                let wanted = expected.get(&(is_answer, key.clone()));
                assert_eq!(found(archive, family, &key).as_ref(), wanted, "{key} {family:?}");
                let excludes = archive.excludes(family, key.as_bytes());
                assert!(excludes.is_none() || wanted.is_none(), "{key} is there");
                excluded += usize::from(excludes == Some(59));
                checked += usize::from(wanted.is_none());
            }
        }
    }
    assert!(excluded * 100 > checked * 98, "{excluded} of {checked} absent keys are excluded");
}

#[test]
fn an_archive_that_is_not_built_says_nothing() {
    let archive = Archive::in_memory();
    archive.put(&[entry(ArchiveFamily::Objects, "a", "1", 0)], 0).expect("memory");
    assert_eq!(archive.excludes(ArchiveFamily::Objects, b"b"), None, "anything may be missing");
    assert!(archive.get(ArchiveFamily::Objects, b"b").is_err());
    archive.put(&[], 5).expect("memory");
    assert_eq!(archive.excludes(ArchiveFamily::Objects, b"b"), Some(5));
    assert!(archive.put(&[], 4).is_err(), "another server has written more");
    archive.clear().expect("memory");
    assert_eq!((archive.position(), archive.excludes(ArchiveFamily::Objects, b"b")), (0, None));
}

#[test]
fn runs_of_answers_that_are_no_longer_promised_are_dropped() {
    let folder = TempDir::in_memory();
    let path = folder.path().join("archive.db");
    let archive = open(&path);
    for at in 0..10i64 {
        let keys = (0..300).map(|number| format!("{at}-{number}"));
        let entries: Vec<ArchiveEntry> = keys
            .flat_map(|key| {
                [ArchiveFamily::Objects, ArchiveFamily::Answers]
                    .map(|family| entry(family, &key, "v", at))
            })
            .collect();
        archive.put(&entries, at.cast_unsigned() + 1).expect("the disk works");
    }
    archive.drop_answers_before(4).expect("the disk works");
    for archive in [archive, open(&path)] {
        for at in 0..10 {
            let key = format!("{at}-7");
            assert_eq!(found(&archive, ArchiveFamily::Answers, &key).is_some(), at >= 4, "{key}");
            assert!(found(&archive, ArchiveFamily::Objects, &key).is_some(), "objects stay: {key}");
        }
    }
}

#[test]
fn an_altered_block_is_refused_and_a_foreign_file_is_not_opened() {
    let folder = TempDir::in_memory();
    let path = folder.path().join("archive.db");
    let archive = open(&path);
    archive.put(&[entry(ArchiveFamily::Objects, "a", "captured 5", 0)], 1).expect("the disk works");
    assert_eq!(found(&archive, ArchiveFamily::Objects, "a").as_deref(), Some("captured 5"));
    let file = rusqlite::Connection::open(&path).expect("a SQLite file");
    let body: Vec<u8> =
        file.query_row("SELECT body FROM block", [], |row| row.get(0)).expect("one block");
    let at = body.windows(10).position(|part| part == b"captured 5").expect("the record is there");
    let mut altered = body;
    altered[at + 9] = b'6';
    let changed = file.execute("UPDATE block SET body = ?1", [altered]).expect("it is a table");
    assert_eq!(changed, 1);
    let refused = archive.get(ArchiveFamily::Objects, b"a");
    assert!(
        matches!(&refused, Err(JournalError::Storage { reason, .. }) if reason.contains("digest"))
    );
    drop(archive);
    assert!(Archive::open(&path, ID).is_err(), "it is read when it is opened");
    let other = folder.path().join("other.db");
    drop(Archive::open(&other, JournalId([8; 16])).expect("a new file"));
    assert!(matches!(Archive::open(&other, ID), Err(JournalError::Refused(_))));
}
