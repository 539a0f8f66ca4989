//! Holds.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::amount::{Amount, Sum};
use crate::time::Time;

/// The GPU types, regions and class that a hold or charge may be used for.
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
    /// The credits stay capturable while the hold is open.
    #[default]
    HonorHold,
    /// The credits cannot be captured after the expiry instant.
    Strict,
}

/// The state of a hold.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HoldState {
    /// Credits are reserved.
    Open,
    /// Ended with a final total.
    Settled,
    /// Ended; only captured credits were spent.
    Released,
    /// Its TTL ran out.
    Lapsed,
}

/// Reserves credits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"account": "acme:nlp", "amount": "28.8", "ttl_seconds": 3600}))]
pub struct PlaceHold {
    /// An id chosen by the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub id: Option<String>,
    /// The account that spends.
    pub account: String,
    /// The amount.
    pub amount: Amount,
    /// Seconds until it lapses unless extended; 3600 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 315360000)]
    pub ttl_seconds: Option<u64>,
    /// The GPU types, regions and class that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Context>,
    /// What happens to held credits whose grant expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_expiry: Option<OnExpiry>,
    /// A reference chosen by the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1024)]
    pub reference: Option<String>,
}

/// The part drawn from one grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Lot {
    /// The grant.
    pub grant: String,
    /// The amount.
    pub amount: Sum,
}

/// The part returned to one grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReturnedLot {
    /// The grant.
    pub grant: String,
    /// The amount.
    pub amount: Sum,
    /// Whether the grant had expired, so that the credits are lost.
    pub expired: bool,
}

/// A hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Hold {
    /// Its id.
    pub id: String,
    /// The account that spends.
    pub account: String,
    /// The state.
    pub state: HoldState,
    /// The reserved amount.
    pub amount: Sum,
    /// The captured part of it.
    pub captured: Sum,
    /// The part that is still reserved.
    pub remaining: Sum,
    /// Usage that credits did not cover.
    pub uncollected: Sum,
    /// The last instant before it lapses.
    pub expires_at: Option<Time>,
    /// The grants drawn from, in order, at most 100.
    pub lots: Vec<Lot>,
    /// Whether there are more lots: see `/v1/holds/{id}/lots`.
    pub lots_truncated: bool,
    /// The GPU types, regions and class that it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Context>,
    /// What happens to held credits whose grant expires.
    pub on_expiry: OnExpiry,
    /// A reference chosen by the caller.
    pub reference: Option<String>,
    /// When it was placed.
    pub created_at: Time,
    /// Credits returned to their grants, last drawn first; only in answers to calls that close the hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub returned: Option<Vec<ReturnedLot>>,
    /// Whether the list of returned lots is incomplete: only beyond 10 000 lots.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub returned_truncated: bool,
    /// The ledger's time; only on reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Time>,
    /// The ledger's position; only on reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
}

/// Spends the usage so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"total": "12.5", "seq": 3}))]
pub struct Capture {
    /// The cumulative usage. Zero is allowed.
    pub total: Amount,
    /// The sequence number of this report; a repeated number changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

/// Extends a hold: a larger amount, a longer TTL, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"amount": "10", "ttl_seconds": 3600}))]
pub struct Extend {
    /// The additional amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount: Option<Amount>,
    /// Seconds from now until the hold lapses; never shortens it.
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

/// Releases a hold: credits that were not captured return to their grants.
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
    /// The cursor of the next page.
    pub cursor: Option<String>,
}
