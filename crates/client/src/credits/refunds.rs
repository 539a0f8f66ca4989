//! Refunds: spent credits returned to their grants.

use bursar_api::credits::refund::{CreateRefund, Refund};

use crate::call::Call;

/// Refunds a charge, a closed hold or an ended job.
pub fn create(refund: &CreateRefund) -> Call<Refund> {
    Call::post("/v1/refunds", refund)
}
