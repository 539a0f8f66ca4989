//! What jobs cost: prices, holds, usage, refunds and reports of spending.

pub(crate) mod catalog;
mod funds;
mod refunds;
mod spending;
mod usage;
