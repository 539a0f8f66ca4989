//! What was free in each bucket, and owed by each account, from which instant on: so that a balance
//! of the past is looked up, not computed from everything before it.

use bursar_core::ledger::event::Piece;
use bursar_core::time::Timestamp;

use super::History;
use crate::database::{Database, Value};
use crate::error::HistoryError;

/// Levels that changed in this transaction, as they came; the last one of each instant counts.
#[derive(Default)]
pub(super) struct Levels {
    buckets: Vec<Level>,
    uncollected: Vec<Level>,
}

/// Whose level, from when on, and what it is.
type Level = ((u32, i64), i128);

/// One row for the last level of each instant.
fn rows(levels: &mut Vec<Level>) -> Vec<[Value; 3]> {
    // Stable: the last one stays the last.
    levels.sort_by_key(|(key, _)| *key);
    let instants = levels.chunk_by(|one, next| one.0 == next.0);
    let last = |levels: &[Level]| {
        levels.last().map(|((number, at), level)| [(*number).into(), (*at).into(), (*level).into()])
    };
    let rows = instants.filter_map(last).collect();
    levels.clear();
    rows
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
        let free = row.free;
        if free < 0 {
            return Err(HistoryError::inconsistent(format!("bucket {bucket} went below zero")));
        }
        self.cache.levels.buckets.push(((bucket, at.millis()), free));
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
        self.cache.levels.uncollected.push(((account, at.millis()), uncollected));
        Ok(())
    }

    /// Writes the levels that changed.
    pub(super) fn flush_levels(&mut self) -> Result<(), HistoryError> {
        let Levels { buckets, uncollected } = &mut self.cache.levels;
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
