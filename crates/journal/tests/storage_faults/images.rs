//! Power loss: a sample of the states in which a crash could leave the disk.

use std::collections::BTreeMap;
use std::path::Path;

use bursar_journal::sqlite::SqliteJournal;
use bursar_journal::{Epoch, Head, Journal};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::child::{Compaction, JOURNAL, options};
use super::record::{FILES, NEXT, SEGMENTS, Step, run};
use super::support::{TempDir, sample};

/// The unit in which the hardware writes.
const SECTOR: usize = 512;

/// One file: its durable content, and changes that may or may not be durable.
#[derive(Clone, Default)]
struct File {
    durable: Option<Vec<u8>>,
    unsynced: Vec<Change>,
    /// How many of these each sync in progress covers, by its thread.
    syncing: BTreeMap<u32, usize>,
}

#[derive(Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Truncate(usize),
}

/// Which unsynced changes survive.
#[derive(Copy, Clone, PartialEq)]
enum Survivors {
    None,
    All,
    Some,
    Torn,
}

fn write(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    content.resize(content.len().max(offset + bytes.len()), 0);
    content[offset..offset + bytes.len()].copy_from_slice(bytes);
}

impl File {
    fn begin_sync(&mut self, thread: u32) {
        self.syncing.insert(thread, self.unsynced.len());
    }

    fn end_sync(&mut self, thread: u32) {
        let covered = self.syncing.remove(&thread).expect("a sync begins before it ends");
        for others in self.syncing.values_mut() {
            *others = others.saturating_sub(covered);
        }
        let mut content = self.durable.take().unwrap_or_default();
        for change in self.unsynced.drain(..covered) {
            match change {
                Change::Write(offset, bytes) => write(&mut content, offset, &bytes),
                Change::Truncate(length) => content.resize(length, 0),
            }
        }
        self.durable = Some(content);
    }

    fn image(&self, survivors: Survivors, random: &mut ChaCha8Rng) -> Option<Vec<u8>> {
        if self.durable.is_none() && self.unsynced.is_empty() {
            return None;
        }
        let mut content = self.durable.clone().unwrap_or_default();
        let mut luck = || random.next_u32().is_multiple_of(2);
        for change in &self.unsynced {
            let survives = match survivors {
                Survivors::None => false,
                Survivors::All => true,
                Survivors::Some | Survivors::Torn => luck(),
            };
            match change {
                Change::Truncate(length) if survives => content.resize(*length, 0),
                Change::Write(offset, bytes) if survivors == Survivors::Torn => {
                    // Sectors are aligned on the disk, not in the write.
                    let mut start = *offset;
                    while start < offset + bytes.len() {
                        let end = ((start / SECTOR + 1) * SECTOR).min(offset + bytes.len());
                        if luck() {
                            write(&mut content, start, &bytes[start - offset..end - offset]);
                        }
                        start = end;
                    }
                }
                Change::Write(offset, bytes) if survives => write(&mut content, *offset, bytes),
                Change::Truncate(_) | Change::Write(..) => {}
            }
        }
        Some(content)
    }
}

/// Records a run and opens at least `wanted` images of it. Returns how many had lost acknowledged
/// batches, and how many images there were. Anything worse fails at once.
pub(crate) fn power_loss(
    sync: &str,
    compaction: Compaction,
    seed: u64,
    wanted: usize,
) -> (usize, usize) {
    let recorded = TempDir::new();
    let steps = run(recorded.path(), sync, compaction, super::APPENDS, slow_move(compaction));
    assert!(compaction != Compaction::Meanwhile || moved_while_appending(&steps));
    let mut segments = Vec::<Segment>::new();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let every = (crash_points(&steps) / wanted).max(1);
    let (mut lost, mut images, mut points) = (0, 0, 0);
    let mut disk: [File; FILES.len()] = Default::default();
    let (mut ready, mut begun, mut acknowledged) = (false, 0, 0);
    for step in steps {
        match step {
            Step::Write { file, offset, bytes } => {
                disk[file].unsynced.push(Change::Write(offset, bytes));
            }
            Step::Truncate { file, length } => disk[file].unsynced.push(Change::Truncate(length)),
            Step::Syncing { file, thread } => disk[file].begin_sync(thread),
            Step::Synced { file, thread } => disk[file].end_sync(thread),
            Step::Remove { file } => disk[file] = File::default(),
            Step::Rename { to } => {
                let file = std::mem::take(&mut disk[NEXT]);
                segments.push(Segment { name: to, file, is_durable: false });
            }
            Step::SyncedNames => segments.iter_mut().for_each(|segment| segment.is_durable = true),
            Step::Note(note) => match note.trim().split_once(' ') {
                Some(("begin", number)) => begun = number.parse().expect("a number"),
                Some(("ack", number)) => acknowledged = number.parse().expect("a number"),
                _ => ready = true,
            },
            Step::Injected => panic!("nothing was injected"),
        }
        if !ready {
            continue;
        }
        for survivors in kinds(&disk) {
            points += 1;
            if points % every != 0 {
                continue;
            }
            images += 1;
            let files = disk.each_ref().map(|file| file.image(*survivors, &mut random));
            let sealed: Vec<_> =
                segments.iter().map(|segment| segment.image(*survivors, &mut random)).collect();
            let sync = (compaction != Compaction::Archiving).then_some(sync);
            lost += usize::from(open(&files, &sealed, sync, begun) < acknowledged);
        }
    }
    assert_eq!(acknowledged, super::APPENDS, "the child did not finish");
    assert_eq!(compaction == Compaction::Sealing, segments.len() > 5, "{} sealed", segments.len());
    (lost, images)
}

/// A segment that got its name. Until the folder is synced it may still have the name before.
struct Segment {
    name: String,
    file: File,
    is_durable: bool,
}

impl Segment {
    fn image(&self, survivors: Survivors, random: &mut ChaCha8Rng) -> (&str, Option<Vec<u8>>) {
        let is_named = self.is_durable
            || match survivors {
                Survivors::None => false,
                Survivors::All => true,
                Survivors::Some | Survivors::Torn => random.next_u32().is_multiple_of(2),
            };
        let name = if is_named { self.name.as_str() } else { "next.tmp" };
        (name, self.file.image(survivors, random))
    }
}

/// Options of strace that make the compacting thread sleep after every write, so that batches are
/// appended meanwhile on any machine. The thread is identified by its many calls: every append has
/// its own thread.
fn slow_move(compaction: Compaction) -> &'static [&'static str] {
    match compaction {
        Compaction::Between | Compaction::Sealing | Compaction::Archiving => &[],
        Compaction::Meanwhile => &["-e", "inject=pwrite64:delay_exit=5000:when=20+"],
    }
}

/// Whether a batch was acknowledged while others were being moved: between writes into the database
/// or its log and their sync.
fn moved_while_appending(steps: &[Step]) -> bool {
    let mut moving = false;
    steps.iter().any(|step| {
        match step {
            Step::Write { file: 0 | 1, .. } => moving = true,
            Step::Synced { file: 0 | 1, .. } => moving = false,
            Step::Note(note) => return moving && note.starts_with("ack "),
            Step::Write { .. }
            | Step::Truncate { .. }
            | Step::Syncing { .. }
            | Step::Synced { .. }
            | Step::Remove { .. }
            | Step::Rename { .. }
            | Step::SyncedNames
            | Step::Injected => {}
        }
        false
    })
}

/// If nothing is unsynced, all images are equal.
fn kinds(disk: &[File]) -> &'static [Survivors] {
    let synced = disk.iter().all(|file| file.unsynced.is_empty());
    let all = &[Survivors::None, Survivors::All, Survivors::Some, Survivors::Torn];
    if synced { &all[..1] } else { all }
}

/// The approximate number of images that a run can give.
fn crash_points(steps: &[Step]) -> usize {
    steps.iter().filter(|step| matches!(step, Step::Write { .. } | Step::Truncate { .. })).count()
        * 4
}

/// Opens an image, checks that it is a prefix of what the child wrote, and returns its length. Without `sync` it is an
/// archive.
fn open(
    files: &[Option<Vec<u8>>],
    segments: &[(&str, Option<Vec<u8>>)],
    sync: Option<&str>,
    begun: u64,
) -> u64 {
    let directory = TempDir::in_memory();
    let folder = directory.path().join(SEGMENTS);
    std::fs::create_dir(&folder).expect("there is space");
    for (name, content) in segments {
        let content = content.as_deref().unwrap_or_default();
        std::fs::write(folder.join(name), content).expect("there is space");
    }
    for (name, content) in FILES.iter().zip(files) {
        if let Some(content) = content {
            std::fs::write(directory.path().join(name), content).expect("there is space");
        }
    }
    let length = match sync {
        Some(sync) => check(directory.path(), sync),
        None => super::archive::check(directory.path()),
    };
    assert!(length <= begun, "batch {length} was never begun");
    length
}

/// Every batch of the journal in `directory` must be the one that the child appended there.
pub(crate) fn check(directory: &Path, sync: &str) -> u64 {
    let journal = SqliteJournal::open(&directory.join(JOURNAL), options(sync)).expect("it opens");
    let mut head = Head::genesis(journal.id());
    for batch in journal.read(head).expect("it can be read") {
        let batch = batch.expect("every batch is whole");
        assert_eq!(batch, head.followed_by(Epoch(1), sample(head.sequence + 1)));
        head = batch.head();
    }
    head.sequence
}
