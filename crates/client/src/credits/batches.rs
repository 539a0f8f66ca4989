//! Many operations in one request.

use bursar_api::credits::batch::{Batch, BatchResults};

use crate::call::Call;

/// Runs operations in order; with `atomic`, all of them or none.
pub fn run(batch: &Batch) -> Call<BatchResults> {
    Call::post("/v1/batch", batch)
}
