//! Refunds: spent credits that go back to the grants they came from.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::amount::{Amount, Sum};
use crate::credits::hold::ReturnedLot;

/// Returns spent credits. Exactly one of `charge`, `hold` and `job`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"charge": "charge_01JAB2C3D4E5F6G7H8J9K0MNPQ", "amount": "2"}))]
pub struct CreateRefund {
    /// The caller's own id.
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
    /// How much; all that is still spent if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount: Option<Amount>,
    /// Re-issue what has expired in the meantime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensate: Option<bool>,
}

/// A refund.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Refund {
    /// Its id.
    pub id: String,
    /// The charge, if it was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub charge: Option<String>,
    /// The hold, if it was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<String>,
    /// The job, if it was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// How much went back.
    pub refunded: Sum,
    /// Where it went, last drawn first.
    pub lots: Vec<ReturnedLot>,
    /// Whether there were more than 100 lots.
    pub lots_truncated: bool,
}
