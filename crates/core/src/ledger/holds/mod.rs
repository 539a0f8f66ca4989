//! Holds and everything that moves credits: captures, charges, refunds, transfers.

pub mod apply;
pub mod archive;
pub mod capture;
pub mod charge;
pub mod close;
pub mod collect;
pub mod forget;
pub mod forgettable;
pub mod hold;
pub mod past;
pub mod refund;
pub mod retention;
pub mod transfer;
