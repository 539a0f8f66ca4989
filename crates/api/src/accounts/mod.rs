//! Accounts, their balances, budgets and quotas.

pub mod account;
pub mod balance;
pub mod budget;
pub mod effective;
pub mod entry;
pub mod forecast;
pub mod quota;
pub mod spend;
pub mod statement;
pub mod top;
