//! The price book.

use bursar_api::credits::price::{Price, PriceQuery, Prices, SetPrice};

use crate::call::{Call, path};

/// Sets a price by adding a version.
pub fn set(gpu_type: &str, price: &SetPrice) -> Call<Price> {
    Call::put(path(&["v1", "prices", gpu_type]), price)
}

/// The prices in effect at an instant.
pub fn list(query: &PriceQuery) -> Call<Prices> {
    Call::get("/v1/prices").with_query(query)
}
