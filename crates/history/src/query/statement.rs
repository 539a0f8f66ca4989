//! Balances as they were, and what happened between two of them.

use bursar_core::time::Timestamp;

use super::entries::Entries;
use crate::database::Database;
use crate::entry::EntryType;
use crate::error::HistoryError;
use crate::lists::{ListOf, newest};
use crate::project::History;

/// What an account had at an instant, after everything that happened at it.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct AsOf {
    /// Free credits of its own grants.
    pub available: i128,
    /// What open holds kept of its own grants.
    pub held: i128,
}

/// Two balances and what lies between them, to the micro-credit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Just before the first instant.
    pub opening: AsOf,
    /// What moved, by type, in the order of types: how often and how much in all.
    pub movements: Vec<(EntryType, u64, i128)>,
    /// After the last instant.
    pub closing: AsOf,
}

impl Statement {
    /// Opening plus movements: equal to the closing balance, always.
    pub fn derived_closing(&self) -> AsOf {
        let mut sum = self.opening;
        for (kind, _, amount) in &self.movements {
            let (available, held) = kind.effect();
            sum.available += available * amount;
            sum.held += held * amount;
        }
        sum
    }
}

/// Entries that are looked up at once.
const AT_ONCE: usize = 1024;

/// The lists of an account's own entries.
fn of_account(account: u32) -> [ListOf; 3] {
    [ListOf::Unspent(account), ListOf::SpentOfOwn(account), ListOf::SpentByOthers(account)]
}

impl<D: Database> History<D> {
    /// What an account had at `at`.
    pub fn balance_as_of(&self, account: u32, at: Timestamp) -> Result<AsOf, HistoryError> {
        let below = self.entries_up_to(at)?.saturating_add(1);
        let last = newest(&self.database, &of_account(account), (0, below), 1)?;
        let Some(last) = last.first() else { return Ok(AsOf::default()) };
        let last = Entries::of(self).get(*last)?;
        Ok(AsOf { available: last.available_after, held: last.held_after })
    }

    /// What happened to an account from `from` to `to`, both included.
    pub fn statement(
        &self,
        account: u32,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Statement, HistoryError> {
        let opening = self.balance_as_of(account, from.plus_millis(-1))?;
        let closing = self.balance_as_of(account, to)?;
        let low = self.entries_up_to(from.plus_millis(-1))?.saturating_add(1);
        let mut below = self.entries_up_to(to)?.saturating_add(1);
        let mut entries = Entries::of(self);
        let mut sums = [(0u64, 0i128); EntryType::ALL.len()];
        loop {
            let numbers = newest(&self.database, &of_account(account), (low, below), AT_ONCE)?;
            let Some(oldest) = numbers.last() else { break };
            below = *oldest;
            for number in numbers {
                let entry = entries.get(number)?;
                let (count, sum) = &mut sums[entry.kind as usize];
                *count += 1;
                *sum += entry.amount;
            }
        }
        let movements = EntryType::ALL.into_iter().zip(sums).filter(|(_, (count, _))| *count > 0);
        let movements = movements.map(|(kind, (count, sum))| (kind, count, sum)).collect();
        let statement = Statement { opening, movements, closing };
        if statement.derived_closing() != closing {
            return Err(HistoryError::inconsistent(format!("account {account} does not add up")));
        }
        Ok(statement)
    }
}
