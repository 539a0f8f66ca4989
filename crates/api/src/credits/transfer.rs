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
    /// The caller's own id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub id: Option<String>,
    /// The account whose own grants are drawn.
    pub from: String,
    /// The account that gets them.
    pub to: String,
    /// How much.
    pub amount: Amount,
}

/// A transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Transfer {
    /// Its id.
    pub id: String,
    /// Where the credits came from.
    pub from: String,
    /// Where they went.
    pub to: String,
    /// How much.
    pub amount: Sum,
    /// What was drawn, in order, at most 100.
    pub lots: Vec<Lot>,
    /// Whether there were more.
    pub lots_truncated: bool,
}
