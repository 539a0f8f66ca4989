//! Credits: grants, holds, charges, refunds, transfers, prices, usage, and batches of them.

pub mod batch;
pub mod charge;
pub mod grant;
pub mod hold;
pub mod price;
pub mod refund;
pub mod transfer;
pub mod usage;
