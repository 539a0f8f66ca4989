//! Priority classes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::amount::Amount;

/// Sets or replaces a priority class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "rank": 25, "preempts": ["batch"], "grace_seconds": 60, "default_preemptible": true
}))]
pub struct SetClass {
    /// A higher rank is scheduled first.
    pub rank: u32,
    /// The classes whose jobs may be preempted for this one.
    #[schema(max_items = 64)]
    pub preempts: Vec<String>,
    /// The grace period of a stopped job, to save its work.
    #[schema(maximum = 86400)]
    pub grace_seconds: u32,
    /// Whether its jobs are preemptible by default.
    pub default_preemptible: bool,
    /// The price multiplier, with at most three decimals; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_multiplier: Option<Amount>,
}

/// A priority class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// A higher rank is scheduled first.
    pub rank: u32,
    /// The classes whose jobs may be preempted for this one.
    pub preempts: Vec<String>,
    /// The grace period of a stopped job, to save its work.
    pub grace_seconds: u32,
    /// Whether its jobs are preemptible by default.
    pub default_preemptible: bool,
    /// The price multiplier.
    pub price_multiplier: crate::amount::Sum,
}
