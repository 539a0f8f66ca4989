//! Old batches in sealed segments: read like any others, never lost, never skipped.

use crate::sealed;
use crate::support;

use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use bursar_core::time::Timestamp;
use bursar_journal::backup::{copy, copy_to_read, truncate};
use bursar_journal::merkle::{Frontier, Verifier};
use bursar_journal::segment::OpenSegment;
use bursar_journal::sqlite::{SqliteJournal, archive, inspect, sealed_segments};
use bursar_journal::{
    BatchBuilder, Head, Journal, JournalError, RecordKind, Sealing, SegmentFault, SegmentMark,
};
use sealed::{
    append, check, first_error, names, open, owned, rows, seal_all, sealed, sealing, segment_file,
    snapshot,
};
use support::{TempDir, read_all};

#[test]
fn sealed_batches_are_read_like_others_and_leave_the_database() {
    let directory = TempDir::new();
    let (journal, epoch) = sealed(directory.path());
    let marks = journal.segments();
    let last = marks.last().expect("there are some").last;
    assert!(last < 250, "the batch of the snapshot stays");
    assert_eq!(rows(directory.path()), 300 - last);
    let batches = check(&journal, 300);
    for batch in &batches {
        assert_eq!(journal.head_at(batch.sequence), Ok(batch.head()));
    }
    for after in [1, 30, last - 1, last, last + 1, 260, 299] {
        let index = usize::try_from(after).expect("small");
        let head = batches[index - 1].head();
        assert_eq!(read_all(&journal, head), batches[index..]);
    }
    append(&journal, epoch, 10);
    assert_eq!(check(&journal, 310).first(), batches.first());
    drop(journal);
    check(&open(directory.path()), 310);
}

#[test]
fn a_journal_without_segments_keeps_its_version_and_gets_another_with_the_first() {
    let directory = TempDir::new();
    let version = || -> i64 {
        let file = rusqlite::Connection::open(sealed::file(directory.path())).expect("there");
        file.pragma_query_value(None, "user_version", |row| row.get(0)).expect("a number")
    };
    let journal = open(directory.path());
    let epoch = owned(&journal);
    append(&journal, epoch, 200);
    journal.compact().expect("there is space");
    assert_eq!(seal_all(&journal), [], "no snapshot, so a start needs everything");
    assert_eq!(version(), 2);
    snapshot(&journal);
    assert!(!seal_all(&journal).is_empty());
    assert_eq!(version(), 3, "earlier builds would miss the sealed batches");
}

#[test]
fn a_start_needs_no_segment_and_a_reader_names_the_missing_one() {
    let directory = TempDir::new();
    let (journal, _) = sealed(directory.path());
    let (marks, began) = (journal.segments(), journal.began_at());
    drop(journal);
    let folder = directory.path().join("journal.db.segments");
    std::fs::rename(&folder, directory.path().join("elsewhere")).expect("it is ours");
    let journal = open(directory.path());
    assert_eq!(journal.began_at(), began);
    let newest = journal.list_snapshots().expect("listed")[0];
    let head = journal.get_snapshot(newest).expect("it is whole").head;
    assert_eq!(journal.head_at(head.sequence), Ok(head));
    assert_eq!(read_all(&journal, head).len(), 50);
    let epoch = owned(&journal);
    append(&journal, epoch, 1);
    let error = first_error(&journal);
    assert!(names(&error, &marks[0]), "{error}");
    assert!(error.to_string().contains("mount"), "{error}");
    assert!(error.is_retryable(), "the folder may come back");
    std::fs::rename(directory.path().join("elsewhere"), &folder).expect("it is ours");
    check(&journal, 301);
}

#[test]
fn every_altered_bit_of_a_segment_is_found_and_named() {
    let directory = TempDir::new();
    let (journal, _) = sealed(directory.path());
    let mark = journal.segments()[2];
    let file = segment_file(directory.path(), &mark);
    let whole = std::fs::read(&file).expect("it is there");
    for bit in (0..whole.len() * 8).step_by(61) {
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(OpenSegment::open(damaged, journal.id()).is_err(), "bit {bit}");
    }
    for length in (0..whole.len()).step_by(97) {
        assert!(OpenSegment::open(whole[..length].to_vec(), journal.id()).is_err());
    }
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    std::fs::write(&file, &damaged).expect("it is ours");
    drop(journal);
    let journal = open(directory.path());
    let error = first_error(&journal);
    assert!(names(&error, &mark), "{error}");
    let altered =
        matches!(&error, JournalError::Segment { fault: SegmentFault::Altered { .. }, .. });
    assert!(altered && !error.is_retryable(), "{error}");
    // Another valid segment of this journal in its place.
    let other = segment_file(directory.path(), &journal.segments()[3]);
    std::fs::copy(other, &file).expect("it is ours");
    assert!(names(&first_error(&journal), &mark));
    std::fs::write(&file, &whole).expect("it is ours");
    check(&journal, 300);
}

#[test]
fn segments_continue_each_other_and_sign_what_they_end_with() {
    let directory = TempDir::new();
    let (journal, _) = sealed(directory.path());
    let key = sealing().signer.expect("the test signs");
    let verifier = Verifier::new(journal.id(), key.verifying_key());
    let mut batches = check(&journal, 300).into_iter();
    let (mut tree, mut end, mut digest) =
        (Frontier::new(), Head::genesis(journal.id()), Default::default());
    for mark in journal.segments() {
        let segment = journal.segment_places().open(&mark).expect("it is there");
        assert_eq!((mark.before(), segment.follows()), (end, digest));
        for batch in batches.by_ref().take_while(|batch| batch.sequence <= mark.last) {
            batch.frames().for_each(|record| tree.push(record.expect("whole").frame));
            if batch.sequence == mark.last {
                break;
            }
        }
        let signed = segment.checkpoint().expect("it is signed");
        let checkpoint = verifier.checkpoint(signed).expect("it is signed by the key");
        assert_eq!((checkpoint.size, checkpoint.root), (mark.last_position, tree.root()));
        (end, digest) = (mark.end(), mark.digest);
    }
}

#[test]
fn sealing_that_is_interrupted_anywhere_is_repeated() {
    let whole = TempDir::new();
    let expected = sealed(whole.path()).0.segments();
    let names = |marks: &[SegmentMark]| -> Vec<(u64, u64)> {
        marks.iter().map(|mark| (mark.first, mark.last)).collect()
    };
    let directory = TempDir::new();
    let journal = open(directory.path());
    let epoch = owned(&journal);
    append(&journal, epoch, 250);
    snapshot(&journal);
    append(&journal, epoch, 50);
    journal.compact().expect("there is space");
    let mut steps = 0_u64;
    loop {
        // One step more each time, so that every step is the last one once.
        let left = Cell::new(steps % 90);
        let going = || left.replace(left.get().saturating_sub(1)) > 0;
        let sealed = journal.seal(&sealing(), &going).expect("it can be sealed");
        check(&journal, 300);
        let sealed_through = journal.segments().last().map_or(0, |mark| mark.last);
        assert!(rows(directory.path()) >= 300 - sealed_through, "a batch is in neither place");
        steps += 1;
        if sealed.is_none() && steps > 900 {
            break;
        }
    }
    assert_eq!(names(&journal.segments()), names(&expected));
    assert_eq!(rows(directory.path()), 300 - expected.last().expect("some").last);
    let folder = directory.path().join("journal.db.segments");
    let files = std::fs::read_dir(folder).expect("it is there").count();
    assert_eq!(files, expected.len(), "nothing is left over");
}

#[test]
fn the_same_batches_give_the_same_segment() {
    let directory = TempDir::new();
    let (journal, _) = sealed(directory.path());
    let copied = TempDir::new();
    let target = sealed::file(copied.path());
    copy(&sealed::file(directory.path()), &target, |_| {}).expect("a copy");
    let marks = journal.segments();
    truncate(&target, marks[1].end()).expect("a shorter copy");
    let journal = open(copied.path());
    check(&journal, marks[1].last);
    assert_eq!(journal.segments(), marks[..1], "the last batch is in the database again");
    let epoch = owned(&journal);
    append(&journal, epoch, 5);
    snapshot(&journal);
    journal.compact().expect("there is space");
    seal_all(&journal);
    assert_eq!(journal.segments(), marks[..2]);
}

#[test]
fn a_copy_has_all_segments_and_one_to_read_refers_to_them() {
    let directory = TempDir::new();
    let (journal, _) = sealed(directory.path());
    let path = sealed::file(directory.path());
    let copied = TempDir::new();
    copy(&path, &sealed::file(copied.path()), |_| {}).expect("a copy");
    let referring = TempDir::new();
    copy_to_read(&path, &sealed::file(referring.path())).expect("a copy");
    check(&open(copied.path()), 300);
    check(&open(referring.path()), 300);
    assert!(!referring.path().join("journal.db.segments").exists());
    let moved = TempDir::new();
    archive(&path, moved.path()).expect("there is space");
    let copied = TempDir::new();
    copy(&path, &sealed::file(copied.path()), |_| {}).expect("a copy");
    drop(moved);
    check(&open(copied.path()), 300);
    assert!(first_error(&journal).to_string().contains("missing"));
}

#[test]
fn a_copy_is_cut_inside_a_segment() {
    let directory = TempDir::new();
    let (journal, _) = sealed(directory.path());
    let batches = check(&journal, 300);
    let marks = journal.segments();
    for end in [1, marks[1].first, marks[1].first + 1, marks[1].last, marks[2].last - 1, 280] {
        let copied = TempDir::new();
        let target = sealed::file(copied.path());
        copy(&sealed::file(directory.path()), &target, |_| {}).expect("a copy");
        truncate(&target, batches[usize::try_from(end).expect("small") - 1].head())
            .expect("a shorter copy");
        let shorter = open(copied.path());
        check(&shorter, end);
        let epoch = owned(&shorter);
        append(&shorter, epoch, 20);
        check(&shorter, end + 20);
    }
}

fn files(folder: &Path) -> usize {
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

#[test]
fn archived_segments_are_read_where_they_are_and_named_when_they_are_gone() {
    let directory = TempDir::new();
    let (journal, epoch) = sealed(directory.path());
    let path = sealed::file(directory.path());
    let marks = journal.segments();
    let target = TempDir::new();
    // A part of a segment, left by an archive that was interrupted.
    let folder = target.path().join(format!("journal-{}", journal.id()));
    std::fs::create_dir_all(&folder).expect("it is ours");
    std::fs::write(folder.join(marks[0].name()), b"bursar seg").expect("it is ours");
    let totals = archive(&path, target.path()).expect("there is space");
    assert_eq!((totals.moved, totals.kept), (marks.len() as u64 - 1, 1));
    assert_eq!(files(&directory.path().join("journal.db.segments")), 1);
    assert_eq!(files(&folder), marks.len() - 1);
    check(&journal, 300);
    let again = archive(&path, target.path()).expect("there is nothing to do");
    assert_eq!((again.moved, again.before), (0, totals.moved));
    let remembered = journal.segment_places().archived().expect("it is there");
    for (mark, archived) in marks.iter().zip(&remembered) {
        assert_eq!(
            (mark.name(), mark.digest.to_string()),
            (archived.name.clone(), archived.digest.clone())
        );
        assert_eq!((mark.first, mark.last), (archived.first, archived.last));
    }
    // Sealing goes on after what was archived.
    append(&journal, epoch, 200);
    snapshot(&journal);
    snapshot_and_seal(&journal, epoch);
    std::fs::remove_dir_all(&folder).expect("it is ours");
    drop(journal);
    let journal = open(directory.path());
    let error = first_error(&journal);
    assert!(names(&error, &marks[0]), "{error}");
    assert!(error.to_string().contains(&folder.display().to_string()), "{error}");
}

fn snapshot_and_seal(journal: &SqliteJournal, epoch: bursar_journal::Epoch) {
    append(journal, epoch, 1);
    snapshot(journal);
    journal.compact().expect("there is space");
    let before = journal.segments().len();
    seal_all(journal);
    assert!(journal.segments().len() > before);
    check(journal, 501);
}

#[test]
fn nothing_is_archived_from_a_damaged_segment() {
    let directory = TempDir::new();
    let (journal, _) = sealed(directory.path());
    let mark = journal.segments()[1];
    let file = segment_file(directory.path(), &mark);
    let mut bytes = std::fs::read(&file).expect("it is there");
    bytes[100] ^= 1;
    std::fs::write(&file, bytes).expect("it is ours");
    let target = TempDir::new();
    let error = archive(&sealed::file(directory.path()), target.path()).expect_err("it is damaged");
    assert!(names(&error, &mark), "{error}");
    assert!(file.exists(), "it stays where it is");
}

#[test]
fn a_changed_list_of_segments_is_found() {
    for sql in [
        "UPDATE segment SET last_position = last_position + 1 WHERE first = 1",
        "UPDATE segment SET digest = zeroblob(32) WHERE first = 1",
        "DELETE FROM segment WHERE first = 1",
        "DELETE FROM segment WHERE first = (SELECT max(first) FROM segment)",
    ] {
        let directory = TempDir::new();
        drop(sealed(directory.path()));
        let path = sealed::file(directory.path());
        let file = rusqlite::Connection::open(&path).expect("it is there");
        file.execute_batch(sql).expect("it is a journal");
        drop(file);
        let opened = SqliteJournal::open(&path, Default::default());
        match opened {
            Err(error) => assert!(error.to_string().contains("list of segments"), "{error}"),
            Ok(journal) => {
                // The last one: the batches after it are found not to follow.
                let error = first_error(&journal);
                assert!(matches!(error, JournalError::Corrupt { .. }), "{error}");
            }
        }
    }
}

#[test]
fn a_bound_inside_a_segment_is_checked() {
    let directory = TempDir::new();
    let (journal, _) = sealed(directory.path());
    let id = journal.id();
    let mut bound = journal.head_at(20).expect("it is sealed");
    drop(journal);
    let path = sealed::file(directory.path());
    let (listed, marks) = sealed_segments(&path).expect("it can be read");
    assert!(listed == id && marks.iter().any(|mark| mark.has(20)));
    let expected = |bound| bursar_journal::sqlite::Expected { id, bound, tail: None };
    inspect(&path, Some(&expected(bound))).expect("it is this history");
    bound.hash.0[0] ^= 1;
    let refused = inspect(&path, Some(&expected(bound))).expect_err("another history");
    assert!(refused.to_string().contains("batch 20"), "{refused}");
}

#[test]
fn readers_and_the_writer_go_on_while_batches_are_sealed() {
    let directory = TempDir::new();
    let journal = open(directory.path());
    let epoch = owned(&journal);
    append(&journal, epoch, 100);
    let written = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..60 {
                append(&journal, epoch, 25);
                snapshot(&journal);
                journal.compact().expect("there is space");
            }
            written.store(true, Ordering::SeqCst);
        });
        scope.spawn(|| {
            while !written.load(Ordering::SeqCst) {
                seal_all(&journal);
            }
            seal_all(&journal);
        });
        scope.spawn(|| {
            let mut read = 0;
            while !written.load(Ordering::SeqCst) || read == 0 {
                let count = journal.head().expect("it is open").sequence;
                let batches = read_all(&journal, Head::genesis(journal.id()));
                assert!(batches.len() as u64 >= count);
                let middle = &batches[batches.len() / 2];
                assert_eq!(journal.head_at(middle.sequence), Ok(middle.head()));
                read += 1;
            }
        });
    });
    check(&journal, 1_600);
    assert!(journal.segments().len() > 10);
}

#[test]
fn the_space_of_sealed_batches_is_used_again() {
    let directory = TempDir::new();
    let journal = open(directory.path());
    let epoch = owned(&journal);
    let size = || std::fs::metadata(sealed::file(directory.path())).expect("there").len();
    let mut sizes = Vec::new();
    for _ in 0..8 {
        append(&journal, epoch, 1_500);
        snapshot(&journal);
        journal.compact().expect("there is space");
        seal_all(&journal);
        sizes.push(size());
    }
    let (early, late) = (sizes[3], sizes[7]);
    assert!(late <= early + early / 2, "it grows although old batches leave: {sizes:?}");
}

#[test]
fn a_file_that_is_mostly_free_is_shrunk_at_the_next_start() {
    let directory = TempDir::in_memory();
    let journal = open(directory.path());
    let epoch = owned(&journal);
    let mut head = journal.head().expect("it is open");
    for _ in 0..34 {
        let mut builder = BatchBuilder::new();
        let time = Timestamp::from_millis(1);
        builder.push(RecordKind::Decision, time, |body| body.resize(10 << 20, 7));
        let batch = builder.finish().expect("one record was pushed");
        head = journal.append(epoch, head, batch).expect("there is space");
    }
    snapshot(&journal);
    let sealing = Sealing { segment_bytes: 80 << 20, ..sealing() };
    while journal.seal(&sealing, &|| true).expect("it can be sealed").is_some() {}
    drop(journal);
    let size = || std::fs::metadata(sealed::file(directory.path())).expect("there").len();
    assert!(size() > 300 << 20, "a file does not shrink while it is in use");
    let journal = open(directory.path());
    assert!(size() < 100 << 20, "{} bytes", size());
    assert_eq!(read_all(&journal, Head::genesis(journal.id())).len(), 34);
}
