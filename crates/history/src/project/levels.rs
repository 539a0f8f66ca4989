//! What was free in each bucket, and owed by each account, from which instant on: so that a balance
//! of the past is looked up, not computed from everything before it.

use std::collections::BTreeMap;

use bursar_core::ledger::event::Piece;
use bursar_core::time::Timestamp;

use super::History;
use crate::database::{Database, Value};
use crate::error::HistoryError;

/// Levels that changed in this transaction; the last one of each instant counts.
#[derive(Default)]
pub(super) struct Levels {
    buckets: BTreeMap<(u32, i64), i128>,
    uncollected: BTreeMap<(u32, i64), i128>,
}

impl<D: Database> History<D> {
    /// Changes what is free in a bucket.
    pub(super) fn shift(
        &mut self,
        at: Timestamp,
        bucket: u32,
        change: i128,
    ) -> Result<(), HistoryError> {
        if change == 0 {
            return Ok(());
        }
        let row = self.bucket(bucket)?;
        row.free += change;
        row.dirty = true;
        let free = row.free;
        if free < 0 {
            return Err(HistoryError::inconsistent(format!("bucket {bucket} went below zero")));
        }
        self.cache.levels.buckets.insert((bucket, at.millis()), free);
        Ok(())
    }

    /// Adds units to what is free in their buckets, or takes them away.
    pub(super) fn shift_pieces(
        &mut self,
        at: Timestamp,
        pieces: &[Piece],
        sign: i128,
    ) -> Result<(), HistoryError> {
        pieces.iter().try_for_each(|piece| {
            self.shift(at, piece.bucket.0, sign * i128::from(piece.span.len()))
        })
    }

    /// Notes what an account owes now.
    pub(super) fn note_uncollected(
        &mut self,
        at: Timestamp,
        account: u32,
    ) -> Result<(), HistoryError> {
        let uncollected = self.account(account)?.uncollected;
        self.cache.levels.uncollected.insert((account, at.millis()), uncollected);
        Ok(())
    }

    /// Writes the levels that changed.
    pub(super) fn flush_levels(&mut self) -> Result<(), HistoryError> {
        let Levels { buckets, uncollected } = std::mem::take(&mut self.cache.levels);
        let rows = |levels: BTreeMap<(u32, i64), i128>| -> Vec<[Value; 3]> {
            let levels = levels.into_iter();
            levels.map(|((number, at), level)| [number.into(), at.into(), level.into()]).collect()
        };
        self.database.execute_each(
            "INSERT INTO bucket_levels VALUES (?1, ?2, ?3)
             ON CONFLICT (bucket, at) DO UPDATE SET free = excluded.free",
            &rows(buckets),
        )?;
        self.database.execute_each(
            "INSERT INTO uncollected_levels VALUES (?1, ?2, ?3)
             ON CONFLICT (account, at) DO UPDATE SET uncollected = excluded.uncollected",
            &rows(uncollected),
        )
    }
}
