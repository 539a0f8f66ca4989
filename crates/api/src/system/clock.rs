//! The manual clock.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::time::Time;

/// The manual clock.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Clock {
    /// The present instant.
    pub now: Time,
}

/// Moves the clock forward. Exactly one of `now` and `advance_seconds`.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"advance_seconds": 60}))]
pub struct MoveClock {
    /// To this instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<Time>,
    /// By this much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advance_seconds: Option<u64>,
}
