//! Bit rot: one flipped bit anywhere in the file.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use bursar_journal::sqlite::{SqliteJournal, SqliteOptions};
use bursar_journal::{Head, Journal, JournalError, StoredBatch};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::child::JOURNAL;
use super::support::{TempDir, read_all, sample};

/// Batches in the file. Each is stored contiguously.
const BATCHES: u64 = 200;

/// The results of the flips.
#[derive(Default)]
pub(crate) struct Flips {
    in_batches: usize,
    elsewhere: usize,
    elsewhere_found: usize,
}

impl fmt::Display for Flips {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} inside batches, all found in the right one; {} elsewhere, {} found, the others \
             without effect; none served",
            self.in_batches, self.elsewhere, self.elsewhere_found
        )
    }
}

/// Flips `wanted` bits, one at a time, and reads the whole journal after each.
pub(crate) fn bit_flips(seed: u64, wanted: usize) -> Flips {
    let directory = TempDir::in_memory();
    let path = directory.path().join(JOURNAL);
    // Every compaction moves the whole log into the file.
    let (whole, [file, ..]) = fill(&path, 0, BATCHES);
    // Everything is in the file itself by now.
    std::fs::remove_file(directory.path().join("journal.db-wal")).expect("it was there");
    let places: Vec<_> = whole.iter().map(|batch| find(&file, &batch.payload)).collect();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut flips = Flips::default();
    for _ in 0..wanted {
        let at = usize::try_from(random.next_u64()).expect("64 bits") % file.len();
        let mut damaged = file.clone();
        damaged[at] ^= 1 << (random.next_u32() % 8);
        std::fs::write(&path, &damaged).expect("there is space");
        let read = read(&path);
        let hit =
            places.iter().position(|place| place.as_ref().is_some_and(|place| place.contains(&at)));
        let Some(batch) = hit.map(|index| whole[index].sequence) else {
            flips.elsewhere += 1;
            match read {
                Ok(batches) => assert!(batches == whole, "bit rot at byte {at} was served"),
                Err(_) => flips.elsewhere_found += 1,
            }
            continue;
        };
        flips.in_batches += 1;
        match read {
            Err(JournalError::Corrupt { sequence, .. }) => assert_eq!(sequence, batch),
            other => panic!("byte {at} of batch {batch}: {:?}", other.map(|batches| batches.len())),
        }
    }
    assert!(flips.in_batches > wanted / 3, "most of the file is batches");
    flips
}

/// The results of flips in the log and in the tail.
#[derive(Default)]
pub(crate) struct LogFlips {
    found: usize,
    without_effect: usize,
    like_a_torn_write: usize,
}

impl fmt::Display for LogFlips {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} found, {} without effect, {} in the very last batch, which is then missing as after \
             a torn write; none served",
            self.found, self.without_effect, self.like_a_torn_write
        )
    }
}

/// Flips `wanted` bits of a log that was not yet moved into the file. The last transaction, which a
/// flip could lose, is still in the tail.
pub(crate) fn log_flips(seed: u64, wanted: usize) -> LogFlips {
    let flips = flips_beside(seed, wanted, 1, 1);
    assert!(flips.found > wanted * 9 / 10, "most of the log is synced");
    assert_eq!(flips.like_a_torn_write, 0, "the tail has the last batch");
    flips
}

/// Flips `wanted` bits of a tail that was not yet moved into the database.
pub(crate) fn tail_flips(seed: u64, wanted: usize) -> LogFlips {
    let flips = flips_beside(seed, wanted, 2, BATCHES + 1);
    assert!(flips.found > wanted / 10, "much of the tail is batches");
    flips
}

/// Flips `wanted` bits of one of the three files of a journal that was compacted after a number of
/// batches.
fn flips_beside(seed: u64, wanted: usize, which: usize, tidied_every: u64) -> LogFlips {
    let directory = TempDir::in_memory();
    let path = directory.path().join(JOURNAL);
    let (whole, files) = fill(&path, u32::MAX, tidied_every);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut flips = LogFlips::default();
    for _ in 0..wanted {
        let mut damaged = files.clone();
        let file = &mut damaged[which];
        let at = usize::try_from(random.next_u64()).expect("64 bits") % file.len();
        file[at] ^= 1 << (random.next_u32() % 8);
        for (content, name) in damaged.iter().zip(NAMES) {
            std::fs::write(path.with_file_name(name), content).expect("there is space");
        }
        match open_and_read(&path) {
            Err(_) => flips.found += 1,
            Ok(batches) if batches == whole => flips.without_effect += 1,
            Ok(batches) => {
                assert!(batches == whole[..whole.len() - 1], "rot at byte {at} lost batches");
                flips.like_a_torn_write += 1;
            }
        }
    }
    flips
}

const NAMES: [&str; 3] = [JOURNAL, "journal.db-wal", "journal.db-tail"];

/// Writes a journal that moves its log into the file at `checkpoint_pages`, and is compacted after
/// a number of batches. Returns its files just before the end.
fn fill(path: &Path, checkpoint_pages: u32, tidied_every: u64) -> (Vec<StoredBatch>, [Vec<u8>; 3]) {
    let options = SqliteOptions { checkpoint_pages, ..SqliteOptions::default() };
    let journal = SqliteJournal::open(path, options).expect("a new file");
    let epoch = journal.acquire_lease("test", Duration::from_secs(60)).expect("alone").epoch;
    let genesis = journal.head().expect("the head can be read");
    let mut head = genesis;
    for number in 1..=BATCHES {
        head = journal.append(epoch, head, sample(number)).expect("there is space");
        if number % tidied_every == 0 {
            journal.compact().expect("the disk works");
        }
    }
    let files = NAMES.map(|name| std::fs::read(path.with_file_name(name)).expect("just written"));
    (read_all(&journal, genesis), files)
}

/// The position of the payload, if there is no stale copy of it in an unused part of a page.
fn find(file: &[u8], payload: &[u8]) -> Option<std::ops::Range<usize>> {
    let mut starts =
        (0..=file.len() - payload.len()).filter(|start| file[*start..].starts_with(payload));
    let start = starts.next().expect("a small payload lies in one piece");
    starts.next().is_none().then_some(start..start + payload.len())
}

fn read(path: &Path) -> Result<Vec<StoredBatch>, JournalError> {
    for leftover in ["journal.db-wal", "journal.db-shm"] {
        // Belongs to the previous flip.
        let _ = std::fs::remove_file(path.with_file_name(leftover));
    }
    open_and_read(path)
}

fn open_and_read(path: &Path) -> Result<Vec<StoredBatch>, JournalError> {
    let journal = SqliteJournal::open(path, SqliteOptions::default())?;
    journal.read(Head::genesis(journal.id()))?.collect()
}
