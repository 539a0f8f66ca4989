//! Charges: credits spent immediately.

use bursar_api::List;
use bursar_api::credits::charge::{Charge, ChargeFilter, CreateCharge};

use crate::call::{Call, path};

/// Spends credits immediately.
pub fn create(charge: &CreateCharge) -> Call<Charge> {
    Call::post("/v1/charges", charge)
}

/// Reads a charge.
pub fn show(id: &str) -> Call<Charge> {
    Call::get(path(&["v1", "charges", id]))
}

/// Charges, newest first.
pub fn list(filter: &ChargeFilter) -> Call<List<Charge>> {
    Call::get("/v1/charges").with_query(filter)
}
