//! Transfers between accounts of one tenant.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::amount::{Amount, Sum};
use crate::credits::hold::Lot;

/// Moves credits from one account of a tenant to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"from": "acme", "to": "acme:nlp", "amount": "100"}))]
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
    /// The grants drawn from, in order, at most 100.
    pub lots: Vec<Lot>,
    /// Whether there are more lots.
    pub lots_truncated: bool,
}
