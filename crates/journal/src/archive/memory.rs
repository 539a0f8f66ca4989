//! The tables of an archive in memory, for tests and simulations.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{ArchiveContents, ArchiveTables, EachBlock, NewBlock, SealedRun};
use crate::error::JournalError;

#[derive(Default)]
struct TablesInMemory {
    contents: ArchiveContents,
    blocks: BTreeMap<u32, NewBlock>,
    pages: BTreeMap<(u32, u64), Vec<u8>>,
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

    fn append(&self, blocks: &[NewBlock], position: u64) -> Result<(), JournalError> {
        let mut tables = self.tables();
        super::require_advance(tables.contents.position, position)?;
        tables.contents.position = position;
        for block in blocks {
            tables.contents.next_block = block.number + 1;
            tables.blocks.insert(block.number, block.clone());
        }
        Ok(())
    }

    fn seal(&self, run: &SealedRun, pages: &[(u64, Vec<u8>)]) -> Result<(), JournalError> {
        let mut tables = self.tables();
        tables.contents.runs.push(run.clone());
        let pages = pages.iter().map(|(first, page)| ((run.number, *first), page.clone()));
        tables.pages.extend(pages);
        Ok(())
    }

    fn drop_run(&self, run: &SealedRun) -> Result<(), JournalError> {
        let mut tables = self.tables();
        tables.contents.runs.retain(|other| other.number != run.number);
        tables.pages.retain(|(of, _), _| *of != run.number);
        let own = run.number..=run.last_block;
        tables.blocks.retain(|number, block| block.family != run.family || !own.contains(number));
        Ok(())
    }

    fn block(&self, number: u32) -> Result<Option<Vec<u8>>, JournalError> {
        Ok(self.tables().blocks.get(&number).map(|block| block.bytes.clone()))
    }

    fn each_block(&self, from: u32, each: &mut EachBlock<'_>) -> Result<(), JournalError> {
        let tables = self.tables();
        let mut blocks = tables.blocks.range(from..).map(|(_, block)| block);
        blocks.try_for_each(|block| each(block.number, block.family, block.newest_at, &block.bytes))
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
