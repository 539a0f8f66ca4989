//! The in-memory index of an archive's runs.

use std::collections::HashMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::cache::{RowCache, RowKey};
use super::filter::{FilterPlace, GROUP_RUNS, HashFilter};
use super::{
    ArchiveContents, ArchiveFamily, ArchiveMark, ArchiveTables, FamilyCounts, GroupPlace,
    SealedRun, block,
};
use crate::error::JournalError;

/// Hashes with their blocks, sorted.
pub(super) type SortedIndex = Vec<(u64, u32)>;

/// The run that is filled.
pub(super) struct NewestRun {
    /// The blocks of each hash, in order.
    pub(super) blocks: HashMap<u64, SmallVec<[u32; 1]>>,
    pub(super) entries: usize,
    first_block: Option<u32>,
    last_block: u32,
    pub(super) newest_at: i64,
}

impl NewestRun {
    pub(super) fn new() -> NewestRun {
        let (blocks, newest_at) = (HashMap::new(), i64::MIN);
        NewestRun { blocks, entries: 0, first_block: None, last_block: 0, newest_at }
    }

    pub(super) fn add(&mut self, hash: u64, block: u32) {
        let blocks = self.blocks.entry(hash).or_default();
        if blocks.last() != Some(&block) {
            blocks.push(block);
        }
        self.entries += 1;
        self.first_block.get_or_insert(block);
        self.last_block = block;
    }

    /// The run with its filter of `cells`, and its index, sorted. `None` if it has no entry.
    pub(super) fn sealed(
        &self,
        family: ArchiveFamily,
        cells: u32,
    ) -> Option<(SealedRun, HashFilter, SortedIndex)> {
        let blocks = self.blocks.iter();
        let mut sorted: Vec<(u64, u32)> =
            blocks.flat_map(|(hash, blocks)| blocks.iter().map(|block| (*hash, *block))).collect();
        sorted.sort_unstable();
        let filter = HashFilter::of(self.blocks.keys().copied(), cells);
        let run = SealedRun {
            number: self.first_block?,
            family,
            last_block: self.last_block,
            newest_at: self.newest_at,
            filter: filter.to_bytes(),
            group: None,
        };
        Some((run, filter, sorted))
    }
}

/// Runs whose filters are stored together.
pub(super) struct FilterGroup {
    pub(super) number: u32,
    pub(super) cells: u32,
    /// The numbers of its runs by column; `None` if a run was dropped.
    pub(super) runs: Vec<Option<u32>>,
}

impl FilterGroup {
    /// The numbers of the runs in a set of columns.
    pub(super) fn numbers(&self, columns: u64) -> impl Iterator<Item = u32> {
        let runs = self.runs.iter().enumerate();
        runs.filter_map(move |(column, run)| run.filter(|_| columns >> column & 1 == 1))
    }
}

/// The runs of one family.
pub(super) struct Runs {
    pub(super) newest: NewestRun,
    /// Oldest first, without their filters.
    pub(super) sealed: Vec<SealedRun>,
    /// The filters of the newest runs, oldest first: those that are in no group yet.
    pub(super) filters: Vec<(u32, HashFilter)>,
    pub(super) groups: Vec<Arc<FilterGroup>>,
}

/// What must be looked at for a hash.
pub(super) struct Candidates {
    /// Blocks of the newest run, in order.
    pub(super) blocks: SmallVec<[u32; 1]>,
    /// Runs that may have it.
    pub(super) runs: Vec<u32>,
    /// Groups whose rows are not in memory.
    pub(super) unknown: Vec<(Arc<FilterGroup>, FilterPlace)>,
}

impl Runs {
    fn new() -> Runs {
        let (sealed, filters, groups) = Default::default();
        Runs { newest: NewestRun::new(), sealed, filters, groups }
    }

    /// The runs and blocks that may have a hash, by what is in memory.
    pub(super) fn candidates(&self, hash: u64, generation: u64, cache: &RowCache) -> Candidates {
        let blocks = self.newest.blocks.get(&hash).cloned().unwrap_or_default();
        let may_have = self.filters.iter().filter(|(_, filter)| filter.may_contain(hash));
        let mut found =
            Candidates { blocks, runs: may_have.map(|(run, _)| *run).collect(), unknown: vec![] };
        for group in &self.groups {
            let place = FilterPlace::of(hash, group.cells);
            let key = RowKey { generation, group: group.number, cell: place.cell };
            match cache.runs(key, place) {
                Some(columns) => found.runs.extend(group.numbers(columns)),
                None => found.unknown.push((Arc::clone(group), place)),
            }
        }
        found
    }

    /// The oldest runs whose filters have equally many cells, if they make a group.
    pub(super) fn next_group(&self, group_runs: usize) -> Option<&[(u32, HashFilter)]> {
        let cells = self.filters.first()?.1.cells();
        let same = self.filters.iter().take_while(|(_, filter)| filter.cells() == cells).count();
        let members = same.min(group_runs.clamp(1, GROUP_RUNS));
        let is_full = members == group_runs || same < self.filters.len();
        is_full.then(|| &self.filters[..members])
    }

    /// Its oldest runs are in a group now. Returns their filters, which memory no longer needs.
    pub(super) fn add_group(&mut self, group: FilterGroup) -> Vec<(u32, HashFilter)> {
        let members = group.runs.len();
        let filters = self.filters.drain(..members).collect();
        for run in &mut self.sealed {
            let column = group.runs.iter().position(|number| *number == Some(run.number));
            if let Some(column) = column {
                run.group = Some(GroupPlace {
                    number: group.number,
                    column: narrow(column),
                    cells: group.cells,
                });
            }
        }
        self.groups.push(Arc::new(group));
        filters
    }

    /// Takes the oldest run out. Returns the group that has no run left then.
    pub(super) fn remove_oldest(&mut self) -> Option<u32> {
        let run = self.sealed.remove(0);
        self.filters.retain(|(number, _)| *number != run.number);
        let place = run.group?;
        let at = self.groups.iter().position(|group| group.number == place.number)?;
        let group = &self.groups[at];
        let runs: Vec<_> =
            group.runs.iter().map(|number| number.filter(|number| *number != run.number)).collect();
        if runs.iter().all(Option::is_none) {
            self.groups.remove(at);
            return Some(place.number);
        }
        self.groups[at] = Arc::new(FilterGroup { number: group.number, cells: group.cells, runs });
        None
    }

    fn load(&mut self, run: SealedRun) -> Result<(), JournalError> {
        match run.group {
            None => self.filters.push((run.number, HashFilter::from_bytes(&run.filter)?)),
            Some(GroupPlace { number, column, cells }) => {
                let mut runs = match self.groups.pop_if(|group| group.number == number) {
                    Some(group) => group.runs.clone(),
                    None => Vec::new(),
                };
                let column = usize::from(column);
                if column < runs.len() || column >= GROUP_RUNS {
                    return Err(block::damaged("its list of runs", "a column is used twice"));
                }
                runs.resize(column, None);
                runs.push(Some(run.number));
                self.groups.push(Arc::new(FilterGroup { number, cells, runs }));
            }
        }
        self.sealed.push(SealedRun { filter: Vec::new(), ..run });
        Ok(())
    }
}

pub(super) fn narrow(column: usize) -> u8 {
    u8::try_from(column).expect("a group has at most 64 runs")
}

/// What is in memory of an archive.
pub(super) struct ArchiveIndex {
    pub(super) mark: ArchiveMark,
    pub(super) next_block: u32,
    /// Rises when the content is replaced.
    pub(super) generation: u64,
    pub(super) families: [Runs; 2],
}

impl ArchiveIndex {
    /// The index of an archive that must be built.
    pub(super) fn empty(generation: u64) -> ArchiveIndex {
        let (mark, families) = (ArchiveMark::default(), ArchiveFamily::ALL.map(|_| Runs::new()));
        ArchiveIndex { mark, next_block: 0, generation, families }
    }

    /// Reads the filters that are in no group, and the blocks that are in no run.
    pub(super) fn load(
        tables: &dyn ArchiveTables,
        generation: u64,
    ) -> Result<ArchiveIndex, JournalError> {
        let ArchiveContents { mark, next_block, counts, runs } = tables.contents()?;
        let mut families = ArchiveFamily::ALL.map(|_| Runs::new());
        for run in runs {
            families[run.family as usize].load(run)?;
        }
        for family in ArchiveFamily::ALL {
            let Runs { newest, sealed, .. } = &mut families[family as usize];
            let from = sealed.last().map_or(0, |run| run.last_block + 1);
            let mut blocks = 0;
            tables.each_block(family, from, &mut |number, newest_at, bytes| {
                blocks += 1;
                newest.newest_at = newest.newest_at.max(newest_at);
                block::each_entry(bytes, |key, _| newest.add(super::hash(key), number))
            })?;
            let FamilyCounts { blocks: stored, runs } = counts[family as usize];
            // There may be more: what was being removed when the process ended.
            if blocks < stored || (sealed.len() as u64) < runs {
                return Err(block::damaged("its list of blocks and runs", "some are missing"));
            }
        }
        Ok(ArchiveIndex { mark, next_block, generation, families })
    }
}
