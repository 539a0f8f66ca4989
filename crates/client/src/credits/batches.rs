//! Many operations in one request.

use bursar_api::credits::batch::{Batch, BatchResults, Operation};

use crate::call::{Call, Nothing};

/// Runs operations in order; with `atomic`, all of them or none.
pub fn run(batch: &Batch) -> Call<BatchResults> {
    Call::post("/v1/batch", batch)
}

/// Says whether a change would be accepted now, without making it.
pub fn dry_run(operation: &Operation) -> Call<Nothing> {
    Call::post("/v1/dry-run", operation)
}
