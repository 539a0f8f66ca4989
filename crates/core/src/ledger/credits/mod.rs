//! Credits: grants, buckets, spend order and prices.

pub mod bucket;
pub mod grant;
pub mod price;
pub mod spend_order;
