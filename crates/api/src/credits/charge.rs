//! Charges: credits spent immediately.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::amount::{Amount, Sum};
use crate::credits::hold::{Context, Lot};
use crate::time::Time;

/// Spends credits immediately.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"account": "acme:nlp", "amount": "5"}))]
pub struct CreateCharge {
    /// An id chosen by the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub id: Option<String>,
    /// The account that spends.
    pub account: String,
    /// The amount.
    pub amount: Amount,
    /// Whether to charge less if fewer credits are spendable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_partial: Option<bool>,
    /// The GPU types, regions and class that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Context>,
    /// When the usage happened; now if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_at: Option<Time>,
}

/// A charge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Charge {
    /// Its id.
    pub id: String,
    /// The account that spent.
    pub account: String,
    /// The requested amount.
    pub requested: Sum,
    /// The charged amount.
    pub charged: Sum,
    /// The amount refunded since; only on reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refunded: Option<Sum>,
    /// The grants drawn from, in order, at most 100.
    pub lots: Vec<Lot>,
    /// Whether there are more lots.
    pub lots_truncated: bool,
    /// Credits still spendable in the same context after the charge.
    pub spendable_after: Sum,
    /// When the usage happened, if it was reported late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective_at: Option<Time>,
    /// When it was created.
    pub created_at: Time,
    /// The ledger's time; only on reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Time>,
    /// The ledger's position; only on reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
}

/// Which charges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ChargeFilter {
    /// Only of this account and all below it.
    pub account: Option<String>,
    /// Only from this instant on.
    pub from: Option<Time>,
    /// Only before this instant.
    pub to: Option<Time>,
    /// How many charges at most: 1 to 100, 25 if absent.
    #[param(minimum = 1, maximum = 100)]
    pub limit: Option<u32>,
    /// The cursor of the next page.
    pub cursor: Option<String>,
}
