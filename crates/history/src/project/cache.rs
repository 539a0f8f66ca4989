//! Rows that are used often while records are applied. They are kept in memory and written once for
//! many records.
//!
//! The written content does not depend on how records are grouped, except for the division of lists
//! and blocks.

use std::collections::hash_map::Entry;
use std::ops::Range;

use bursar_core::time::Timestamp;
use rustc_hash::FxHashMap;

use super::accounts::AccountRow;
use super::levels::Levels;
use super::live::LiveHold;
use super::spend::Spend;
use super::usage::Usage;
use super::{History, no_progress};
use crate::blocks::{BlocksOf, NewBlocks};
use crate::database::{Columns, Database};
use crate::error::HistoryError;
use crate::levels::level_at;
use crate::lists::Added;

/// The maximum number of rows kept between transactions.
const MAX_KEPT: usize = 200_000;

pub(super) struct Cache {
    pub(super) progress: Progress,
    /// The last record that is written completely.
    pub(super) written: u64,
    pub(super) accounts: Kept<AccountRow>,
    buckets: Kept<BucketRow>,
    pub(super) holds: Kept<LiveHold>,
    pub(super) lists: Added,
    pub(super) decisions: NewBlocks<6>,
    pub(super) entries: NewBlocks<11>,
    /// Usage to add to past hours of accounts.
    pub(super) usage: FxHashMap<(i64, u32), Usage>,
    pub(super) spend: Spend,
    pub(super) levels: Levels,
}

impl Default for Cache {
    fn default() -> Cache {
        Cache {
            progress: Progress::default(),
            written: 0,
            accounts: Kept::default(),
            buckets: Kept::default(),
            holds: Kept::default(),
            lists: Added::default(),
            decisions: NewBlocks::new(BlocksOf::Decisions),
            entries: NewBlocks::new(BlocksOf::Entries),
            usage: FxHashMap::default(),
            spend: Spend::default(),
            levels: Levels::default(),
        }
    }
}

/// Rows by number, and the numbers of those accessed since the last write. The cost of a write
/// depends on the changes, not on the number of kept rows.
pub(super) struct Kept<T> {
    rows: FxHashMap<u32, Slot<T>>,
    /// Each number once, in order of access.
    touched: Vec<u32>,
}

struct Slot<T> {
    row: T,
    /// Whether its number is in `touched`.
    touched: bool,
}

impl<T> Default for Kept<T> {
    fn default() -> Kept<T> {
        Kept { rows: FxHashMap::default(), touched: Vec::new() }
    }
}

impl<T> Kept<T> {
    pub(super) fn insert(&mut self, number: u32, row: T) {
        let before = self.rows.insert(number, Slot { row, touched: true });
        if !before.is_some_and(|before| before.touched) {
            self.touched.push(number);
        }
    }

    /// A row to read or change. Loads it if it is not kept.
    pub(super) fn touch(
        &mut self,
        number: u32,
        load: impl FnOnce() -> Result<T, HistoryError>,
    ) -> Result<&mut T, HistoryError> {
        let slot = match self.rows.entry(number) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(Slot { row: load()?, touched: false }),
        };
        if !std::mem::replace(&mut slot.touched, true) {
            self.touched.push(number);
        }
        Ok(&mut slot.row)
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.rows.get_mut(&number).map(|slot| &mut slot.row)
    }

    pub(super) fn remove(&mut self, number: u32) -> Option<T> {
        self.rows.remove(&number).map(|slot| slot.row)
    }

    /// The rows accessed since the last call, in order of their numbers.
    pub(super) fn take_touched(&mut self) -> Vec<u32> {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        for number in &touched {
            if let Some(slot) = self.rows.get_mut(number) {
                slot.touched = false;
            }
        }
        touched
    }

    /// Drops all rows. They must be written before.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.touched.clear();
    }

    /// Drops all rows if there are too many.
    fn trim(&mut self) {
        if self.rows.len() > MAX_KEPT {
            self.clear();
        }
    }
}

#[derive(Copy, Clone, Default)]
pub(super) struct Progress {
    pub(super) position: u64,
    pub(super) at: Timestamp,
    pub(super) entries: i64,
    pub(super) buckets: u32,
    pub(super) holds: i64,
}

/// A grant and its units on the line of its bucket. They never change.
#[derive(Clone)]
pub(super) struct GrantUnits {
    pub(super) grant: u32,
    pub(super) units: Range<i128>,
}

impl GrantUnits {
    /// Whether the grant owns all these units.
    pub(super) fn owns(&self, start: u64, end: u64) -> bool {
        self.units.start <= start.into() && self.units.end >= end.into()
    }
}

pub(super) struct BucketRow {
    pub(super) account: u32,
    pub(super) expired: bool,
    pub(super) grants: u32,
    pub(super) length: i128,
    pub(super) free: i128,
    /// The grant whose units were looked up last.
    pub(super) known: Option<GrantUnits>,
    pub(super) dirty: bool,
}

impl BucketRow {
    fn load(database: &impl Database, number: u32) -> Result<BucketRow, HistoryError> {
        let rows = database.query(
            "SELECT account, expired, grants, length, at, levels FROM buckets
             LEFT JOIN bucket_levels ON bucket = number
             WHERE number = ?1 ORDER BY at DESC LIMIT 1",
            &[number.into()],
        )?;
        let missing = || HistoryError::inconsistent(format!("there is no bucket {number}"));
        let mut row = Columns::of(rows.into_iter().next().ok_or_else(missing)?);
        Ok(BucketRow {
            account: row.number()?,
            expired: row.integer()? != 0,
            grants: row.number()?,
            length: row.sum()?,
            free: match (row.maybe_integer()?, row.maybe_bytes()?) {
                (Some(first), Some(levels)) => level_at(first, &levels, i64::MAX)?,
                _ => 0,
            },
            known: None,
            dirty: false,
        })
    }
}

impl Cache {
    /// Drops written rows if there are too many.
    pub(super) fn trim(&mut self) {
        self.accounts.trim();
        self.buckets.trim();
        self.holds.trim();
    }

    pub(super) fn insert_bucket(&mut self, number: u32, row: BucketRow) {
        self.buckets.insert(number, row);
    }

    pub(super) fn insert_hold(&mut self, number: u32, hold: LiveHold) {
        self.holds.insert(number, hold);
    }
}

impl<D: Database> History<D> {
    pub(super) fn load_progress(&mut self) -> Result<(), HistoryError> {
        let rows = self.database.query(
            "SELECT position, at, entries, buckets, holds FROM progress WHERE only = 1",
            &[],
        )?;
        let mut row = Columns::of(rows.into_iter().next().ok_or_else(no_progress)?);
        self.cache.progress = Progress {
            position: row.integer()?.cast_unsigned(),
            at: Timestamp::from_millis(row.integer()?),
            entries: row.integer()?,
            buckets: row.number()?,
            holds: row.integer()?,
        };
        self.cache.written = self.cache.progress.position;
        Ok(())
    }

    pub(super) fn bucket(&mut self, number: u32) -> Result<&mut BucketRow, HistoryError> {
        self.cache.buckets.touch(number, || BucketRow::load(&self.database, number))
    }

    /// Writes all changes.
    pub(super) fn flush(&mut self) -> Result<(), HistoryError> {
        self.flush_accounts()?;
        let database = &self.database;
        for number in self.cache.buckets.take_touched() {
            let row = self.cache.buckets.get_mut(number).filter(|row| row.dirty);
            let Some(row) = row else { continue };
            database.execute(
                "UPDATE buckets SET expired = ?2, grants = ?3, length = ?4 WHERE number = ?1",
                &[
                    number.into(),
                    i64::from(row.expired).into(),
                    row.grants.into(),
                    row.length.into(),
                ],
            )?;
            row.dirty = false;
        }
        self.cache.decisions.flush(database)?;
        self.cache.entries.flush(database)?;
        self.cache.lists.flush(database)?;
        self.flush_levels()?;
        self.flush_holds()?;
        self.flush_usage()?;
        self.flush_spend()?;
        let progress = self.cache.progress;
        self.cache.written = progress.position;
        self.database.execute(
            "UPDATE progress SET position = ?1, at = ?2, entries = ?3, buckets = ?4, holds = ?5
             WHERE only = 1",
            &[
                progress.position.cast_signed().into(),
                progress.at.millis().into(),
                progress.entries.into(),
                progress.buckets.into(),
                progress.holds.into(),
            ],
        )
    }
}
