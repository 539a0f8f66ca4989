//! Credits: grants, holds, charges, refunds, transfers, prices, usage, and batches of them.

pub mod batches;
pub mod charges;
pub mod grants;
pub mod holds;
pub mod prices;
pub mod refunds;
pub mod transfers;
pub mod usage;
