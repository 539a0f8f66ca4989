//! Lists of entries.

use std::collections::{BTreeMap, BTreeSet};

use bursar_core::ledger::id::JobNo;
use bursar_core::time::Timestamp;

use super::entry_names::PageNames;
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
    /// Entries of an account's own credits, and of others' credits that it held or spent.
    Either(u32),
    /// Entries of credits that an account or one below it owns, held or spent.
    Subtree(u32),
    /// Entries of a hold or charge, by its number in history.
    Hold(i64),
    /// Entries of all holds of a job.
    Job(JobNo),
    /// All entries.
    Everything,
}

/// Selects among entries. Everything that is given must apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryFilter {
    /// One of these types; all types if empty.
    pub kinds: Vec<EntryType>,
    /// Held or spent by this account or one below it.
    pub spender: Option<String>,
    /// On a hold of this job.
    pub job: Option<JobNo>,
    /// Of the credits of the grant with this name.
    pub grant: Option<String>,
}

/// The most accounts of a subtree whose entries are listed together.
pub const MAX_SUBTREE: usize = 1_000;

/// The most entries that one page of a filtered list visits. A page that reaches it is short.
const MAX_VISITED: usize = 20_000;

/// An entry as it is stored.
pub(super) struct Stored {
    position: u64,
    pub(super) at: Timestamp,
    pub(super) account: u32,
    pub(super) kind: EntryType,
    pub(super) amount: i128,
    grant: Option<u32>,
    pub(super) hold: Option<i64>,
    pub(super) spender: Option<u32>,
    pub(super) movement: Option<String>,
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

/// Visits numbers, newest first, and collects what `show` makes of them. Returns the last number that was visited, if
/// there are more.
pub(super) fn visit<T>(
    numbers: impl Fn((i64, i64), usize) -> Result<Vec<i64>, HistoryError>,
    (low, mut below): (i64, i64),
    limit: u32,
    mut show: impl FnMut(i64) -> Result<Option<T>, HistoryError>,
) -> Result<(Vec<T>, Option<i64>), HistoryError> {
    let limit = limit.clamp(1, MAX_ROWS) as usize;
    let (mut data, mut visited) = (Vec::new(), 0);
    loop {
        let some = numbers((low, below), limit + 1)?;
        let is_last = some.len() <= limit;
        for number in some {
            if data.len() == limit || visited == MAX_VISITED {
                return Ok((data, Some(below)));
            }
            visited += 1;
            below = number;
            data.extend(show(number)?);
        }
        if is_last {
            return Ok((data, None));
        }
    }
}

impl<D: Database> History<D> {
    /// Entries from `from` to `to`, both included, newest first.
    pub fn entries(
        &self,
        of: EntriesOf,
        period: (Timestamp, Timestamp),
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<Page<Entry>, HistoryError> {
        self.filtered_entries(of, &EntryFilter::default(), period, after, limit)
    }

    /// Like [`History::entries`], filtered. A page may be short: a scan visits a bounded number of
    /// rows.
    pub fn filtered_entries(
        &self,
        of: EntriesOf,
        filter: &EntryFilter,
        period: (Timestamp, Timestamp),
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<Page<Entry>, HistoryError> {
        let bounds = self.entry_bounds(period, after)?;
        let of_job = filter.job.map(|job| self.holds_of_job(job)).transpose()?;
        let mut spenders: BTreeMap<u32, bool> = BTreeMap::new();
        let mut grants: BTreeMap<u32, bool> = BTreeMap::new();
        let (mut entries, mut names) = (Entries::of(self), PageNames::of(self));
        let admits = |number: i64| {
            let stored = entries.get(number)?;
            let kind = filter.kinds.is_empty() || filter.kinds.contains(&stored.kind);
            let job = match &of_job {
                Some(holds) => stored.hold.is_some_and(|hold| holds.contains(&hold)),
                None => true,
            };
            let spender = match &filter.spender {
                Some(wanted) if kind && job => match stored.spender {
                    Some(spender) => match spenders.get(&spender) {
                        Some(within) => *within,
                        None => {
                            let within = is_within(&self.account_path(spender)?, wanted);
                            spenders.insert(spender, within);
                            within
                        }
                    },
                    None => false,
                },
                Some(_) | None => true,
            };
            let grant = match (&filter.grant, stored.grant) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(wanted), Some(grant)) => match grants.get(&grant) {
                    Some(is_meant) => *is_meant,
                    None => {
                        let is_meant = self.grant_name(grant)?.as_deref() == Some(wanted);
                        grants.insert(grant, is_meant);
                        is_meant
                    }
                },
            };
            (kind && job && spender && grant)
                .then(|| with_names(&mut names, number, stored))
                .transpose()
        };
        let numbers = |bounds, limit| self.entry_numbers(of, bounds, limit);
        self.page_of(numbers, bounds, limit, admits)
    }

    /// The numbers of the entries of a period, from the lowest up to but not including the second,
    /// that follow a cursor.
    pub(super) fn entry_bounds(
        &self,
        (from, to): (Timestamp, Timestamp),
        after: Option<Cursor>,
    ) -> Result<(i64, i64), HistoryError> {
        // The cursor and the end of the interval are both upper bounds; the lower one applies.
        let below = self.entries_up_to(to)?.saturating_add(1);
        let below = after.map_or(below, |after| below.min(after.minor));
        let low = self.entries_up_to(from.plus_millis(-1))?.saturating_add(1);
        Ok((low, below))
    }

    /// Visits numbers of entries, newest first, and collects what `show` makes of them.
    pub(super) fn page_of<T>(
        &self,
        numbers: impl Fn((i64, i64), usize) -> Result<Vec<i64>, HistoryError>,
        bounds: (i64, i64),
        limit: u32,
        show: impl FnMut(i64) -> Result<Option<T>, HistoryError>,
    ) -> Result<Page<T>, HistoryError> {
        let (data, next) = visit(numbers, bounds, limit, show)?;
        let at = next.map(|last| Entries::of(self).get(last)).transpose()?.map(|entry| entry.at);
        let next = at.zip(next).map(|(at, minor)| Cursor { major: at.millis(), minor });
        Ok(Page { data, next })
    }

    /// The numbers of an account and of those below it, at most [`MAX_SUBTREE`] and one more.
    pub fn subtree(&self, account: u32) -> Result<Vec<u32>, HistoryError> {
        self.subtree_within(account, MAX_SUBTREE)
    }

    /// The numbers of an account and of those below it, at most so many and one more.
    pub(super) fn subtree_within(
        &self,
        account: u32,
        most: usize,
    ) -> Result<Vec<u32>, HistoryError> {
        let path = self.account_path(account)?;
        // A semicolon follows the colon, so that the second bound is above all paths below it.
        let (from, to) = (format!("{path}:"), format!("{path};"));
        let sql =
            "SELECT number FROM accounts WHERE path = ?1 OR (path >= ?2 AND path < ?3) LIMIT ?4";
        let most = count(most + 1);
        let about = [path.as_str().into(), from.as_str().into(), to.as_str().into(), most.into()];
        let rows = self.database.query(sql, &about)?;
        rows.into_iter().map(|row| Columns::of(row).number()).collect()
    }

    fn grant_name(&self, grant: u32) -> Result<Option<String>, HistoryError> {
        let sql = "SELECT name FROM grants WHERE number = ?1";
        let rows = self.database.query(sql, &[grant.into()])?;
        rows.into_iter().next().map(|row| Columns::of(row).text()).transpose()
    }

    fn holds_of_job(&self, job: JobNo) -> Result<BTreeSet<i64>, HistoryError> {
        let sql = "SELECT hold FROM holds WHERE job = ?1";
        let rows = self.database.query(sql, &[job.0.cast_signed().into()])?;
        rows.into_iter().map(|row| Columns::of(row).integer()).collect()
    }

    fn entry_numbers(
        &self,
        of: EntriesOf,
        bounds: (i64, i64),
        limit: usize,
    ) -> Result<Vec<i64>, HistoryError> {
        let lists = match of {
            EntriesOf::Account(account) => of_account(account).to_vec(),
            EntriesOf::Spender(account) => {
                vec![ListOf::SpentOfOwn(account), ListOf::SpentOfOthers(account)]
            }
            EntriesOf::Either(account) => {
                let others = ListOf::SpentOfOthers(account);
                of_account(account).into_iter().chain([others]).collect()
            }
            EntriesOf::Subtree(root) => {
                let lists = self.subtree(root)?.into_iter().flat_map(|account| {
                    of_account(account).into_iter().chain([ListOf::SpentOfOthers(account)])
                });
                lists.collect()
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
}

/// An entry with its names.
fn with_names<D: Database>(
    names: &mut PageNames<'_, D>,
    entry: i64,
    stored: Stored,
) -> Result<Entry, HistoryError> {
    let hold = stored.hold.map(|hold| names.hold(hold)).transpose()?.unwrap_or_default();
    let grant = stored.grant.map(|grant| names.grant(grant)).transpose()?.unwrap_or_default();
    let (reason, reference) = match (stored.kind.made_by(), stored.movement.as_deref()) {
        (Some(what), Some(movement)) => names.movement(stored.account, (what, movement))?,
        _ => (None, None),
    };
    Ok(Entry {
        entry: entry.cast_unsigned(),
        position: stored.position,
        at: stored.at,
        account: names.account(stored.account)?,
        kind: stored.kind,
        amount: stored.amount,
        grant: grant.name,
        hold: hold.name,
        job: hold.job,
        spender: stored.spender.map(|spender| names.account(spender)).transpose()?,
        movement: stored.movement,
        reason,
        reference: reference.or(hold.reference).or(grant.reference),
        available_after: stored.available_after,
        held_after: stored.held_after,
    })
}

/// The lists of an account's own entries.
pub(super) fn of_account(account: u32) -> [ListOf; 3] {
    [ListOf::Unspent(account), ListOf::SpentOfOwn(account), ListOf::SpentByOthers(account)]
}

/// Whether a path is an account or below it.
pub(super) fn is_within(path: &str, root: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

fn entry_type(number: u32) -> Result<EntryType, HistoryError> {
    let found = EntryType::ALL.get(number as usize).copied();
    found.ok_or_else(|| HistoryError::inconsistent(format!("there is no entry type {number}")))
}
