//! Accounts with their budgets, quotas and regions. Balances and lists are read here.

pub mod account;
pub mod budget;
pub mod effective;
pub mod expiring;
mod forecast;
pub mod list;
pub mod past_usage;
pub mod quota;
pub mod region;
pub mod tally;
pub mod view;
