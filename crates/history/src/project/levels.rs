//! The free amount of each bucket and some amounts of each account over time. With them a past
//! balance is looked up instead of computed from all earlier entries.

use bursar_core::ledger::event::Piece;
use bursar_core::time::Timestamp;

use super::History;
use crate::database::{Database, Value};
use crate::entry::EntryType;
use crate::error::HistoryError;
use crate::levels::{AccountLevel, Level, MAX_IN_A_ROW, encode};

/// Changed levels that are not written yet, in order of arrival. The last level of an instant
/// counts.
#[derive(Default)]
pub(super) struct Levels {
    buckets: Vec<Change>,
    accounts: Vec<Change>,
}

/// The number of the bucket or of the level of an account, and its new value.
type Change = (i64, Level);

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
        self.cache.levels.buckets.push((bucket.into(), (at.millis(), free)));
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

    /// Records the current level of an account.
    pub(super) fn note_level(
        &mut self,
        at: Timestamp,
        account: u32,
        which: AccountLevel,
    ) -> Result<(), HistoryError> {
        let state = &self.account(account)?.state;
        let level = match which {
            AccountLevel::Uncollected => state.uncollected,
            AccountLevel::Funded => state.totals.funded,
            AccountLevel::Expired => state.totals.expired,
        };
        self.cache.levels.accounts.push((which.key(account), (at.millis(), level)));
        Ok(())
    }

    /// Counts a movement that brings credits into an account or takes them away.
    pub(super) fn count_funds(
        &mut self,
        at: Timestamp,
        account: u32,
        kind: EntryType,
        amount: i128,
    ) -> Result<(), HistoryError> {
        let totals = &mut self.account(account)?.state.totals;
        if kind.funds() != 0 {
            totals.funded += kind.funds() * amount;
            totals.expired += kind.expires() * amount;
            self.note_level(at, account, AccountLevel::Funded)?;
        }
        if kind.expires() != 0 {
            self.note_level(at, account, AccountLevel::Expired)?;
        }
        Ok(())
    }

    /// Writes the levels that changed.
    pub(super) fn flush_levels(&mut self) -> Result<(), HistoryError> {
        let Levels { buckets, accounts } = &mut self.cache.levels;
        self.database.execute_each(
            "INSERT INTO bucket_levels VALUES (?1, ?2, ?3)
             ON CONFLICT (bucket, at) DO UPDATE SET levels = excluded.levels",
            &rows(buckets),
        )?;
        self.database.execute_each(
            "INSERT INTO account_levels VALUES (?1, ?2, ?3)
             ON CONFLICT (level, at) DO UPDATE SET levels = excluded.levels",
            &rows(accounts),
        )
    }
}
