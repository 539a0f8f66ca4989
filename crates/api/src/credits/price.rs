//! The price book: versions with the instant from which on each counts.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::amount::{Amount, Sum};
use crate::time::Time;

/// Adds a version of a price.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"per_gpu_hour": "2.5"}))]
pub struct SetPrice {
    /// Credits per hour of one whole GPU.
    pub per_gpu_hour: Amount,
    /// The region; all without a price of their own if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub region: Option<String>,
    /// From when on it counts; now if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_at: Option<Time>,
}

/// A version of a price.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Price {
    /// The GPU type.
    pub gpu_type: String,
    /// The region; all without a price of their own if absent.
    pub region: Option<String>,
    /// Credits per hour of one whole GPU.
    pub per_gpu_hour: Sum,
    /// From when on it counts.
    pub effective_at: Time,
    /// The number of this version, growing per GPU type and region.
    pub version: u32,
}

/// The prices that count at an instant.
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
    /// Checked and otherwise without effect: the list is short and comes as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 100)]
    pub limit: Option<u32>,
    /// There is none: the list has one page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
