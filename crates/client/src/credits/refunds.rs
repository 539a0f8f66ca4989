//! Refunds: spent credits that go back to their grants.

use bursar_api::credits::refund::{CreateRefund, Refund};

use crate::call::Call;

/// Returns what a charge, a closed hold or an ended job has spent.
pub fn create(refund: &CreateRefund) -> Call<Refund> {
    Call::post("/v1/refunds", refund)
}
