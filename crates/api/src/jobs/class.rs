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
    /// Higher goes first.
    pub rank: u32,
    /// The classes whose jobs may be stopped for this one.
    #[schema(max_items = 64)]
    pub preempts: Vec<String>,
    /// How long a stopped job has to save its work.
    #[schema(maximum = 86400)]
    pub grace_seconds: u32,
    /// Whether its jobs may be stopped unless they say otherwise.
    pub default_preemptible: bool,
    /// What its price is multiplied by, with at most three decimals; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_multiplier: Option<Amount>,
}

/// A priority class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Higher goes first.
    pub rank: u32,
    /// The classes whose jobs may be stopped for this one.
    pub preempts: Vec<String>,
    /// How long a stopped job has to save its work.
    pub grace_seconds: u32,
    /// Whether its jobs may be stopped unless they say otherwise.
    pub default_preemptible: bool,
    /// What its price is multiplied by.
    pub price_multiplier: crate::amount::Sum,
}
