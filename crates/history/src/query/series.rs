//! Amounts of an account at many instants.

use bursar_core::time::Timestamp;

use crate::database::{Columns, Database};
use crate::error::HistoryError;
use crate::levels::AccountLevel;
use crate::project::{History, Totals, decode_rest};

/// An amount of an account's own credits.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Free credits.
    Available,
    /// Credits that open holds of any account hold.
    Held,
    /// Credits spent by any account since the account was opened, less refunds.
    Spent,
    /// Credits that expired since the account was opened.
    Expired,
}

/// What an account and all below it hold and have spent, whichever account owns the credits.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct SpenderTotals {
    /// Held by open holds, not captured.
    pub held: i128,
    /// Spent since the account was opened, less refunds.
    pub spent: i128,
}

impl<D: Database> History<D> {
    /// An amount of an account at each of these instants, after all events at it.
    pub fn series(
        &self,
        account: u32,
        metric: Metric,
        instants: &[Timestamp],
    ) -> Result<Vec<i128>, HistoryError> {
        self.at_one_position(|history| {
            instants.iter().map(|at| history.amount_at(account, metric, *at)).collect()
        })
    }

    fn amount_at(&self, account: u32, metric: Metric, at: Timestamp) -> Result<i128, HistoryError> {
        match metric {
            Metric::Available => Ok(self.balance_as_of(account, at)?.available),
            Metric::Held => Ok(self.balance_as_of(account, at)?.held),
            Metric::Spent => {
                // Credits that entered and have not left are available, held or spent.
                let funded = self.account_level(account, AccountLevel::Funded, at)?;
                let balance = self.balance_as_of(account, at)?;
                Ok(funded - balance.available - balance.held)
            }
            Metric::Expired => self.account_level(account, AccountLevel::Expired, at),
        }
    }

    /// What an account and all below it hold now and have spent so far.
    pub fn spender_totals(&self, account: u32) -> Result<SpenderTotals, HistoryError> {
        let sql = "SELECT rest FROM account_states WHERE number = ?1";
        let rows = self.database.query(sql, &[account.into()])?;
        let Some(row) = rows.into_iter().next() else { return Ok(SpenderTotals::default()) };
        let (_, _, Totals { held_by, spent_by, .. }) = decode_rest(&Columns::of(row).bytes()?)?;
        Ok(SpenderTotals { held: held_by, spent: spent_by })
    }
}
