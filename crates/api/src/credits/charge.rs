//! Charges: credits spent at once.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::amount::{Amount, Sum};
use crate::credits::hold::{Context, Lot};
use crate::time::Time;

/// Spends credits at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"account": "acme:nlp", "amount": "5"}))]
pub struct CreateCharge {
    /// The caller's own id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub id: Option<String>,
    /// The account that spends.
    pub account: String,
    /// How much.
    pub amount: Amount,
    /// Take what there is if that is less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_partial: Option<bool>,
    /// What it is for.
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
    /// How much was asked for.
    pub requested: Sum,
    /// How much was spent.
    pub charged: Sum,
    /// How much of that was refunded since, on reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refunded: Option<Sum>,
    /// What it was drawn from, in order, at most 100.
    pub lots: Vec<Lot>,
    /// Whether there are more lots.
    pub lots_truncated: bool,
    /// What the account could still spend in the same context afterwards.
    pub spendable_after: Sum,
    /// When the usage happened, if it was reported late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective_at: Option<Time>,
    /// When it was made.
    pub created_at: Time,
    /// The ledger's time, on reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Time>,
    /// The ledger's position, on reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
}
