//! What an archive stores, and where: in a file, in a database, in memory.

use bursar_core::digest::Digest;

use super::NewBlock;
use crate::chain::Epoch;
use crate::error::JournalError;

/// What an entry is. Each family has its own runs.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum ArchiveFamily {
    /// Holds, charges and movements: kept for ever.
    Objects,
    /// Answers kept for idempotency keys: dropped when they are no longer retained.
    Answers,
}

impl ArchiveFamily {
    pub(super) const ALL: [ArchiveFamily; 2] = [ArchiveFamily::Objects, ArchiveFamily::Answers];

    /// The family that is stored as a number.
    pub(crate) fn from_number(number: i64) -> Result<ArchiveFamily, JournalError> {
        let found = ArchiveFamily::ALL.into_iter().find(|family| *family as i64 == number);
        let reason = || format!("there is no family {number}");
        found.ok_or_else(|| JournalError::storage("reading the archive", reason()))
    }
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

/// Where the filter of a run is stored.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct GroupPlace {
    /// The number of the group: that of its first run.
    pub number: u32,
    /// The bit of the run in the words of the group's rows.
    pub column: u8,
    /// How many rows the group has.
    pub cells: u32,
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
    /// Its filter; empty once a group has it.
    pub filter: Vec<u8>,
    /// The group that has its filter.
    pub group: Option<GroupPlace>,
}

/// How far an archive has come.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveMark {
    /// The position of the last record of the journal that it contains; 0 before it was built.
    pub position: u64,
    /// A batch of the journal that was stored when this was written: its number and its hash. Tells one past from
    /// another.
    pub batch: Option<(u64, Digest)>,
}

/// How many rows of a family there must be: a lost one is noticed.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct FamilyCounts {
    /// Blocks that are in no run yet.
    pub blocks: u64,
    /// Runs.
    pub runs: u64,
}

/// What is stored of an archive.
#[derive(Clone, Debug, Default)]
pub struct ArchiveContents {
    /// How far it has come.
    pub mark: ArchiveMark,
    /// The number of the next block.
    pub next_block: u32,
    /// How much of each family there is.
    pub counts: [FamilyCounts; 2],
    /// The runs with an index, oldest first.
    pub runs: Vec<SealedRun>,
}

/// Receives blocks: number, last instant, bytes.
pub type EachBlock<'a> = dyn FnMut(u32, i64, &[u8]) -> Result<(), JournalError> + 'a;

/// The tables of an archive. Blocks, runs, pages and rows are written once.
pub trait ArchiveTables: Send + Sync {
    /// Writes from now on as the owner of an epoch. A store of several servers refuses what earlier owners write.
    /// Returns whether others may have written to it before.
    fn own(&self, _epoch: Epoch) -> Result<bool, JournalError> {
        Ok(false)
    }

    /// Everything but blocks, pages and rows.
    fn contents(&self) -> Result<ArchiveContents, JournalError>;

    /// Stores blocks and the mark durably, in one step. Refuses a position before the stored one: then another server
    /// has taken over.
    fn append(&self, blocks: &[NewBlock], mark: ArchiveMark) -> Result<(), JournalError>;

    /// Stores a run with the pages of its index.
    fn seal(&self, run: &SealedRun, pages: &[(u64, Vec<u8>)]) -> Result<(), JournalError>;

    /// Stores rows of the filters of a group: their cells and bytes. Nothing refers to them yet.
    fn put_rows(&self, group: u32, rows: &[(u32, Vec<u8>)]) -> Result<(), JournalError>;

    /// Stores that the filters of runs are in a group from now on, in one step.
    fn group(&self, runs: &[(u32, GroupPlace)]) -> Result<(), JournalError>;

    /// Removes a run with its blocks, and the rows of a group that has no run left.
    fn drop_run(&self, run: &SealedRun, emptied: Option<u32>) -> Result<(), JournalError>;

    /// A block.
    fn block(&self, family: ArchiveFamily, number: u32) -> Result<Option<Vec<u8>>, JournalError>;

    /// Calls `each` with the blocks of a family from a number on, in order.
    fn each_block(
        &self,
        family: ArchiveFamily,
        from: u32,
        each: &mut EachBlock<'_>,
    ) -> Result<(), JournalError>;

    /// The page of a run's index that may have a hash.
    fn page(&self, run: u32, hash: u64) -> Result<Option<Vec<u8>>, JournalError>;

    /// Rows of filters: of each of these groups the row of a cell. In any order; missing ones are left out.
    fn rows(&self, wanted: &[(u32, u32)]) -> Result<Vec<(u32, Vec<u8>)>, JournalError>;

    /// Removes everything.
    fn clear(&self) -> Result<(), JournalError>;
}

/// How many of these blocks are of a family.
pub(crate) fn blocks_of(blocks: &[NewBlock], family: ArchiveFamily) -> u64 {
    blocks.iter().filter(|block| block.family == family).count() as u64
}

/// Refuses to go back: another server has written more.
pub(crate) fn require_advance(stored: u64, position: u64) -> Result<(), JournalError> {
    if position >= stored {
        return Ok(());
    }
    let reason =
        format!("it is at record {stored}, after {position}: another server has written to it");
    Err(JournalError::storage("writing the archive", reason))
}
