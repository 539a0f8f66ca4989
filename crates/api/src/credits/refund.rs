//! Refunds: spent credits returned to the grants they came from.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::amount::{Amount, Sum};
use crate::credits::hold::ReturnedLot;

/// Returns spent credits. Exactly one of `charge`, `hold` and `job`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"charge": "charge_01JAB2C3D4E5F6G7H8J9K0MNPQ", "amount": "2"}))]
pub struct CreateRefund {
    /// An id chosen by the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub id: Option<String>,
    /// The charge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charge: Option<String>,
    /// The closed hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<String>,
    /// The ended job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The amount; all credits not yet refunded if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount: Option<Amount>,
    /// Whether to re-issue credits whose grants have expired since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensate: Option<bool>,
}

/// A refund.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Refund {
    /// Its id.
    pub id: String,
    /// The refunded charge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub charge: Option<String>,
    /// The refunded hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<String>,
    /// The refunded job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The refunded amount.
    pub refunded: Sum,
    /// The grants it returned to, last drawn first.
    pub lots: Vec<ReturnedLot>,
    /// Whether there were more than 100 lots.
    pub lots_truncated: bool,
}
