//! Transfers between accounts of one tenant.

use bursar_api::List;
use bursar_api::credits::transfer::{CreateTransfer, Transfer, TransferFilter};

use crate::call::{Call, path};

/// Moves credits from one account of a tenant to another.
pub fn create(transfer: &CreateTransfer) -> Call<Transfer> {
    Call::post("/v1/transfers", transfer)
}

/// Reads a transfer.
pub fn show(id: &str) -> Call<Transfer> {
    Call::get(path(&["v1", "transfers", id]))
}

/// Transfers, newest first.
pub fn list(filter: &TransferFilter) -> Call<List<Transfer>> {
    Call::get("/v1/transfers").with_query(filter)
}
