//! Entries: the movements of credits.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::amount::Sum;
use crate::time::Time;

/// A movement of an account's credits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Entry {
    /// Its id.
    pub id: String,
    /// When it happened.
    pub at: Time,
    /// What happened: `granted`, `held`, `captured`, `returned`, `expired`, `revoked`, `refunded`,
    /// `reissued`, `moved`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// The amount.
    pub amount: Sum,
    /// The account that owns the credits.
    pub account: String,
    /// By how much it changed the available credits of `account`.
    pub available_change: Sum,
    /// By how much it changed the held credits of `account`.
    pub held_change: Sum,
    /// By how much it changed the spent credits of `account`: spending is positive, a refund negative.
    pub spent_change: Sum,
    /// The account that held or spent the credits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spender: Option<String>,
    /// The grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
    /// The hold or charge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<String>,
    /// The job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The refund.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refund: Option<String>,
    /// The transfer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer: Option<String>,
    /// The repayment of uncollected usage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collection: Option<String>,
    /// Why it was refunded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The caller's own reference: of the refund, else of the hold, else of the grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The available credits of `account` after the movement.
    pub balance_after: Sum,
}

/// Whose movements.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EntriesView {
    /// Movements of the account's own credits.
    #[default]
    Own,
    /// Movements of credits that the account held or spent, whichever account owns them.
    Spent,
    /// Both.
    All,
    /// Both, of the account and of every account below it.
    Subtree,
}

/// Which entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EntriesQuery {
    /// `own` (the default): movements of the account's own credits. `spent`: movements of credits that
    /// it held or spent, whichever account owns them. `all`: both. `subtree`: both, of the account and
    /// of every account below it, at most 1 000.
    #[param(inline)]
    pub view: Option<EntriesView>,
    /// Only from this instant on.
    pub from: Option<Time>,
    /// Only before this instant.
    pub to: Option<Time>,
    /// Only these types, separated by commas, such as `captured,charged,refunded`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Only what this account, or one below it, held or spent.
    pub spender: Option<String>,
    /// Only what concerns this job.
    pub job: Option<String>,
    /// Only entries that name this grant.
    pub grant: Option<String>,
    /// How many entries at most: 1 to 100, 25 if absent. With a filter a page may have fewer, or none,
    /// although more follow.
    #[param(minimum = 1, maximum = 100)]
    pub limit: Option<u32>,
    /// The cursor of the next page.
    pub cursor: Option<String>,
    /// Wait until history has reached this position.
    pub min_position: Option<u64>,
}
