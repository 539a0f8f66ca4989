//! Commands about accounts, their balances, budgets and quotas.

pub(super) mod account;
pub(super) mod balance;
pub(super) mod budget;
pub(super) mod entries;
pub(crate) mod expiry;
pub(super) mod forecast;
pub(super) mod quota;
pub(super) mod statement;
pub(super) mod top;
