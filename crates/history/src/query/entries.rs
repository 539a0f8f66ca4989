//! Lists of entries.

use bursar_core::ledger::id::JobNo;
use bursar_core::time::Timestamp;

use super::{Cursor, MAX_ROWS, Page};
use crate::blocks::{BlocksOf, Reader};
use crate::database::{Columns, Database};
use crate::entry::{Entry, EntryType};
use crate::error::HistoryError;
use crate::lists::{ListOf, decode_from_nothing, newest};
use crate::project::History;

/// Selects entries.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum EntriesOf {
    /// Entries of an account's own credits.
    Account(u32),
    /// Entries of credits that an account held or spent, its own and others'.
    Spender(u32),
    /// Entries of a hold or charge, by its number in history.
    Hold(i64),
    /// Entries of all holds of a job.
    Job(JobNo),
    /// All entries.
    Everything,
}

/// The names in an entry: account, grant, hold, job, spender.
const NAMES: &str = "SELECT a.path, g.name, h.name, j.name, s.path
     FROM accounts a
     LEFT JOIN grants g ON g.number = ?2
     LEFT JOIN holds h ON h.hold = ?3
     LEFT JOIN jobs j ON j.number = h.job
     LEFT JOIN accounts s ON s.number = ?4
     WHERE a.number = ?1";

/// An entry as it is stored.
pub(super) struct Stored {
    position: u64,
    at: Timestamp,
    account: u32,
    pub(super) kind: EntryType,
    pub(super) amount: i128,
    grant: Option<u32>,
    hold: Option<i64>,
    spender: Option<u32>,
    movement: Option<String>,
    pub(super) available_after: i128,
    pub(super) held_after: i128,
}

/// Reads entries by their numbers.
pub(super) struct Entries<'a, D>(Reader<'a, D>);

impl<'a, D: Database> Entries<'a, D> {
    pub(super) fn of(history: &'a History<D>) -> Entries<'a, D> {
        Entries(Reader::new(&history.database, BlocksOf::Entries))
    }

    pub(super) fn get(&mut self, number: i64) -> Result<Stored, HistoryError> {
        let missing = || HistoryError::inconsistent(format!("there is no entry {number}"));
        let mut row = Columns::of(self.0.row(number)?.ok_or_else(missing)?);
        Ok(Stored {
            position: row.integer()?.cast_unsigned(),
            at: Timestamp::from_millis(row.integer()?),
            account: row.number()?,
            kind: entry_type(row.number()?)?,
            amount: row.sum()?,
            grant: row.maybe_number()?,
            hold: row.maybe_integer()?,
            spender: row.maybe_number()?,
            movement: row.maybe_text()?,
            available_after: row.sum()?,
            held_after: row.sum()?,
        })
    }
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
        let limit = limit.clamp(1, MAX_ROWS) as usize;
        // The cursor and the end of the interval are both upper bounds; the lower one applies.
        let below = self.entries_up_to(to)?.saturating_add(1);
        let below = after.map_or(below, |after| below.min(after.minor));
        let low = self.entries_up_to(from.plus_millis(-1))?.saturating_add(1);
        let numbers = self.entry_numbers(of, (low, below), limit + 1)?;
        let more = numbers.len() > limit;
        let mut entries = Entries::of(self);
        let one = |number: &i64| self.with_names(*number, entries.get(*number)?);
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
            EntriesOf::Hold(hold) => {
                let sql = "SELECT hold, entries FROM holds WHERE hold = ?1";
                return self.entries_of_holds(sql, hold, bounds, limit);
            }
            EntriesOf::Job(job) => {
                let sql = "SELECT hold, entries FROM holds WHERE job = ?1";
                return self.entries_of_holds(sql, job.0.cast_signed(), bounds, limit);
            }
            EntriesOf::Everything => {
                let first = bounds.0.max(bounds.1.saturating_sub(count(limit))).max(1);
                return Ok((first..bounds.1).rev().collect());
            }
        };
        newest(&self.database, &lists, bounds, limit)
    }

    /// The first entries of a hold are stored with it, the others in lists.
    fn entries_of_holds(
        &self,
        holds: &'static str,
        of: i64,
        (low, below): (i64, i64),
        limit: usize,
    ) -> Result<Vec<i64>, HistoryError> {
        let (mut found, mut lists) = (Vec::new(), Vec::new());
        for row in self.database.query(holds, &[of.into()])? {
            let mut row = Columns::of(row);
            lists.push(ListOf::Hold(row.integer()?));
            found.extend(decode_from_nothing(&row.bytes()?));
        }
        found.retain(|number| (low..below).contains(number));
        found.extend(newest(&self.database, &lists, (low, below), limit)?);
        found.sort_unstable_by(|left, right| right.cmp(left));
        found.truncate(limit);
        Ok(found)
    }

    /// The last entry at or before an instant, 0 before the first. A binary search, because entries
    /// are in order of time.
    pub(super) fn entries_up_to(&self, at: Timestamp) -> Result<i64, HistoryError> {
        let rows = self.database.query("SELECT entries FROM progress WHERE only = 1", &[])?;
        let missing = || HistoryError::inconsistent("the progress row is missing");
        let mut high = Columns::of(rows.into_iter().next().ok_or_else(missing)?).integer()?;
        let mut low = 0;
        // The ends are tried first: most queries end now or start at the beginning.
        let mut middle = high;
        let mut entries = Entries::of(self);
        while low < high {
            if entries.get(middle)?.at <= at {
                low = middle;
            } else {
                high = middle - 1;
            }
            middle = low + (high - low + 1) / 2;
        }
        Ok(low)
    }

    /// An entry with its names.
    fn with_names(&self, entry: i64, stored: Stored) -> Result<Entry, HistoryError> {
        let Stored { account, grant, hold, spender, .. } = stored;
        let about = [account.into(), grant.into(), hold.into(), spender.into()];
        let missing = || HistoryError::inconsistent(format!("there is no account {account}"));
        let names = self.database.query(NAMES, &about)?.pop();
        let mut names = Columns::of(names.ok_or_else(missing)?);
        Ok(Entry {
            entry: entry.cast_unsigned(),
            position: stored.position,
            at: stored.at,
            account: names.text()?,
            kind: stored.kind,
            amount: stored.amount,
            grant: names.maybe_text()?,
            hold: names.maybe_text()?,
            job: names.maybe_text()?,
            spender: names.maybe_text()?,
            movement: stored.movement,
            available_after: stored.available_after,
            held_after: stored.held_after,
        })
    }
}

fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

fn entry_type(number: u32) -> Result<EntryType, HistoryError> {
    let found = EntryType::ALL.get(number as usize).copied();
    found.ok_or_else(|| HistoryError::inconsistent(format!("there is no entry type {number}")))
}
