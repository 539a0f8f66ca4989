//! Commands about accounts, and what they have and may use.

pub(super) mod account;
pub(super) mod balance;
pub(super) mod budget;
pub(super) mod entries;
pub(super) mod quota;
pub(super) mod top;
