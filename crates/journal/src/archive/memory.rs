//! The tables of an archive in memory, for tests and simulations.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::tables::{blocks_of, require_advance};
use super::{
    ArchiveContents, ArchiveFamily, ArchiveMark, ArchiveTables, EachBlock, GroupPlace, NewBlock,
    SealedRun,
};
use crate::error::JournalError;

#[derive(Default)]
struct TablesInMemory {
    contents: ArchiveContents,
    blocks: BTreeMap<u32, NewBlock>,
    pages: BTreeMap<(u32, u64), Vec<u8>>,
    rows: BTreeMap<(u32, u32), Vec<u8>>,
}

/// TablesInMemory in memory.
#[derive(Default)]
pub struct MemoryTables(Mutex<TablesInMemory>);

impl MemoryTables {
    fn tables(&self) -> MutexGuard<'_, TablesInMemory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ArchiveTables for MemoryTables {
    fn contents(&self) -> Result<ArchiveContents, JournalError> {
        Ok(self.tables().contents.clone())
    }

    fn append(&self, blocks: &[NewBlock], mark: ArchiveMark) -> Result<(), JournalError> {
        let mut tables = self.tables();
        require_advance(tables.contents.mark.position, mark.position)?;
        tables.contents.mark = mark;
        for family in ArchiveFamily::ALL {
            tables.contents.counts[family as usize].blocks += blocks_of(blocks, family);
        }
        for block in blocks {
            tables.contents.next_block = block.number + 1;
            tables.blocks.insert(block.number, block.clone());
        }
        Ok(())
    }

    fn seal(&self, run: &SealedRun, pages: &[(u64, Vec<u8>)]) -> Result<(), JournalError> {
        let mut tables = self.tables();
        tables.contents.runs.push(run.clone());
        let counts = &mut tables.contents.counts[run.family as usize];
        (counts.blocks, counts.runs) = (0, counts.runs + 1);
        let pages = pages.iter().map(|(first, page)| ((run.number, *first), page.clone()));
        tables.pages.extend(pages);
        Ok(())
    }

    fn put_rows(&self, group: u32, rows: &[(u32, Vec<u8>)]) -> Result<(), JournalError> {
        let rows = rows.iter().map(|(cell, row)| ((group, *cell), row.clone()));
        self.tables().rows.extend(rows);
        Ok(())
    }

    fn group(&self, runs: &[(u32, GroupPlace)]) -> Result<(), JournalError> {
        for run in &mut self.tables().contents.runs {
            if let Some((_, place)) = runs.iter().find(|(number, _)| *number == run.number) {
                (run.filter, run.group) = (Vec::new(), Some(*place));
            }
        }
        Ok(())
    }

    fn drop_run(&self, run: &SealedRun, emptied: Option<u32>) -> Result<(), JournalError> {
        let mut tables = self.tables();
        tables.contents.counts[run.family as usize].runs -= 1;
        tables.contents.runs.retain(|other| other.number != run.number);
        tables.pages.retain(|(of, _), _| *of != run.number);
        let own = run.number..=run.last_block;
        tables.blocks.retain(|number, block| block.family != run.family || !own.contains(number));
        tables.rows.retain(|(group, _), _| Some(*group) != emptied);
        Ok(())
    }

    fn block(&self, family: ArchiveFamily, number: u32) -> Result<Option<Vec<u8>>, JournalError> {
        let tables = self.tables();
        let block = tables.blocks.get(&number).filter(|block| block.family == family);
        Ok(block.map(|block| block.bytes.clone()))
    }

    fn each_block(
        &self,
        family: ArchiveFamily,
        from: u32,
        each: &mut EachBlock<'_>,
    ) -> Result<(), JournalError> {
        let tables = self.tables();
        let blocks = tables.blocks.range(from..).map(|(_, block)| block);
        let mut own = blocks.filter(|block| block.family == family);
        own.try_for_each(|block| each(block.number, block.newest_at, &block.bytes))
    }

    fn rows(&self, wanted: &[(u32, u32)]) -> Result<Vec<(u32, Vec<u8>)>, JournalError> {
        let tables = self.tables();
        let row = |place: &(u32, u32)| Some((place.0, tables.rows.get(place)?.clone()));
        Ok(wanted.iter().filter_map(row).collect())
    }

    fn page(&self, run: u32, hash: u64) -> Result<Option<Vec<u8>>, JournalError> {
        let tables = self.tables();
        let page = tables.pages.range((run, 0)..=(run, hash)).next_back();
        Ok(page.map(|(_, page)| page.clone()))
    }

    fn clear(&self) -> Result<(), JournalError> {
        *self.tables() = TablesInMemory::default();
        Ok(())
    }
}
