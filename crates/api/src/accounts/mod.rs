//! Accounts, and what they have and may use.

pub mod account;
pub mod balance;
pub mod budget;
pub mod quota;
pub mod top;
