//! What was free in each bucket, and owed by each account, from which instant on: so that a balance
//! of the past is looked up, not computed from everything before it.

use bursar_core::ledger::event::Piece;
use bursar_core::time::Timestamp;

use super::History;
use crate::database::{Database, Value};
use crate::error::HistoryError;
use crate::levels::{Level, MOST_IN_A_ROW, encode};

/// Levels that changed and are not written yet, as they came; the last one of each instant counts.
#[derive(Default)]
pub(super) struct Levels {
    buckets: Vec<Change>,
    uncollected: Vec<Change>,
}

/// Whose level, and what it is from when on.
type Change = (u32, Level);

/// The rows of all levels, with the last one of each instant.
fn rows(changes: &mut Vec<Change>) -> Vec<[Value; 3]> {
    // Stable: what came later stays later.
    changes.sort_by_key(|(number, _)| *number);
    let (mut rows, mut levels) = (Vec::new(), Vec::<Level>::new());
    for changes in changes.chunk_by(|one, next| one.0 == next.0) {
        for (_, change) in changes {
            match levels.last_mut().filter(|last| last.0 == change.0) {
                Some(last) => *last = *change,
                None => levels.push(*change),
            }
        }
        for levels in levels.chunks(MOST_IN_A_ROW) {
            rows.push([changes[0].0.into(), levels[0].0.into(), encode(levels).into()]);
        }
        levels.clear();
    }
    changes.clear();
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
        self.cache.levels.buckets.push((bucket, (at.millis(), free)));
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
        let uncollected = self.account(account)?.state.uncollected;
        self.cache.levels.uncollected.push((account, (at.millis(), uncollected)));
        Ok(())
    }

    /// Writes the levels that changed.
    pub(super) fn flush_levels(&mut self) -> Result<(), HistoryError> {
        let Levels { buckets, uncollected } = &mut self.cache.levels;
        self.database.execute_each(
            "INSERT INTO bucket_levels VALUES (?1, ?2, ?3)
             ON CONFLICT (bucket, at) DO UPDATE SET levels = excluded.levels",
            &rows(buckets),
        )?;
        self.database.execute_each(
            "INSERT INTO uncollected_levels VALUES (?1, ?2, ?3)
             ON CONFLICT (account, at) DO UPDATE SET levels = excluded.levels",
            &rows(uncollected),
        )
    }
}
