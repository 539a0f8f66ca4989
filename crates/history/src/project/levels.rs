//! The free amount of each bucket and the uncollected amount of each account over time. With them a
//! past balance is looked up instead of computed from all earlier entries.

use bursar_core::ledger::event::Piece;
use bursar_core::time::Timestamp;

use super::History;
use crate::database::{Database, Value};
use crate::error::HistoryError;
use crate::levels::{Level, MAX_IN_A_ROW, encode};

/// Changed levels that are not written yet, in order of arrival. The last level of an instant
/// counts.
#[derive(Default)]
pub(super) struct Levels {
    buckets: Vec<Change>,
    uncollected: Vec<Change>,
}

/// The number of the bucket or account, and its new level.
type Change = (u32, Level);

/// The rows of all levels, with the last level of each instant.
fn rows(changes: &mut Vec<Change>) -> Vec<[Value; 3]> {
    // A stable sort keeps the order of arrival.
    changes.sort_by_key(|(number, _)| *number);
    let (mut rows, mut levels) = (Vec::new(), Vec::<Level>::new());
    for changes in changes.chunk_by(|one, next| one.0 == next.0) {
        for (_, change) in changes {
            match levels.last_mut().filter(|last| last.0 == change.0) {
                Some(last) => *last = *change,
                None => levels.push(*change),
            }
        }
        for levels in levels.chunks(MAX_IN_A_ROW) {
            rows.push([changes[0].0.into(), levels[0].0.into(), encode(levels).into()]);
        }
        levels.clear();
    }
    changes.clear();
    rows
}

impl<D: Database> History<D> {
    /// Changes the free amount of a bucket.
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

    /// Adds units to the free amounts of their buckets, or subtracts them.
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

    /// Records the uncollected amount of an account.
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
