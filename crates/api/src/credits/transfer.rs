//! Transfers between accounts of one tenant.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::amount::{Amount, Sum};
use crate::credits::hold::Lot;
use crate::time::Time;

/// Moves credits from one account of a tenant to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"from": "acme", "to": "acme:nlp", "amount": "100",
    "reason": "Second quarter"}))]
pub struct CreateTransfer {
    /// An id chosen by the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub id: Option<String>,
    /// The account whose own grants are drawn.
    pub from: String,
    /// The account that receives the credits.
    pub to: String,
    /// The amount.
    pub amount: Amount,
    /// Why, for people; at most 1024 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The caller's own reference, such as the number of a ticket; at most 1024 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// A transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Transfer {
    /// Its id.
    pub id: String,
    /// The account that the credits left.
    pub from: String,
    /// The account that received them.
    pub to: String,
    /// The amount.
    pub amount: Sum,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The caller's own reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The grants drawn from, in order, at most 100.
    pub lots: Vec<Lot>,
    /// Whether there are more lots.
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

/// Which transfers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TransferFilter {
    /// Only from or to this account or one below it.
    pub account: Option<String>,
    /// Only from this instant on.
    pub from: Option<Time>,
    /// Only before this instant.
    pub to: Option<Time>,
    /// How many transfers at most: 1 to 100, 25 if absent.
    #[param(minimum = 1, maximum = 100)]
    pub limit: Option<u32>,
    /// The cursor of the next page.
    pub cursor: Option<String>,
}
