//! Commands that move credits.

pub(super) mod batch;
pub(super) mod charge;
pub(super) mod grant;
pub(super) mod hold;
pub(super) mod price;
pub(super) mod refund;
pub(super) mod transfer;
pub(super) mod usage;
