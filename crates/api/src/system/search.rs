//! Finding things by their id or name.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::time::Time;

/// What to find.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SearchQuery {
    /// An id, or the beginning of an id or name.
    #[param(min_length = 1, max_length = 128)]
    pub q: String,
    /// How many hits at most: 1 to 100, 25 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 100)]
    pub limit: Option<u32>,
}

/// The kind of a hit.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HitType {
    /// An account.
    Account,
    /// A job.
    Job,
    /// A hold.
    Hold,
    /// A grant.
    Grant,
    /// A charge.
    Charge,
    /// An API key. Only administrators find keys.
    Key,
    /// A record of the audit trail that a request made. Only administrators and auditors find
    /// requests.
    Request,
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Hit {
    /// What it is.
    pub kind: HitType,
    /// Its id.
    pub id: String,
    /// Its account; of a key, its scope.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Its display name; of a request, the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether `q` is its whole id.
    pub exact: bool,
    /// When it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
    /// Of a request: the position of the record in the journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// Of a request: the machine that has the record, if it is not the ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
}

/// What was found, whole ids first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SearchResult {
    /// The hits.
    pub data: Vec<Hit>,
    /// Whether there are more.
    pub truncated: bool,
}
