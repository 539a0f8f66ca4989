//! The archive of a ledger: what it has forgotten, by name, for ever.
//!
//! A part of the store: a file beside the journal. The archiver appends records before the ledger forgets them; they
//! are looked up when a request names something that the ledger no longer has. It can be built again from the journal.
//!
//! Entries are appended in *blocks*. Consecutive blocks form *runs*; a full run gets an index, sorted by the hash of the
//! key, and a filter. So nothing that is written is written again, whatever the order of names: the cost of an entry
//! does not grow with the archive. The index of the newest run is in memory, and so are the filters: a new name costs a
//! probe of each filter and no read. `docs/adr/0020-an-archive-of-runs.md` has the measurements behind this form.

mod block;
mod filter;
mod memory;
mod sqlite;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError, RwLock};

use smallvec::SmallVec;

pub use block::NewBlock;
pub use filter::HashFilter;
pub use memory::MemoryTables;
pub use sqlite::SqliteTables;

use crate::chain::JournalId;
use crate::error::JournalError;

/// Entries of a full run.
const RUN_ENTRIES: usize = 1 << 20;

/// What an entry is. Each family has its own runs.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum ArchiveFamily {
    /// Holds, charges and movements: kept for ever.
    Objects,
    /// Answers kept for idempotency keys: dropped when they are no longer promised.
    Answers,
}

impl ArchiveFamily {
    const ALL: [ArchiveFamily; 2] = [ArchiveFamily::Objects, ArchiveFamily::Answers];
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveEntry {
    /// What it is.
    pub family: ArchiveFamily,
    /// Its key. A later entry with the same key replaces it.
    pub key: Vec<u8>,
    /// The record.
    pub value: Vec<u8>,
    /// When it last changed, in milliseconds.
    pub at: i64,
}

/// A run with an index.
#[derive(Clone, Debug)]
pub struct SealedRun {
    /// Its number: that of its first block.
    pub number: u32,
    /// What its entries are.
    pub family: ArchiveFamily,
    /// Its last block.
    pub last_block: u32,
    /// The instant of its newest entry.
    pub newest_at: i64,
    /// Its filter.
    pub filter: Vec<u8>,
}

/// What is stored of an archive.
#[derive(Clone, Debug, Default)]
pub struct ArchiveContents {
    /// The position of the last record of the journal that it contains; 0 before it was built.
    pub position: u64,
    /// The number of the next block.
    pub next_block: u32,
    /// The runs with an index, oldest first.
    pub runs: Vec<SealedRun>,
}

/// Receives blocks: number, family, last instant, bytes.
pub type EachBlock<'a> = dyn FnMut(u32, ArchiveFamily, i64, &[u8]) -> Result<(), JournalError> + 'a;

/// The tables of an archive. Blocks, runs and pages are written once.
pub trait ArchiveTables: Send + Sync {
    /// Everything but blocks and pages.
    fn contents(&self) -> Result<ArchiveContents, JournalError>;

    /// Stores blocks and the position durably, in one step. Refuses a position before the stored one: then another
    /// server has taken over.
    fn append(&self, blocks: &[NewBlock], position: u64) -> Result<(), JournalError>;

    /// Stores a run with the pages of its index.
    fn seal(&self, run: &SealedRun, pages: &[(u64, Vec<u8>)]) -> Result<(), JournalError>;

    /// Removes a run with its blocks.
    fn drop_run(&self, run: &SealedRun) -> Result<(), JournalError>;

    /// A block.
    fn block(&self, number: u32) -> Result<Option<Vec<u8>>, JournalError>;

    /// Calls `each` with the blocks from a number on, in order.
    fn each_block(&self, from: u32, each: &mut EachBlock<'_>) -> Result<(), JournalError>;

    /// The page of a run's index that may have a hash.
    fn page(&self, run: u32, hash: u64) -> Result<Option<Vec<u8>>, JournalError>;

    /// Removes everything.
    fn clear(&self) -> Result<(), JournalError>;
}

/// The hash of a key in indexes and filters.
fn hash(key: &[u8]) -> u64 {
    let hash = blake3::hash(key);
    u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
}

/// One run that is filled.
struct NewestRun {
    /// The blocks of each hash, in order.
    blocks: HashMap<u64, SmallVec<[u32; 1]>>,
    entries: usize,
    first_block: Option<u32>,
    last_block: u32,
    newest_at: i64,
}

impl NewestRun {
    fn new() -> NewestRun {
        let (blocks, newest_at) = (HashMap::new(), i64::MIN);
        NewestRun { blocks, entries: 0, first_block: None, last_block: 0, newest_at }
    }

    fn add(&mut self, hash: u64, block: u32) {
        let blocks = self.blocks.entry(hash).or_default();
        if blocks.last() != Some(&block) {
            blocks.push(block);
        }
        self.entries += 1;
        self.first_block.get_or_insert(block);
        self.last_block = block;
    }
}

struct Runs {
    newest: NewestRun,
    /// Oldest first, with their filters.
    sealed: Vec<(SealedRun, HashFilter)>,
}

struct ArchiveIndex {
    position: u64,
    next_block: u32,
    families: [Runs; 2],
}

/// What the ledger has forgotten, by name.
pub struct Archive {
    tables: Box<dyn ArchiveTables>,
    index: RwLock<ArchiveIndex>,
    /// One at a time writes.
    writing: Mutex<()>,
    run_entries: usize,
}

impl Archive {
    /// The archive beside a SQLite journal. A file of another journal is refused.
    pub fn open(path: &Path, journal: JournalId) -> Result<Archive, JournalError> {
        Archive::new(Box::new(SqliteTables::open(path, journal)?))
    }

    /// An archive in memory, for tests.
    pub fn in_memory() -> Archive {
        Archive::new(Box::new(MemoryTables::default())).expect("memory cannot fail")
    }

    /// The archive in these tables.
    pub fn new(tables: Box<dyn ArchiveTables>) -> Result<Archive, JournalError> {
        let index = RwLock::new(load(&*tables)?);
        Ok(Archive { tables, index, writing: Mutex::new(()), run_entries: RUN_ENTRIES })
    }

    /// The same with runs of fewer entries, for tests.
    #[must_use]
    pub fn with_runs_of(self, run_entries: usize) -> Archive {
        Archive { run_entries, ..self }
    }

    /// The last record of the journal that it contains everything of which was forgotten; 0 if it must be built.
    pub fn position(&self) -> u64 {
        self.read().position
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, ArchiveIndex> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, ArchiveIndex> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends entries durably. They can be looked up when it returns.
    ///
    /// # Errors
    /// The store failed, or another server has written to it. Nothing of it counts then.
    pub fn put(&self, entries: &[ArchiveEntry], position: u64) -> Result<(), JournalError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = self.read().next_block;
        let mut added: [Vec<(u64, u32)>; 2] = Default::default();
        let mut blocks = Vec::new();
        for family in ArchiveFamily::ALL {
            let own = &mut added[family as usize];
            let each = |hash, block| own.push((hash, block));
            blocks.extend(block::blocks(family, entries, &mut next, each));
        }
        self.tables.append(&blocks, position)?;
        let mut index = self.write();
        for (family, added) in ArchiveFamily::ALL.into_iter().zip(added) {
            let newest = &mut index.families[family as usize].newest;
            added.into_iter().for_each(|(hash, block)| newest.add(hash, block));
        }
        for block in &blocks {
            let newest = &mut index.families[block.family as usize].newest;
            newest.newest_at = newest.newest_at.max(block.newest_at);
        }
        index.position = index.position.max(position);
        index.next_block = next;
        drop(index);
        ArchiveFamily::ALL.into_iter().try_for_each(|family| self.seal_if_full(family))
    }

    fn seal_if_full(&self, family: ArchiveFamily) -> Result<(), JournalError> {
        let (run, filter, pages) = {
            let index = self.read();
            let newest = &index.families[family as usize].newest;
            let Some(first) = newest.first_block.filter(|_| newest.entries >= self.run_entries)
            else {
                return Ok(());
            };
            let blocks = newest.blocks.iter();
            let mut sorted: Vec<(u64, u32)> = blocks
                .flat_map(|(hash, blocks)| blocks.iter().map(|block| (*hash, *block)))
                .collect();
            sorted.sort_unstable();
            let filter = HashFilter::of(sorted.iter().map(|(hash, _)| *hash));
            let run = SealedRun {
                number: first,
                family,
                last_block: newest.last_block,
                newest_at: newest.newest_at,
                filter: filter.to_bytes(),
            };
            (run, filter, block::pages(&sorted))
        };
        self.tables.seal(&run, &pages)?;
        let run = SealedRun { filter: Vec::new(), ..run };
        let mut index = self.write();
        let runs = &mut index.families[family as usize];
        runs.newest = NewestRun::new();
        runs.sealed.push((run, filter));
        Ok(())
    }

    /// The position of the archive if it certainly has nothing under a key. Reads nothing.
    pub fn excludes(&self, family: ArchiveFamily, key: &[u8]) -> Option<u64> {
        let (hash, index) = (hash(key), self.read());
        let runs = &index.families[family as usize];
        let may_have = index.position == 0
            || runs.newest.blocks.contains_key(&hash)
            || runs.sealed.iter().any(|(_, filter)| filter.may_contain(hash));
        (!may_have).then_some(index.position)
    }

    /// The newest entry under a key, and the position of the archive: all that was forgotten up to it was seen.
    ///
    /// # Errors
    /// The archive cannot be read, or must be built first.
    pub fn get(
        &self,
        family: ArchiveFamily,
        key: &[u8],
    ) -> Result<(Option<Vec<u8>>, u64), JournalError> {
        let hash = hash(key);
        let (position, newest, runs) = {
            let index = self.read();
            let runs = &index.families[family as usize];
            let newest = runs.newest.blocks.get(&hash).cloned().unwrap_or_default();
            let may_have = runs.sealed.iter().rev().filter(|(_, filter)| filter.may_contain(hash));
            let sealed: Vec<u32> = may_have.map(|(run, _)| run.number).collect();
            (index.position, newest, sealed)
        };
        if position == 0 {
            return Err(JournalError::storage("reading the archive", "it is being built"));
        }
        for block in newest.into_iter().rev() {
            if let Some(found) = self.find(block, key)? {
                return Ok((Some(found), position));
            }
        }
        for run in runs {
            let Some(page) = self.tables.page(run, hash)? else { continue };
            for block in block::blocks_in_page(&page, hash)? {
                if let Some(found) = self.find(block, key)? {
                    return Ok((Some(found), position));
                }
            }
        }
        Ok((None, position))
    }

    /// The last entry of a block under a key.
    fn find(&self, block: u32, key: &[u8]) -> Result<Option<Vec<u8>>, JournalError> {
        let Some(bytes) = self.tables.block(block)? else {
            let reason = format!("block {block} is missing");
            return Err(JournalError::storage("reading the archive", reason));
        };
        let mut found = None;
        block::each_entry(&bytes, |own, value| {
            if own == key {
                found = Some(value.to_vec());
            }
        })?;
        Ok(found)
    }

    /// Drops runs of answers whose newest was given before an instant.
    pub fn drop_answers_before(&self, at: i64) -> Result<(), JournalError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let family = ArchiveFamily::Answers as usize;
        loop {
            let oldest = self.read().families[family].sealed.first().map(|(run, _)| run.clone());
            let Some(run) = oldest.filter(|run| run.newest_at < at) else { return Ok(()) };
            // Out of the index first: a look-up does not find what is being removed.
            self.write().families[family].sealed.remove(0);
            self.tables.drop_run(&run)?;
        }
    }

    /// Removes everything, so that it can be built again.
    pub fn clear(&self) -> Result<(), JournalError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.tables.clear()?;
        *self.write() = load(&*self.tables)?;
        Ok(())
    }
}

/// Reads filters, and the blocks that no run has.
fn load(tables: &dyn ArchiveTables) -> Result<ArchiveIndex, JournalError> {
    let ArchiveContents { position, next_block, runs } = tables.contents()?;
    let mut families =
        ArchiveFamily::ALL.map(|_| Runs { newest: NewestRun::new(), sealed: Vec::new() });
    for run in runs {
        let filter = HashFilter::from_bytes(&run.filter).ok_or_else(|| {
            let reason = format!("the filter of run {} is damaged", run.number);
            JournalError::storage("opening the archive", reason)
        })?;
        let run = SealedRun { filter: Vec::new(), ..run };
        families[run.family as usize].sealed.push((run, filter));
    }
    let sealed_to = |runs: &Runs| runs.sealed.last().map(|(run, _)| run.last_block);
    let sealed = [sealed_to(&families[0]), sealed_to(&families[1])];
    let from = sealed.iter().map(|last| last.map_or(0, |last| last + 1)).min().unwrap_or(0);
    tables.each_block(from, &mut |number, family, newest_at, bytes| {
        if sealed[family as usize].is_some_and(|last| number <= last) {
            return Ok(());
        }
        let newest = &mut families[family as usize].newest;
        newest.newest_at = newest.newest_at.max(newest_at);
        block::each_entry(bytes, |key, _| newest.add(hash(key), number))
    })?;
    Ok(ArchiveIndex { position, next_block, families })
}

/// Refuses to go back: another server has written more.
fn require_advance(stored: u64, position: u64) -> Result<(), JournalError> {
    if position >= stored {
        return Ok(());
    }
    let reason =
        format!("it is at record {stored}, after {position}: another server has written to it");
    Err(JournalError::storage("writing the archive", reason))
}
