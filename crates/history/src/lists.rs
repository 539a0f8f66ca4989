//! Lists of numbers that only grow at their end: the entries of an account, of a hold, the decisions
//! that concern an account.
//!
//! What one transaction adds to a list is one row, so that a busy account costs one row where an index
//! would cost one for each entry. The parts of a list never overlap.

use crate::blocks::write_length;
use crate::database::{Columns, Database, Row};
use crate::error::HistoryError;

/// Numbers in one row at most.
const MOST_IN_A_ROW: usize = 512;
/// Rows that are read at once.
const ROWS_AT_ONCE: i64 = 64;
/// Commands of one record have numbers below this.
const ITEMS: i64 = 4096;

/// Which list. What an account spent of its own credits is in one list only, so that the common case
/// is written once.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListOf {
    /// Entries of an account's credits that nobody held or spent: grants, expiries.
    Unspent(u32),
    /// Entries of what an account held or spent of its own credits.
    SpentOfOwn(u32),
    /// Entries of an account's credits that another account held or spent.
    SpentByOthers(u32),
    /// Entries of what an account held or spent of another's credits.
    SpentOfOthers(u32),
    /// Entries of a hold beyond those that are noted with it, by its number in history.
    Hold(i64),
    /// Decisions that concern an account.
    Decisions(u32),
}

impl ListOf {
    fn key(self) -> i64 {
        match self {
            ListOf::Unspent(account) => i64::from(account) * 8,
            ListOf::SpentOfOwn(account) => i64::from(account) * 8 + 1,
            ListOf::SpentByOthers(account) => i64::from(account) * 8 + 2,
            ListOf::SpentOfOthers(account) => i64::from(account) * 8 + 3,
            ListOf::Decisions(account) => i64::from(account) * 8 + 4,
            ListOf::Hold(hold) => hold * 8 + 5,
        }
    }
}

/// A decision as a number that sorts like it. Positions that no journal reaches are all the same.
pub(crate) fn decision(position: u64, item: u32) -> i64 {
    let position = i64::try_from(position).unwrap_or(i64::MAX);
    position.saturating_mul(ITEMS).saturating_add(i64::from(item))
}

/// The position and the item of a decision.
pub(crate) fn decision_parts(number: i64) -> (i64, i64) {
    (number.div_euclid(ITEMS), number.rem_euclid(ITEMS))
}

/// What was added to lists and is not written yet: the list and the number, as they came.
#[derive(Default)]
pub(crate) struct Added(Vec<(i64, i64)>);

impl Added {
    /// Adds a number that is larger than all others of the list.
    pub(crate) fn push(&mut self, list: ListOf, number: i64) {
        self.0.push((list.key(), number));
    }

    /// Writes everything.
    pub(crate) fn flush(&mut self, database: &impl Database) -> Result<(), HistoryError> {
        let mut rows = Vec::new();
        // Stable: the numbers of each list stay in their order.
        self.0.sort_by_key(|(list, _)| *list);
        for numbers in self.0.chunk_by(|one, next| one.0 == next.0) {
            for part in numbers.chunks(MOST_IN_A_ROW) {
                let [(list, first), rest @ ..] = part else { continue };
                let rest = rest.iter().map(|(_, number)| *number);
                rows.push([(*list).into(), (*first).into(), encode(*first, rest).into()]);
            }
        }
        self.0.clear();
        database.execute_each("INSERT INTO lists VALUES (?1, ?2, ?3)", &rows)
    }
}

/// Steps from each number to the next.
fn encode(first: i64, rest: impl ExactSizeIterator<Item = i64>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(2 * rest.len());
    let mut last = first;
    for number in rest {
        write_length(&mut bytes, (number - last).cast_unsigned());
        last = number;
    }
    bytes
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

/// Some numbers that stand alone, as steps of which the first begins at nothing.
pub(crate) fn encode_from_nothing(numbers: &[i64]) -> Vec<u8> {
    encode(0, numbers.iter().copied())
}

/// The inverse of [`encode_from_nothing`].
pub(crate) fn decode_from_nothing(bytes: &[u8]) -> Vec<i64> {
    let mut numbers = decode(0, bytes);
    numbers.remove(0);
    numbers
}

/// The newest numbers of some lists together that are at least `low` and less than `below`, newest
/// first.
pub(crate) fn newest(
    database: &impl Database,
    lists: &[ListOf],
    (low, below): (i64, i64),
    limit: usize,
) -> Result<Vec<i64>, HistoryError> {
    let mut found = Vec::new();
    for list in lists {
        newest_of_one(database, *list, (low, below), limit, &mut found)?;
    }
    if lists.len() > 1 {
        found.sort_unstable_by(|left, right| right.cmp(left));
        found.truncate(limit);
    }
    Ok(found)
}

fn newest_of_one(
    database: &impl Database,
    list: ListOf,
    (low, below): (i64, i64),
    limit: usize,
    found: &mut Vec<i64>,
) -> Result<(), HistoryError> {
    let end = found.len() + limit;
    let mut before = below;
    while found.len() < end {
        let rows = database.query(
            "SELECT first, numbers FROM lists WHERE list = ?1 AND first < ?2
             ORDER BY first DESC LIMIT ?3",
            &[list.key().into(), before.into(), ROWS_AT_ONCE.into()],
        )?;
        let last_page = rows.len() < usize::try_from(ROWS_AT_ONCE).unwrap_or(usize::MAX);
        for row in rows {
            let (first, numbers) = part(row)?;
            let wanted = numbers.into_iter().rev().filter(|number| (low..below).contains(number));
            found.extend(wanted.take(end - found.len()));
            before = first;
            if first < low || found.len() == end {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for numbers in [&[7][..], &[1, 2, 3], &[5, 132, 133, 40_000, i64::MAX]] {
            let bytes = encode(numbers[0], numbers[1..].iter().copied());
            assert_eq!(decode(numbers[0], &bytes), numbers);
        }
        assert_eq!(decision_parts(decision(9_000_000_000, 1001)), (9_000_000_000, 1001));
    }
}
