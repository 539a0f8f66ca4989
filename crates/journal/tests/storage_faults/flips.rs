//! Rot: one flipped bit anywhere in the file.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use bursar_journal::sqlite::{SqliteJournal, SqliteOptions};
use bursar_journal::{Head, Journal, JournalError, StoredBatch};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::child::JOURNAL;
use super::support::{TempDir, read_all, sample};

/// Batches in the file; each is stored in one piece.
const BATCHES: u64 = 200;

/// What became of the flips.
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
    let whole = fill(&path);
    let file = std::fs::read(&path).expect("just written");
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

fn fill(path: &Path) -> Vec<StoredBatch> {
    // Every tidy moves the whole log into the file.
    let options = SqliteOptions { checkpoint_pages: 0, ..SqliteOptions::default() };
    let journal = SqliteJournal::open(path, options).expect("a new file");
    let epoch = journal.acquire_lease("test", Duration::from_secs(60)).expect("alone").epoch;
    let genesis = journal.head().expect("the head can be read");
    let mut head = genesis;
    for number in 1..=BATCHES {
        head = journal.append(epoch, head, sample(number)).expect("there is space");
    }
    journal.tidy().expect("the disk works");
    read_all(&journal, genesis)
}

/// Where the payload lies, if there is no stale copy of it in an unused part of some page.
fn find(file: &[u8], payload: &[u8]) -> Option<std::ops::Range<usize>> {
    let mut starts =
        (0..=file.len() - payload.len()).filter(|start| file[*start..].starts_with(payload));
    let start = starts.next().expect("a small payload lies in one piece");
    starts.next().is_none().then_some(start..start + payload.len())
}

fn read(path: &Path) -> Result<Vec<StoredBatch>, JournalError> {
    for leftover in ["journal.db-wal", "journal.db-shm"] {
        // Belongs to the flip before.
        let _ = std::fs::remove_file(path.with_file_name(leftover));
    }
    let journal = SqliteJournal::open(path, SqliteOptions::default())?;
    journal.read(Head::genesis(journal.id()))?.collect()
}
