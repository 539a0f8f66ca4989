//! Credits: how they come in, where they are kept, in which order they are spent, and prices.

pub mod bucket;
pub mod grant;
pub mod price;
pub mod spend_order;
