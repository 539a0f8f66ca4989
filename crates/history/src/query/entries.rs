//! Lists of entries.

use bursar_core::ledger::id::JobNo;
use bursar_core::time::Timestamp;

use super::{Cursor, MOST_ROWS, Page};
use crate::database::{Columns, Database, Row};
use crate::entry::{Entry, EntryType};
use crate::error::HistoryError;
use crate::lists::{ListOf, newest};
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

/// One entry, with the names of what it is about.
const ENTRY: &str =
    "SELECT e.entry, e.position, e.at, a.path, e.type, e.amount, g.name, h.name, j.name,
            s.path, e.movement, e.available_after, e.held_after
     FROM entries e
     JOIN accounts a ON a.number = e.account
     LEFT JOIN grants g ON g.number = e.grant_number
     LEFT JOIN holds h ON h.hold = e.hold
     LEFT JOIN jobs j ON j.number = h.job
     LEFT JOIN accounts s ON s.number = e.spender
     WHERE e.entry = ?1";

impl<D: Database> History<D> {
    /// Entries from `from` to `to`, both included, newest first.
    pub fn entries(
        &self,
        of: EntriesOf,
        (from, to): (Timestamp, Timestamp),
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<Page<Entry>, HistoryError> {
        let limit = limit.clamp(1, MOST_ROWS) as usize;
        // Cursors and ends are both upper bounds: the lower one counts.
        let below = self.entries_up_to(to)?.saturating_add(1);
        let below = after.map_or(below, |after| below.min(after.minor));
        let low = self.entries_up_to(from.plus_millis(-1))?.saturating_add(1);
        let numbers = self.entry_numbers(of, (low, below), limit + 1)?;
        let more = numbers.len() > limit;
        let one = |number: &i64| -> Result<Entry, HistoryError> {
            let row = self.database.query(ENTRY, &[(*number).into()])?.pop();
            entry(row.ok_or_else(|| no_entry(*number))?)
        };
        let data = numbers.iter().take(limit).map(one).collect::<Result<Vec<Entry>, _>>()?;
        let last = data.last().filter(|_| more);
        let next =
            last.map(|last| Cursor { major: last.at.millis(), minor: last.entry.cast_signed() });
        Ok(Page { data, next })
    }

    fn entry_numbers(
        &self,
        of: EntriesOf,
        bounds: (i64, i64),
        limit: usize,
    ) -> Result<Vec<i64>, HistoryError> {
        let lists = match of {
            EntriesOf::Account(account) => {
                vec![
                    ListOf::Unspent(account),
                    ListOf::SpentOfOwn(account),
                    ListOf::SpentByOthers(account),
                ]
            }
            EntriesOf::Spender(account) => {
                vec![ListOf::SpentOfOwn(account), ListOf::SpentOfOthers(account)]
            }
            EntriesOf::Hold(hold) => vec![ListOf::Hold(hold)],
            EntriesOf::Job(job) => {
                let rows = self.database.query(
                    "SELECT hold FROM holds WHERE job = ?1",
                    &[job.0.cast_signed().into()],
                )?;
                let holds =
                    rows.into_iter().map(|row| Columns::of(row).integer().map(ListOf::Hold));
                holds.collect::<Result<Vec<ListOf>, _>>()?
            }
            EntriesOf::Everything => {
                let first = bounds.0.max(bounds.1.saturating_sub(count(limit))).max(1);
                return Ok((first..bounds.1).rev().collect());
            }
        };
        newest(&self.database, &lists, bounds, limit)
    }

    /// The last entry at or before an instant, 0 before the first. Searched by halves: entries are
    /// in the order of time.
    pub(super) fn entries_up_to(&self, at: Timestamp) -> Result<i64, HistoryError> {
        let rows = self.database.query("SELECT entries FROM progress WHERE only = 1", &[])?;
        let missing = || HistoryError::inconsistent("it does not say how far it has come");
        let mut high = Columns::of(rows.into_iter().next().ok_or_else(missing)?).integer()?;
        let mut low = 0;
        // Most ask for everything up to now, or from the beginning.
        let mut middle = high;
        while low < high {
            let row = self
                .database
                .query("SELECT at FROM entries WHERE entry = ?1", &[middle.into()])?
                .pop();
            if Columns::of(row.ok_or_else(|| no_entry(middle))?).integer()? <= at.millis() {
                low = middle;
            } else {
                high = middle - 1;
            }
            middle = low + (high - low + 1) / 2;
        }
        Ok(low)
    }
}

fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

pub(super) fn no_entry(number: i64) -> HistoryError {
    HistoryError::inconsistent(format!("there is no entry {number}"))
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
