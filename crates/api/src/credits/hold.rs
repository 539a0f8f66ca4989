//! Holds.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::amount::{Amount, Sum};
use crate::time::Time;

/// What a hold or charge is for: all that it may still turn out to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// GPU types that are acceptable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 64)]
    pub gpu_types: Option<Vec<String>>,
    /// Regions that are acceptable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 64)]
    pub regions: Option<Vec<String>>,
    /// The priority class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
}

/// What happens to held credits whose grant expires.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnExpiry {
    /// They stay capturable while the hold is open.
    #[default]
    HonorHold,
    /// They are cut off at the expiry instant.
    Strict,
}

/// Where a hold is in its life.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HoldState {
    /// Credits are set aside.
    Open,
    /// Ended with a final total.
    Settled,
    /// Ended at what was captured.
    Released,
    /// Its lease ran out.
    Lapsed,
}

/// Sets credits aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"account": "acme:nlp", "amount": "28.8", "ttl_seconds": 3600}))]
pub struct PlaceHold {
    /// The caller's own id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub id: Option<String>,
    /// The account that spends.
    pub account: String,
    /// How much.
    pub amount: Amount,
    /// How long it lives without renewal; 3600 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 315360000)]
    pub ttl_seconds: Option<u64>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Context>,
    /// What happens to held credits whose grant expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_expiry: Option<OnExpiry>,
    /// The caller's own reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1024)]
    pub reference: Option<String>,
}

/// A part that one grant gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Lot {
    /// The grant.
    pub grant: String,
    /// How much.
    pub amount: Sum,
}

/// A part that went back to its grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReturnedLot {
    /// The grant.
    pub grant: String,
    /// How much.
    pub amount: Sum,
    /// Whether the grant had expired, so that the credits are gone.
    pub expired: bool,
}

/// A hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Hold {
    /// Its id.
    pub id: String,
    /// The account that spends.
    pub account: String,
    /// Where it is in its life.
    pub state: HoldState,
    /// How much was set aside.
    pub amount: Sum,
    /// How much of that was captured.
    pub captured: Sum,
    /// How much is still set aside.
    pub remaining: Sum,
    /// Usage that no credits could be found for.
    pub uncollected: Sum,
    /// The last instant before it lapses.
    pub expires_at: Option<Time>,
    /// What it was drawn from, in order, at most 100.
    pub lots: Vec<Lot>,
    /// Whether there are more lots: see `/v1/holds/{id}/lots`.
    pub lots_truncated: bool,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Context>,
    /// What happens to held credits whose grant expires.
    pub on_expiry: OnExpiry,
    /// The caller's own reference.
    pub reference: Option<String>,
    /// When it was placed.
    pub created_at: Time,
    /// What went back to its grants, last drawn first; on calls that close it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub returned: Option<Vec<ReturnedLot>>,
    /// Whether more went back than is listed here: only beyond 10 000 lots.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub returned_truncated: bool,
    /// The ledger's time, on reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Time>,
    /// The ledger's position, on reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
}

/// Spends what was used so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"total": "12.5", "seq": 3}))]
pub struct Capture {
    /// The cumulative usage. Zero is allowed.
    pub total: Amount,
    /// The number of this report; a number already seen changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

/// Sets more aside, for longer, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"amount": "10", "ttl_seconds": 3600}))]
pub struct Extend {
    /// How much more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount: Option<Amount>,
    /// How long it lives from now on; never shortens it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 315360000)]
    pub ttl_seconds: Option<u64>,
}

/// Spends the final usage and returns the rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"total": "20"}))]
pub struct Settle {
    /// The cumulative usage at the end. Zero is allowed.
    pub total: Amount,
}

/// Returns all that was not captured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Release {}

/// Which holds to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct HoldFilter {
    /// Only those of this account.
    pub account: Option<String>,
    /// Only those in this state.
    #[param(inline)]
    pub state: Option<HoldState>,
    /// How many entries at most: 1 to 100, 25 if absent.
    #[param(minimum = 1, maximum = 100)]
    pub limit: Option<u32>,
    /// Where to go on.
    pub cursor: Option<String>,
}
