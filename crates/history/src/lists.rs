//! Append-only lists of numbers: the entries of an account or a hold, and the decisions that
//! concern an account.
//!
//! Numbers added to a list at once form one row. So a busy account costs one row, where an index
//! would cost one per entry. The rows of a list never overlap.
//!
//! Most accounts spend their own credits. The decisions of such an account are stored in the rows
//! of the entries it spent, which are keyed by the first decision instead of the first entry. A row
//! contains the number of decisions, the steps between them, and the entries. Other decisions on
//! the account are in a separate list, so that neither list has rows without a match.

use crate::blocks::{BlocksOf, Bytes, Reader, write_length};
use crate::database::{Columns, Database, Row, Value};
use crate::error::HistoryError;

/// The maximum number of numbers in one row.
const MAX_IN_A_ROW: usize = 512;
/// The maximum number of decisions in one row with entries. Such a row fits into its page without
/// overflow.
const MAX_WITH_ENTRIES: usize = 160;
/// The number of rows read at once.
const ROWS_AT_ONCE: i64 = 32;
/// The commands of one record have numbers below this.
const ITEMS: i64 = 4096;

/// The number of kinds of lists, with room for more.
const LISTS: i64 = 16;
/// Stands for all accounts in the lists of holds, charges, refunds and transfers. No account has this number.
pub(crate) const EVERY_ACCOUNT: u32 = u32::MAX;

/// Identifies a list. An entry of an account that spends its own credits is in one list only, so
/// that the common case is written once.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListOf {
    /// Entries of an account's credits that no account held or spent: grants, expiries.
    Unspent(u32),
    /// Entries of its own credits that an account held or spent, with the decisions.
    SpentOfOwn(u32),
    /// Entries of an account's credits that another account held or spent.
    SpentByOthers(u32),
    /// Entries of another account's credits that an account held or spent.
    SpentOfOthers(u32),
    /// Entries of a hold, by its number in history, except those stored with the hold.
    Hold(i64),
    /// Decisions that concern an account, except those by which it spent its own credits.
    Decisions(u32),
    /// The first entries of the charges of an account and all below it, or of [`EVERY_ACCOUNT`].
    Charges(u32),
    /// The first entries of the refunds to an account and all below it.
    Refunds(u32),
    /// The first entries of the transfers from or to an account and all below it.
    Transfers(u32),
    /// The holds of an account and all below it, by their numbers in history: some have no entries.
    Holds(u32),
}

impl ListOf {
    fn key(self) -> i64 {
        match self {
            ListOf::Unspent(account) => i64::from(account) * LISTS,
            ListOf::SpentOfOwn(account) => i64::from(account) * LISTS + 1,
            ListOf::SpentByOthers(account) => i64::from(account) * LISTS + 2,
            ListOf::SpentOfOthers(account) => i64::from(account) * LISTS + 3,
            ListOf::Decisions(account) => i64::from(account) * LISTS + 4,
            ListOf::Hold(hold) => hold * LISTS + 5,
            ListOf::Charges(account) => i64::from(account) * LISTS + 6,
            ListOf::Refunds(account) => i64::from(account) * LISTS + 7,
            ListOf::Transfers(account) => i64::from(account) * LISTS + 8,
            ListOf::Holds(account) => i64::from(account) * LISTS + 9,
        }
    }
}

/// A decision as a number with the same order. Positions beyond those of any journal are equal.
pub(crate) fn decision(position: u64, item: u32) -> i64 {
    let position = i64::try_from(position).unwrap_or(i64::MAX);
    position.saturating_mul(ITEMS).saturating_add(i64::from(item))
}

/// The position and the item of a decision.
pub(crate) fn decision_parts(number: i64) -> (i64, i64) {
    (number.div_euclid(ITEMS), number.rem_euclid(ITEMS))
}

/// Numbers added to lists and not written yet, in order of arrival.
#[derive(Default)]
pub(crate) struct Added {
    /// The list and the number.
    numbers: Vec<(i64, i64)>,
    /// Entries of accounts that spent their own credits: the account, the decision, the entry.
    own: Vec<(u32, i64, i64)>,
    /// The account and the decision.
    decisions: Vec<(u32, i64)>,
}

impl Added {
    /// Adds a number that is larger than all others of the list.
    pub(crate) fn push(&mut self, list: ListOf, number: i64) {
        self.numbers.push((list.key(), number));
    }

    /// Adds an entry of an account that spent its own credits. Its decision must be added too.
    pub(crate) fn push_own(&mut self, account: u32, decision: i64, entry: i64) {
        self.own.push((account, decision, entry));
    }

    /// Adds a decision that concerns an account.
    pub(crate) fn push_decision(&mut self, account: u32, decision: i64) {
        self.decisions.push((account, decision));
    }

    /// Writes all numbers.
    pub(crate) fn flush(&mut self, database: &impl Database) -> Result<(), HistoryError> {
        let mut rows = self.take_accounts()?;
        self.numbers.sort_unstable();
        for numbers in self.numbers.chunk_by(|one, next| one.0 == next.0) {
            for part in numbers.chunks(MAX_IN_A_ROW) {
                rows.push(row(part[0].0, part.iter().map(|(_, number)| *number)));
            }
        }
        self.numbers.clear();
        database.execute_each("INSERT INTO lists VALUES (?1, ?2, ?3)", &rows)
    }

    /// The rows of decisions on accounts, with the entries that were spent by them, if any.
    fn take_accounts(&mut self) -> Result<Vec<[Value; 3]>, HistoryError> {
        self.own.sort_unstable();
        self.decisions.sort_unstable();
        let (mut rows, mut own) = (Vec::new(), &self.own[..]);
        for decisions in self.decisions.chunk_by(|one, next| one.0 == next.0) {
            let account = decisions[0].0;
            let spends = own.first().is_some_and(|next| next.0 == account);
            let most = if spends { MAX_WITH_ENTRIES } else { MAX_IN_A_ROW };
            for part in decisions.chunks(most) {
                let last = part[part.len() - 1].1;
                let of_part = own.iter().take_while(|next| next.0 == account && next.1 <= last);
                let (entries, rest) = own.split_at(of_part.count());
                own = rest;
                let decisions = part.iter().map(|(_, decision)| *decision);
                if entries.is_empty() {
                    rows.push(row(ListOf::Decisions(account).key(), decisions));
                    continue;
                }
                let mut bytes = Vec::with_capacity(3 * part.len() + 2 * entries.len() + 4);
                write_length(&mut bytes, part.len() as u64);
                write_steps(&mut bytes, part[0].1, decisions.skip(1));
                write_steps(&mut bytes, 0, entries.iter().map(|(_, _, entry)| *entry));
                rows.push([
                    ListOf::SpentOfOwn(account).key().into(),
                    part[0].1.into(),
                    bytes.into(),
                ]);
            }
        }
        if !own.is_empty() {
            return Err(HistoryError::inconsistent("an account spent without a decision"));
        }
        self.own.clear();
        self.decisions.clear();
        Ok(rows)
    }
}

/// A row of numbers.
fn row(list: i64, mut numbers: impl ExactSizeIterator<Item = i64>) -> [Value; 3] {
    let first = numbers.next().unwrap_or_default();
    [list.into(), first.into(), encode(first, numbers).into()]
}

/// Encodes the steps from each number to the next.
fn encode(first: i64, rest: impl ExactSizeIterator<Item = i64>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(2 * rest.len());
    write_steps(&mut bytes, first, rest);
    bytes
}

fn write_steps(bytes: &mut Vec<u8>, first: i64, rest: impl Iterator<Item = i64>) {
    let mut last = first;
    for number in rest {
        write_length(bytes, number.wrapping_sub(last).cast_unsigned());
        last = number;
    }
}

fn decode(first: i64, bytes: &[u8]) -> Vec<i64> {
    let mut numbers = vec![first];
    let (mut last, mut step, mut shift) = (first, 0u64, 0);
    for byte in bytes {
        step |= u64::from(byte & 0x7f) << shift.min(63);
        shift += 7;
        if byte & 0x80 == 0 {
            last = last.wrapping_add(step.cast_signed());
            numbers.push(last);
            (step, shift) = (0, 0);
        }
    }
    numbers
}

/// Encodes a list as steps that begin at 0.
pub(crate) fn encode_from_nothing(numbers: &[i64]) -> Vec<u8> {
    encode(0, numbers.iter().copied())
}

/// The inverse of [`encode_from_nothing`].
pub(crate) fn decode_from_nothing(bytes: &[u8]) -> Vec<i64> {
    let mut numbers = decode(0, bytes);
    numbers.remove(0);
    numbers
}

/// The newest entries of several lists that are at least `low` and less than `below`, newest first.
pub(crate) fn newest(
    database: &impl Database,
    lists: &[ListOf],
    (low, below): (i64, i64),
    limit: usize,
) -> Result<Vec<i64>, HistoryError> {
    let mut found = Vec::new();
    for list in lists {
        let own = matches!(list, ListOf::SpentOfOwn(_));
        let before = if own { decision_before(database, below)? } else { below };
        let numbers: Part = if own { entries_of_own } else { part };
        newest_of_one(database, (list.key(), before, numbers), (low, below), limit, &mut found)?;
    }
    if lists.len() > 1 {
        found.sort_unstable_by(|left, right| right.cmp(left));
        // Credits of one account that another spent are in a list of each.
        found.dedup();
        found.truncate(limit);
    }
    Ok(found)
}

/// The newest decisions below a number that concern an account, newest first.
pub(crate) fn newest_decisions(
    database: &impl Database,
    account: u32,
    below: i64,
    limit: usize,
) -> Result<Vec<i64>, HistoryError> {
    let mut found = Vec::new();
    let lists: [(ListOf, Part); 2] =
        [(ListOf::Decisions(account), part), (ListOf::SpentOfOwn(account), decisions_of_own)];
    for (list, numbers) in lists {
        newest_of_one(database, (list.key(), below, numbers), (0, below), limit, &mut found)?;
    }
    found.sort_unstable_by(|left, right| right.cmp(left));
    found.truncate(limit);
    Ok(found)
}

/// The first decision after that of the last entry below a number.
fn decision_before(database: &impl Database, below: i64) -> Result<i64, HistoryError> {
    let mut entries = Reader::new(database, BlocksOf::Entries);
    let Some(last) = entries.row(below.saturating_sub(1))? else { return Ok(i64::MAX) };
    let position = Columns::of(last).integer()?;
    Ok(decision(position.cast_unsigned().saturating_add(1), 0))
}

/// Reads the numbers of a row.
type Part = fn(Row) -> Result<(i64, Vec<i64>), HistoryError>;

/// Adds the newest numbers of a list whose rows begin before a number.
fn newest_of_one(
    database: &impl Database,
    (list, mut before, numbers): (i64, i64, Part),
    (low, below): (i64, i64),
    limit: usize,
    found: &mut Vec<i64>,
) -> Result<(), HistoryError> {
    let end = found.len() + limit;
    while found.len() < end {
        let rows = database.query(
            "SELECT first, numbers FROM lists WHERE list = ?1 AND first < ?2
             ORDER BY first DESC LIMIT ?3",
            &[list.into(), before.into(), ROWS_AT_ONCE.into()],
        )?;
        let last_page = rows.len() < usize::try_from(ROWS_AT_ONCE).unwrap_or(usize::MAX);
        for row in rows {
            let (first, numbers) = numbers(row)?;
            let oldest = numbers.first().copied().unwrap_or(i64::MAX);
            let wanted = numbers.into_iter().rev().filter(|number| (low..below).contains(number));
            found.extend(wanted.take(end - found.len()));
            before = first;
            if oldest < low || found.len() == end {
                return Ok(());
            }
        }
        if last_page {
            return Ok(());
        }
    }
    Ok(())
}

fn part(row: Row) -> Result<(i64, Vec<i64>), HistoryError> {
    let mut row = Columns::of(row);
    let first = row.integer()?;
    Ok((first, decode(first, &row.bytes()?)))
}

fn decisions_of_own(row: Row) -> Result<(i64, Vec<i64>), HistoryError> {
    own_part(row).map(|(decisions, _)| (decisions[0], decisions))
}

fn entries_of_own(row: Row) -> Result<(i64, Vec<i64>), HistoryError> {
    own_part(row).map(|(decisions, entries)| (decisions[0], entries))
}

/// The decisions of a row, at least one, and its entries.
fn own_part(row: Row) -> Result<(Vec<i64>, Vec<i64>), HistoryError> {
    let mut row = Columns::of(row);
    let (first, bytes) = (row.integer()?, row.bytes()?);
    let mut bytes = Bytes(&bytes);
    let mut decisions = vec![first];
    for _ in 1..bytes.length()? {
        let last = decisions[decisions.len() - 1];
        decisions.push(last.wrapping_add(bytes.length()?.cast_signed()));
    }
    Ok((decisions, decode_from_nothing(bytes.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_written() {
        for numbers in [&[7][..], &[1, 2, 3], &[5, 132, 133, 40_000, i64::MAX]] {
            let bytes = encode(numbers[0], numbers[1..].iter().copied());
            assert_eq!(decode(numbers[0], &bytes), numbers);
        }
        let own = [(3, 40, 1), (3, 41, 2), (3, 41, 3), (3, 4000, 700), (5, 41, 9)];
        let decisions = [(2, 41), (3, 40), (3, 41), (3, 3999), (3, 4000), (5, 41)];
        let (numbers, own, decisions) = (Vec::new(), own.to_vec(), decisions.to_vec());
        let rows = Added { numbers, own, decisions }.take_accounts().expect("each has a decision");
        assert_eq!(rows.len(), 3);
        let [list, first_and_numbers @ ..] = &rows[1];
        assert_eq!(*list, ListOf::SpentOfOwn(3).key().into());
        let found = own_part(first_and_numbers.to_vec());
        assert_eq!(found, Ok((vec![40, 41, 3999, 4000], vec![1, 2, 3, 700])));
        assert_eq!(decision_parts(decision(9_000_000_000, 1001)), (9_000_000_000, 1001));
    }
}
