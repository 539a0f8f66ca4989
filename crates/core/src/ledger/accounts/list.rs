//! Lists of accounts, grants and holds, read in bounded steps so that no command waits long.

use super::account::Account;
use crate::ledger::credits::grant::Grant;
use crate::ledger::holds::hold::Hold;
use crate::ledger::id::{AccountNo, GrantNo, HoldNo};
use crate::ledger::state::Ledger;

impl Ledger {
    /// The number of accounts; they are numbered from 0.
    pub fn account_count(&self) -> u32 {
        u32::try_from(self.accounts.len()).unwrap_or(u32::MAX)
    }

    /// Accounts with a number below `before`, newest first.
    pub fn accounts_before(&self, before: u32) -> impl Iterator<Item = (AccountNo, &Account)> {
        let numbers = (0..self.account_count().min(before)).rev().map(AccountNo);
        numbers.map(|number| (number, self.account(number)))
    }

    /// The accounts that are tenants, oldest first.
    pub fn tenants(&self) -> impl Iterator<Item = AccountNo> {
        let all = (0..).map(AccountNo).zip(&self.accounts);
        all.filter(|(_, account)| account.parent.is_none()).map(|(number, _)| number)
    }

    /// The number of grants; they are numbered from 0.
    pub fn grant_count(&self) -> u32 {
        u32::try_from(self.grants.len()).unwrap_or(u32::MAX)
    }

    /// Grants with a number below `before`, newest first.
    pub fn grants_before(&self, before: u32) -> impl Iterator<Item = (GrantNo, &Grant)> {
        let numbers = (0..self.grant_count().min(before)).rev().map(GrantNo);
        numbers.map(|number| (number, self.grant(number)))
    }

    /// Holds and charges that are not forgotten, among `count` numbers from `first` on. Numbers are
    /// reused, so their order is not chronological.
    pub fn holds_from(&self, first: u32, count: u32) -> impl Iterator<Item = (HoldNo, &Hold)> {
        let end = self.hold_places().min(first.saturating_add(count));
        let numbers = (first..end).map(HoldNo);
        numbers.filter_map(|number| Some((number, self.hold(number)?)))
    }

    /// The number of slots for holds and charges, which is the most that ever existed at once.
    pub fn hold_places(&self) -> u32 {
        self.holds.places()
    }
}
