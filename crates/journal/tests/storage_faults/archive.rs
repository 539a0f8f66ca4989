//! The archive of a ledger under power loss: what was acknowledged is found, and nothing of it in part.

use std::path::Path;

use bursar_journal::archive::{Archive, ArchiveEntry, ArchiveFamily, ArchiveSizes};
use bursar_journal::{JournalError, JournalId};

/// Name of the archive in its directory.
const ARCHIVE: &str = "archive.db";
/// Small runs, so that a short run of the child seals several and stores their filters together.
const SIZES: ArchiveSizes = ArchiveSizes { run_entries: 100, group_runs: 3, cached_rows: 4 };
/// For how many steps answers are promised.
const PROMISED: u64 = 40;

fn open(directory: &Path) -> Result<Archive, JournalError> {
    let archive = Archive::open(&directory.join(ARCHIVE), JournalId([7; 16]))?;
    Ok(archive.with_sizes(SIZES))
}

/// What one step puts: names of its own, and one that every step writes again.
fn entries(number: u64) -> Vec<ArchiveEntry> {
    let at = number.cast_signed();
    let entry = |family, key: String| {
        let mut value = vec![0; 600];
        // Incompressible, so that the log becomes long.
        let seed = blake3::hash(format!("{number} {key}").as_bytes());
        blake3::Hasher::new_keyed(seed.as_bytes()).finalize_xof().fill(&mut value);
        ArchiveEntry { family, key: key.into_bytes(), value, at }
    };
    let objects = (0..10).map(|place| entry(ArchiveFamily::Objects, format!("{number}-{place}")));
    let again = entry(ArchiveFamily::Objects, "again".into());
    let answer = entry(ArchiveFamily::Answers, format!("answer-{number}"));
    objects.chain([again, answer]).collect()
}

/// The child: one step after the other.
pub(crate) fn run(directory: &Path, steps: u64, mut note: impl FnMut(String)) {
    let archive = open(directory).expect("a new file");
    note("ready\n".into());
    for number in 1..=steps {
        note(format!("begin {number}\n"));
        archive.put(&entries(number), number).expect("the disk works");
        let promised_from = number.saturating_sub(PROMISED).cast_signed();
        archive.drop_answers_before(promised_from).expect("the disk works");
        note(format!("ack {number}\n"));
    }
    note("done\n".into());
}

/// Everything up to the position of the archive must be there. Returns the position.
pub(crate) fn check(directory: &Path) -> u64 {
    let archive = open(directory).expect("it opens");
    let last = archive.position();
    if last == 0 {
        return 0;
    }
    let found = |entry: &ArchiveEntry| {
        let found = archive.get(entry.family, &entry.key).expect("it can be read").0;
        found.as_deref() == Some(&entry.value[..])
    };
    let recent = last.saturating_sub(2);
    for number in (1..=last).filter(|number| number % 7 == 0 || *number > recent) {
        let is_promised = number + PROMISED / 2 > last;
        for entry in entries(number) {
            let is_newest = entry.key != b"again" || number == last;
            let is_kept = entry.family == ArchiveFamily::Objects || is_promised;
            assert!(!(is_newest && is_kept) || found(&entry), "{number} of {last} is lost");
        }
    }
    let later = archive.get(ArchiveFamily::Objects, format!("{}-0", last + 1).as_bytes());
    assert_eq!(later.expect("it can be read").0, None, "a step is there in part");
    last
}
