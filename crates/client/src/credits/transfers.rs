//! Transfers between accounts of one tenant.

use bursar_api::credits::transfer::{CreateTransfer, Transfer};

use crate::call::Call;

/// Moves credits from one account of a tenant to another.
pub fn create(transfer: &CreateTransfer) -> Call<Transfer> {
    Call::post("/v1/transfers", transfer)
}
