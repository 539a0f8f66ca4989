//! Walking through what there is, a bounded step at a time, so that no command waits long.

use super::account::Account;
use super::grant::Grant;
use super::hold::Hold;
use super::id::{AccountNo, GrantNo, HoldNo};
use super::state::Ledger;

impl Ledger {
    /// How many accounts there are; they are numbered from 0.
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

    /// How many grants there are; they are numbered from 0.
    pub fn grant_count(&self) -> u32 {
        u32::try_from(self.grants.len()).unwrap_or(u32::MAX)
    }

    /// Grants with a number below `before`, newest first.
    pub fn grants_before(&self, before: u32) -> impl Iterator<Item = (GrantNo, &Grant)> {
        let numbers = (0..self.grant_count().min(before)).rev().map(GrantNo);
        numbers.map(|number| (number, self.grant(number)))
    }

    /// Holds and charges that are not forgotten, in order of their numbers, which says nothing
    /// about time: numbers are used again.
    pub fn holds(&self) -> impl Iterator<Item = (HoldNo, &Hold)> {
        self.holds.iter().map(|(number, hold)| (HoldNo(number), hold))
    }
}
