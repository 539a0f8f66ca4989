//! Refunds: spent credits returned to the grants they came from.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::amount::{Amount, Sum};
use crate::credits::hold::ReturnedLot;
use crate::time::Time;

/// Returns spent credits. Exactly one of `charge`, `hold` and `job`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"charge": "charge_01JAB2C3D4E5F6G7H8J9K0MNPQ", "amount": "2",
    "reason": "The node failed"}))]
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
    /// Why, for people; at most 1024 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The caller's own reference, such as the number of a ticket; at most 1024 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
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
    /// The account that had spent the credits; only on reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The caller's own reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The refunded amount.
    pub refunded: Sum,
    /// The grants it returned to, last drawn first.
    pub lots: Vec<ReturnedLot>,
    /// Whether there were more than 100 lots.
    pub lots_truncated: bool,
    /// When it was made; only on reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Time>,
    /// The ledger's time; only on reads of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Time>,
    /// The ledger's position; only on reads of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
}

/// Which refunds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RefundFilter {
    /// Only of what this account, or one below it, had spent.
    pub account: Option<String>,
    /// Only of this charge.
    pub charge: Option<String>,
    /// Only of this hold.
    pub hold: Option<String>,
    /// Only of this job.
    pub job: Option<String>,
    /// Only from this instant on.
    pub from: Option<Time>,
    /// Only before this instant.
    pub to: Option<Time>,
    /// How many refunds at most: 1 to 100, 25 if absent.
    #[param(minimum = 1, maximum = 100)]
    pub limit: Option<u32>,
    /// The cursor of the next page.
    pub cursor: Option<String>,
}
