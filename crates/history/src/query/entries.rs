//! Lists of entries.

use bursar_core::ledger::id::JobNo;
use bursar_core::time::Timestamp;

use super::{Cursor, MOST_ROWS, Page};
use crate::database::{Columns, Database, Row, Value};
use crate::entry::{Entry, EntryType};
use crate::error::HistoryError;
use crate::project::History;

/// Whose entries.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum EntriesOf {
    /// Of an account's own credits.
    Account(u32),
    /// Of what an account held or spent, whoever's credits.
    Spender(u32),
    /// Of a hold or charge, by its number in history.
    Hold(i64),
    /// Of all holds of a job.
    Job(JobNo),
    /// All.
    Everything,
}

macro_rules! select {
    ($conditions:literal) => {
        concat!(
            "SELECT e.entry, e.position, e.at, a.path, e.type, e.amount, g.name, h.name, j.name,
                    s.path, e.movement, e.available_after, e.held_after
             FROM entries e
             JOIN accounts a ON a.number = e.account
             LEFT JOIN grants g ON g.number = e.grant_number
             LEFT JOIN holds h ON h.hold = e.hold
             LEFT JOIN jobs j ON j.number = h.job
             LEFT JOIN accounts s ON s.number = e.spender
             WHERE ",
            $conditions
        )
    };
}

impl<D: Database> History<D> {
    /// Entries from `from` to `to`, both included, newest first.
    pub fn entries(
        &self,
        of: EntriesOf,
        (from, to): (Timestamp, Timestamp),
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<Page<Entry>, HistoryError> {
        let limit = limit.clamp(1, MOST_ROWS);
        // Cursors and ends are both upper bounds: the lower one counts.
        let after = after.unwrap_or(Cursor::START);
        let end = Cursor { major: to.millis(), minor: i64::MAX };
        let below = if (after.major, after.minor) < (end.major, end.minor) { after } else { end };
        let bounds: [Value; 4] = [
            from.millis().into(),
            below.major.into(),
            below.minor.into(),
            i64::from(limit + 1).into(),
        ];
        let [from, major, minor, rows] = bounds;
        let (sql, key): (&'static str, Value) = match of {
            EntriesOf::Account(account) => (
                select!(
                    "e.account = ?1 AND e.at >= ?2 AND (e.at, e.entry) < (?3, ?4)
                     ORDER BY e.at DESC, e.entry DESC LIMIT ?5"
                ),
                account.into(),
            ),
            EntriesOf::Spender(account) => (
                select!(
                    "e.spender = ?1 AND e.at >= ?2 AND (e.at, e.entry) < (?3, ?4)
                     ORDER BY e.at DESC, e.entry DESC LIMIT ?5"
                ),
                account.into(),
            ),
            // Entries of one hold are few, and are in the order of time by their numbers.
            EntriesOf::Hold(hold) => (
                select!(
                    "e.hold = ?1 AND e.at >= ?2 AND e.at <= ?3 AND e.entry < ?4
                     ORDER BY e.entry DESC LIMIT ?5"
                ),
                hold.into(),
            ),
            EntriesOf::Job(job) => (
                select!(
                    "e.hold IN (SELECT hold FROM holds WHERE job = ?1)
                     AND e.at >= ?2 AND e.at <= ?3 AND e.entry < ?4
                     ORDER BY e.entry DESC LIMIT ?5"
                ),
                job.0.cast_signed().into(),
            ),
            EntriesOf::Everything => (
                select!(
                    "?1 = 0 AND e.at >= ?2 AND (e.at, e.entry) < (?3, ?4)
                     ORDER BY e.at DESC, e.entry DESC LIMIT ?5"
                ),
                0i64.into(),
            ),
        };
        let found = self.database.query(sql, &[key, from, major, minor, rows])?;
        let mut data = found.into_iter().map(entry).collect::<Result<Vec<Entry>, _>>()?;
        let more = data.len() > limit as usize;
        data.truncate(limit as usize);
        let last = data.last().filter(|_| more);
        let next =
            last.map(|last| Cursor { major: last.at.millis(), minor: last.entry.cast_signed() });
        Ok(Page { data, next })
    }
}

fn entry(row: Row) -> Result<Entry, HistoryError> {
    let mut row = Columns::of(row);
    Ok(Entry {
        entry: row.integer()?.cast_unsigned(),
        position: row.integer()?.cast_unsigned(),
        at: Timestamp::from_millis(row.integer()?),
        account: row.text()?,
        kind: entry_type(row.number()?)?,
        amount: row.sum()?,
        grant: row.maybe_text()?,
        hold: row.maybe_text()?,
        job: row.maybe_text()?,
        spender: row.maybe_text()?,
        movement: row.maybe_text()?,
        available_after: row.sum()?,
        held_after: row.sum()?,
    })
}

pub(super) fn entry_type(number: u32) -> Result<EntryType, HistoryError> {
    let found = EntryType::ALL.get(number as usize).copied();
    found.ok_or_else(|| HistoryError::inconsistent(format!("there is no entry type {number}")))
}
