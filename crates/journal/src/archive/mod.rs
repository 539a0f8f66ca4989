//! The archive of a ledger: what it has forgotten, by name, for ever.
//!
//! A part of the store: a file beside the journal. The archiver appends records before the ledger forgets them; they
//! are looked up when a request names something that the ledger no longer has. It can be built again from the journal.
//!
//! Entries are appended in *blocks*. Consecutive blocks form *runs*; a full run gets an index, sorted by the hash of the
//! key, and a filter. So nothing that is written is written again, whatever the order of names: the cost of an entry
//! does not grow with the archive. In memory are the index of the newest run, the filters of the runs after it up to a
//! *group* of 64, and a bounded number of rows of the filters of older groups: see [`filter`]. A new name costs a probe
//! of each filter in memory, and one read of 4 kB for each group whose row is not. `docs/adr/0020-an-archive-of-runs.md`
//! and `docs/adr/0023-filters-of-old-runs-on-disk.md` have the measurements behind this form.

mod block;
mod cache;
mod copy;
mod filter;
mod memory;
mod runs;
mod sqlite;
mod tables;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

pub use block::{NewBlock, is_lost};
use cache::{RowCache, RowKey};
pub use copy::{copy_archive, fits, is_of_past};
pub use filter::HashFilter;
use filter::{FilterRow, GROUP_RUNS};
pub use memory::MemoryTables;
use runs::{ArchiveIndex, Candidates, FilterGroup, NewestRun, narrow};
pub use sqlite::SqliteTables;
pub use tables::{
    ArchiveContents, ArchiveEntry, ArchiveFamily, ArchiveMark, ArchiveTables, EachBlock,
    FamilyCounts, GroupPlace, SealedRun,
};
pub(crate) use tables::{blocks_of, require_advance};

use crate::chain::{Epoch, Head, JournalId};
use crate::error::JournalError;

/// How much is kept together, and in memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ArchiveSizes {
    /// Entries of a full run.
    pub run_entries: usize,
    /// Runs whose filters are stored together, at most 64.
    pub group_runs: usize,
    /// Rows of filters of groups that are kept in memory, of about 4 kB each.
    pub cached_rows: usize,
}

impl Default for ArchiveSizes {
    fn default() -> ArchiveSizes {
        ArchiveSizes { run_entries: 1 << 18, group_runs: GROUP_RUNS, cached_rows: 1 << 14 }
    }
}

/// Entries that are added to the index in memory while look-ups wait.
const ENTRIES_AT_ONCE: usize = 256;

/// Rows of filters that are stored in one step.
const ROWS_AT_ONCE: usize = 256;

/// The hash of a key in indexes and filters.
fn hash(key: &[u8]) -> u64 {
    let hash = blake3::hash(key);
    u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
}

fn unreadable(reason: impl Into<String>) -> JournalError {
    JournalError::storage("reading the archive", reason.into())
}

/// What the ledger has forgotten, by name.
pub struct Archive {
    tables: Box<dyn ArchiveTables>,
    index: RwLock<ArchiveIndex>,
    cache: RowCache,
    /// One at a time writes.
    writing: Mutex<()>,
    /// Whether a write failed, so that it is not known what is stored.
    is_uncertain: AtomicBool,
    /// Whether it was not compared with the journal yet: nothing is looked up.
    is_unchecked: AtomicBool,
    sizes: ArchiveSizes,
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
        let index = ArchiveIndex::load(&*tables, 0)?;
        Ok(Archive::with_index(tables, index))
    }

    /// The archive in these tables. A damaged one must be built again.
    pub(crate) fn new_or_damaged(tables: Box<dyn ArchiveTables>) -> Result<Archive, JournalError> {
        let index = match ArchiveIndex::load(&*tables, 0) {
            Err(error) if block::is_damage(&error) => ArchiveIndex::empty(0),
            loaded => loaded?,
        };
        Ok(Archive::with_index(tables, index))
    }

    fn with_index(tables: Box<dyn ArchiveTables>, index: ArchiveIndex) -> Archive {
        let index = RwLock::new(index);
        let sizes = ArchiveSizes::default();
        let (cache, writing) = (RowCache::new(sizes.cached_rows), Mutex::new(()));
        let (is_uncertain, is_unchecked) = (AtomicBool::new(false), AtomicBool::new(false));
        Archive { tables, index, cache, writing, is_uncertain, is_unchecked, sizes }
    }

    /// This archive with other sizes.
    #[must_use]
    pub fn with_sizes(self, sizes: ArchiveSizes) -> Archive {
        Archive { sizes, cache: RowCache::new(sizes.cached_rows), ..self }
    }

    /// This archive with runs of fewer entries, for tests.
    #[must_use]
    pub fn with_runs_of(self, run_entries: usize) -> Archive {
        let sizes = ArchiveSizes { run_entries, ..self.sizes };
        self.with_sizes(sizes)
    }

    /// Writes from now on as the owner of an epoch of the ledger's journal. In a store of several servers nothing can
    /// be written before, and what an earlier owner wrote is read again.
    ///
    /// # Errors
    /// The epoch is no longer the newest, or the store failed.
    pub fn own(&self, epoch: Epoch) -> Result<(), JournalError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.tables.own(epoch)? {
            return Ok(());
        }
        match self.load_again() {
            // It is built again.
            Err(error) if block::is_damage(&error) => {
                let generation = self.read().generation + 1;
                *self.write() = ArchiveIndex::empty(generation);
                Ok(())
            }
            loaded => loaded,
        }
    }

    /// The last record of the journal that it contains everything of which was forgotten; 0 if it must be built or was
    /// not compared with the journal yet.
    pub fn position(&self) -> u64 {
        self.shown(self.read().mark.position)
    }

    /// How far it has come, also before it was compared with the journal.
    pub fn mark(&self) -> ArchiveMark {
        self.read().mark
    }

    /// Says whether it is known to be of the journal's past. Until then nothing is found in it, and nothing is absent.
    pub fn set_checked(&self, is_checked: bool) {
        self.is_unchecked.store(!is_checked, Ordering::Release);
    }

    fn shown(&self, position: u64) -> u64 {
        if self.is_unchecked.load(Ordering::Acquire) { 0 } else { position }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, ArchiveIndex> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, ArchiveIndex> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what is stored, while nothing is written.
    fn load_again(&self) -> Result<(), JournalError> {
        let generation = self.read().generation + 1;
        let index = ArchiveIndex::load(&*self.tables, generation)?;
        *self.write() = index;
        self.is_uncertain.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Appends entries durably. They can be looked up when it returns.
    ///
    /// # Errors
    /// The store failed, or another server has written to it. Nothing of it counts then.
    pub fn put(&self, entries: &[ArchiveEntry], position: u64) -> Result<(), JournalError> {
        self.put_marked(entries, position, None)
    }

    /// Adds entries, and notes a batch that the journal has by now.
    pub fn put_marked(
        &self,
        entries: &[ArchiveEntry],
        position: u64,
        head: Option<Head>,
    ) -> Result<(), JournalError> {
        let mark = ArchiveMark { position, batch: head.map(|head| (head.sequence, head.hash)) };
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_uncertain.load(Ordering::Relaxed) {
            self.load_again()?;
        }
        let put = self.append(entries, mark);
        self.is_uncertain.store(put.is_err(), Ordering::Relaxed);
        put
    }

    fn append(&self, entries: &[ArchiveEntry], mark: ArchiveMark) -> Result<(), JournalError> {
        let mut next = self.read().next_block;
        let mut added: [Vec<(u64, u32)>; 2] = Default::default();
        let mut blocks = Vec::new();
        for family in ArchiveFamily::ALL {
            let own = &mut added[family as usize];
            let each = |hash, block| own.push((hash, block));
            blocks.extend(block::blocks(family, entries, &mut next, each));
        }
        self.tables.append(&blocks, mark)?;
        for (family, added) in ArchiveFamily::ALL.into_iter().zip(added) {
            // A few at a time, so that no look-up waits long. They count with the mark.
            for some in added.chunks(ENTRIES_AT_ONCE) {
                let newest = &mut self.write().families[family as usize].newest;
                some.iter().for_each(|(hash, block)| newest.add(*hash, *block));
            }
        }
        let mut index = self.write();
        for block in &blocks {
            let newest = &mut index.families[block.family as usize].newest;
            newest.newest_at = newest.newest_at.max(block.newest_at);
        }
        index.mark = mark;
        index.next_block = next;
        drop(index);
        for family in ArchiveFamily::ALL {
            self.seal_if_full(family)?;
            self.group_if_full(family)?;
        }
        Ok(())
    }

    fn seal_if_full(&self, family: ArchiveFamily) -> Result<(), JournalError> {
        let cells = HashFilter::cells_for(self.sizes.run_entries);
        let sealed = {
            let index = self.read();
            let newest = &index.families[family as usize].newest;
            let is_full = newest.entries >= self.sizes.run_entries;
            is_full.then(|| newest.sealed(family, cells)).flatten()
        };
        let Some((run, filter, sorted)) = sealed else { return Ok(()) };
        self.tables.seal(&run, &block::pages(run.number, &sorted))?;
        let mut index = self.write();
        let runs = &mut index.families[family as usize];
        let full = std::mem::replace(&mut runs.newest, NewestRun::new());
        runs.filters.push((run.number, filter));
        runs.sealed.push(SealedRun { filter: Vec::new(), ..run });
        drop(index);
        // Its memory is freed while look-ups go on.
        drop(full);
        Ok(())
    }

    /// Stores the filters of the oldest runs together, and no longer keeps them in memory.
    fn group_if_full(&self, family: ArchiveFamily) -> Result<(), JournalError> {
        let group = {
            let index = self.read();
            let Some(members) = index.families[family as usize].next_group(self.sizes.group_runs)
            else {
                return Ok(());
            };
            let (number, cells) = (members[0].0, members[0].1.cells());
            let filters: Vec<&HashFilter> = members.iter().map(|(_, filter)| filter).collect();
            let all: Vec<u32> = (0..cells).collect();
            // Others may read the index meanwhile; only this thread writes it.
            for some in all.chunks(ROWS_AT_ONCE) {
                let row =
                    |cell: &u32| (*cell, FilterRow::of(&filters, *cell).to_bytes(number, *cell));
                let rows: Vec<(u32, Vec<u8>)> = some.iter().map(row).collect();
                self.tables.put_rows(number, &rows)?;
            }
            let runs = members.iter().map(|(run, _)| Some(*run)).collect();
            FilterGroup { number, cells, runs }
        };
        let (number, cells) = (group.number, group.cells);
        let place = |column| GroupPlace { number, column: narrow(column), cells };
        let runs = group.runs.iter().flatten().enumerate();
        let runs: Vec<_> = runs.map(|(column, run)| (*run, place(column))).collect();
        self.tables.group(&runs)?;
        let filters = self.write().families[family as usize].add_group(group);
        drop(filters);
        Ok(())
    }

    /// The position of the archive if memory says that it has nothing under a key. Reads nothing.
    pub fn excludes(&self, family: ArchiveFamily, key: &[u8]) -> Option<u64> {
        let index = self.read();
        let runs = &index.families[family as usize];
        let Candidates { blocks, runs, unknown } =
            runs.candidates(hash(key), index.generation, &self.cache);
        let position = self.shown(index.mark.position);
        let is_absent = position > 0 && blocks.is_empty() && runs.is_empty() && unknown.is_empty();
        is_absent.then_some(position)
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
        self.look_up(family, key, |position| match self.shown(position) {
            0 => Err(unreadable("it is being built, or compared with the journal")),
            shown => Ok(shown),
        })
    }

    /// The newest entry under a key, also before it was compared with the journal.
    ///
    /// # Errors
    /// The archive cannot be read.
    pub fn get_unchecked(
        &self,
        family: ArchiveFamily,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, JournalError> {
        Ok(self.look_up(family, key, Ok)?.0)
    }

    fn look_up(
        &self,
        family: ArchiveFamily,
        key: &[u8],
        shown: impl FnOnce(u64) -> Result<u64, JournalError>,
    ) -> Result<(Option<Vec<u8>>, u64), JournalError> {
        let hash = hash(key);
        let (position, generation, candidates) = {
            let index = self.read();
            let runs = &index.families[family as usize];
            let candidates = runs.candidates(hash, index.generation, &self.cache);
            (shown(index.mark.position)?, index.generation, candidates)
        };
        let Candidates { blocks, mut runs, unknown } = candidates;
        for block in blocks.into_iter().rev() {
            if let Some(found) = self.find(family, None, block, key)? {
                return Ok((Some(found), position));
            }
        }
        runs.extend(self.runs_in_groups(family, &unknown, generation)?);
        // The newest first.
        runs.sort_unstable_by(|a, b| b.cmp(a));
        for run in runs {
            let Some(page) = self.tables.page(run, hash)? else {
                if self.is_dropped(family, run) {
                    continue;
                }
                return Err(unreadable(format!("a page of the index of run {run} is missing")));
            };
            for block in block::blocks_in_page(&page, run, hash)? {
                if let Some(found) = self.find(family, Some(run), block, key)? {
                    return Ok((Some(found), position));
                }
            }
        }
        // What was read may have been removed meanwhile.
        if self.read().generation != generation {
            return Err(unreadable("it was replaced during the look-up"));
        }
        Ok((None, position))
    }

    /// The runs of groups that may have a hash, by their stored rows.
    fn runs_in_groups(
        &self,
        family: ArchiveFamily,
        unknown: &[(std::sync::Arc<FilterGroup>, filter::FilterPlace)],
        generation: u64,
    ) -> Result<Vec<u32>, JournalError> {
        let mut runs = Vec::new();
        if unknown.is_empty() {
            return Ok(runs);
        }
        let wanted: Vec<(u32, u32)> =
            unknown.iter().map(|(group, place)| (group.number, place.cell)).collect();
        let rows = self.tables.rows(&wanted)?;
        for (group, place) in unknown {
            let (number, cell) = (group.number, place.cell);
            let Some((_, bytes)) = rows.iter().find(|(of, _)| *of == number) else {
                let index = self.read();
                let groups = &index.families[family as usize].groups;
                if groups.iter().any(|group| group.number == number) {
                    return Err(unreadable(format!("row {cell} of filters {number} is missing")));
                }
                // All of its runs were dropped meanwhile.
                continue;
            };
            let row = FilterRow::from_bytes(bytes, number, cell)?;
            runs.extend(group.numbers(row.runs(*place)));
            self.cache.insert(RowKey { generation, group: number, cell }, row);
        }
        Ok(runs)
    }

    /// The last entry of a block under a key. The block is of a sealed run, or of the newest.
    fn find(
        &self,
        family: ArchiveFamily,
        run: Option<u32>,
        block: u32,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, JournalError> {
        let Some(bytes) = self.tables.block(family, block)? else {
            return match run.is_some_and(|run| self.is_dropped(family, run)) {
                true => Ok(None),
                false => Err(unreadable(format!("block {block} is missing"))),
            };
        };
        let mut found = None;
        block::each_entry(&bytes, |own, value| {
            if own == key {
                found = Some(value.to_vec());
            }
        })?;
        Ok(found)
    }

    /// Whether a run was removed meanwhile.
    fn is_dropped(&self, family: ArchiveFamily, run: u32) -> bool {
        self.read().families[family as usize].sealed.iter().all(|own| own.number != run)
    }

    /// Drops runs of answers whose newest was given before an instant.
    pub fn drop_answers_before(&self, at: i64) -> Result<(), JournalError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let family = ArchiveFamily::Answers as usize;
        loop {
            let oldest = self.read().families[family].sealed.first().cloned();
            let Some(run) = oldest.filter(|run| run.newest_at < at) else { return Ok(()) };
            // Out of the index first: a look-up does not find what is being removed.
            let emptied = self.write().families[family].remove_oldest();
            self.tables.drop_run(&run, emptied)?;
        }
    }

    /// Removes everything, so that it can be built again.
    pub fn clear(&self) -> Result<(), JournalError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        {
            // Look-ups in progress return outdated results from here on.
            let mut index = self.write();
            (index.mark, index.generation) = (ArchiveMark::default(), index.generation + 1);
        }
        self.is_uncertain.store(true, Ordering::Relaxed);
        self.tables.clear()?;
        self.load_again()
    }
}
