//! The price book: versions and the instant at which each takes effect.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::amount::{Amount, Sum};
use crate::time::Time;

/// Sets a price by adding a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"per_gpu_hour": "2.5"}))]
pub struct SetPrice {
    /// Credits per hour of one whole GPU.
    pub per_gpu_hour: Amount,
    /// The region; every region without its own price if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub region: Option<String>,
    /// When the price takes effect; now if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_at: Option<Time>,
}

/// A version of a price.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Price {
    /// The GPU type.
    pub gpu_type: String,
    /// The region; every region without its own price if absent.
    pub region: Option<String>,
    /// Credits per hour of one whole GPU.
    pub per_gpu_hour: Sum,
    /// When the price takes effect.
    pub effective_at: Time,
    /// The number of this version, growing per GPU type and region.
    pub version: u32,
}

/// The prices in effect at an instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Prices {
    /// One per GPU type and region, in order of both.
    pub data: Vec<Price>,
    /// Always false.
    pub has_more: bool,
    /// Always absent.
    pub next_cursor: Option<String>,
    /// The instant.
    pub as_of: Time,
}

/// Which prices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PriceQuery {
    /// The instant; now if absent.
    pub at: Option<Time>,
    /// Validated, but without effect: the list is always complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 100)]
    pub limit: Option<u32>,
    /// Without effect: the list has one page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
