//! Past balances, and statements between two of them.

use bursar_core::time::Timestamp;

use super::entries::{Entries, of_account};
use crate::database::Database;
use crate::entry::EntryType;
use crate::error::HistoryError;
use crate::lists::newest;
use crate::project::History;

/// The balance of an account at an instant, after all events at that instant.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct AsOf {
    /// Free credits of its own grants.
    pub available: i128,
    /// The amount of its own grants that open holds held.
    pub held: i128,
}

/// Two balances and the movements between them, exact to the micro-credit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The balance just before the first instant.
    pub opening: AsOf,
    /// The movements by type, in the order of types: count and total amount.
    pub movements: Vec<(EntryType, u64, i128)>,
    /// The balance after the last instant.
    pub closing: AsOf,
}

impl Statement {
    /// Opening balance plus movements. Always equal to the closing balance.
    pub fn derived_closing(&self) -> AsOf {
        let mut sum = self.opening;
        for (kind, _, amount) in &self.movements {
            let changes = kind.changes(*amount);
            sum.available += changes.available;
            sum.held += changes.held;
        }
        sum
    }

    /// The credits of the account that were spent, less refunds.
    pub fn spent(&self) -> i128 {
        self.movements.iter().map(|(kind, _, amount)| kind.changes(*amount).spent).sum()
    }
}

/// The number of entries looked up at once.
const AT_ONCE: usize = 1024;

impl<D: Database> History<D> {
    /// The balance of an account at `at`.
    pub fn balance_as_of(&self, account: u32, at: Timestamp) -> Result<AsOf, HistoryError> {
        let below = self.entries_up_to(at)?.saturating_add(1);
        let last = newest(&self.database, &of_account(account), (0, below), 1)?;
        let Some(last) = last.first() else { return Ok(AsOf::default()) };
        let last = Entries::of(self).get(*last)?;
        Ok(AsOf { available: last.available_after, held: last.held_after })
    }

    /// The statement of an account from `from` to `to`, both included.
    pub fn statement(
        &self,
        account: u32,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Statement, HistoryError> {
        self.at_one_position(|history| history.statement_now(account, from, to))
    }

    fn statement_now(
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
