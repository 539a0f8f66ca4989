//! Refunds: spent credits returned to their grants.

use bursar_api::List;
use bursar_api::credits::refund::{CreateRefund, Refund, RefundFilter};

use crate::call::{Call, path};

/// Refunds a charge, a closed hold or an ended job.
pub fn create(refund: &CreateRefund) -> Call<Refund> {
    Call::post("/v1/refunds", refund)
}

/// Reads a refund.
pub fn show(id: &str) -> Call<Refund> {
    Call::get(path(&["v1", "refunds", id]))
}

/// Refunds, newest first.
pub fn list(filter: &RefundFilter) -> Call<List<Refund>> {
    Call::get("/v1/refunds").with_query(filter)
}
