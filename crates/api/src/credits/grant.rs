//! Grants.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use crate::amount::{Amount, Sum};
use crate::time::Time;

/// Kinds of grant.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum GrantKind {
    /// Bought credits.
    Purchase,
    /// Credits issued without payment.
    Grant,
    /// Credits issued without payment and with restrictions.
    Promotion,
    /// Credits issued after a platform failure.
    Compensation,
}

/// The names of all kinds.
pub const GRANT_KINDS: &[&str] = &ByKind::KINDS;

/// Amounts by kind of grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ByKind {
    /// Bought credits.
    pub purchase: Sum,
    /// Credits issued without payment.
    pub grant: Sum,
    /// Credits issued without payment and with restrictions.
    pub promotion: Sum,
    /// Credits issued after a platform failure.
    pub compensation: Sum,
}

impl ByKind {
    /// The names of the kinds, in the order of the fields.
    pub const KINDS: [&'static str; 4] = ["purchase", "grant", "promotion", "compensation"];

    /// Each kind with its amount, in the order of the fields.
    pub fn rows(&self) -> [(&'static str, Sum); ByKind::KINDS.len()] {
        let [purchase, grant, promotion, compensation] = ByKind::KINDS;
        [
            (purchase, self.purchase),
            (grant, self.grant),
            (promotion, self.promotion),
            (compensation, self.compensation),
        ]
    }
}

/// What a grant may be spent on. An absent list allows everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Restriction {
    /// GPU types.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 64)]
    pub gpu_types: Option<Vec<String>>,
    /// Regions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 64)]
    pub regions: Option<Vec<String>>,
    /// Priority classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 64)]
    pub classes: Option<Vec<String>>,
    /// The largest part of one hold that may come from this grant, as a decimal up to 1. Promotions
    /// only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_share: Option<Amount>,
}

/// Issues credits to an account.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "account": "acme", "amount": "1000", "kind": "purchase", "expires_at": "2027-01-31T12:00:00.000Z"
}))]
pub struct IssueGrant {
    /// An id chosen by the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub id: Option<String>,
    /// The account that receives the grant.
    pub account: String,
    /// The amount.
    pub amount: Amount,
    /// The kind of the grant.
    pub kind: GrantKind,
    /// The first instant at which it can be spent; now if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_at: Option<Time>,
    /// The last instant at which it can be spent; never expires if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    /// Lower is spent first; 100 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// What the grant may be spent on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restrict: Option<Restriction>,
    /// A reference chosen by the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1024)]
    pub reference: Option<String>,
    /// Free-form metadata, returned unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

/// A grant: amount = available + held + spent + expired + revoked + moved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Grant {
    /// Its id.
    pub id: String,
    /// The account that owns the grant.
    pub account: String,
    /// The granted amount.
    pub amount: Sum,
    /// The kind of the grant.
    pub kind: GrantKind,
    /// The first instant at which it can be spent.
    pub effective_at: Time,
    /// The last instant at which it can be spent.
    pub expires_at: Option<Time>,
    /// Lower is spent first.
    pub priority: u8,
    /// What the grant may be spent on.
    pub restrict: Option<Restriction>,
    /// A reference chosen by the caller.
    pub reference: Option<String>,
    /// Free-form metadata.
    pub metadata: Option<Value>,
    /// Neither held nor spent.
    pub available: Sum,
    /// Reserved by open holds.
    pub held: Sum,
    /// Spent.
    pub spent: Sum,
    /// Expired unspent.
    pub expired: Sum,
    /// Revoked.
    pub revoked: Sum,
    /// Transferred out.
    pub moved: Sum,
    /// Whether it was revoked.
    pub is_revoked: bool,
    /// When it was issued.
    pub created_at: Time,
    /// The ledger's time; only on reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Time>,
    /// The ledger's position; only on reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
}

/// Which grants to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GrantFilter {
    /// Only those of this account.
    pub account: Option<String>,
    /// How many entries at most: 1 to 100, 25 if absent.
    #[param(minimum = 1, maximum = 100)]
    pub limit: Option<u32>,
    /// The cursor of the next page.
    pub cursor: Option<String>,
}
