//! The audit trail, its proofs, and the feed of events.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::time::Time;

/// Which records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// Only those that concern this account or one below it.
    pub account: Option<String>,
    /// Only those that concern this job.
    pub job: Option<String>,
    /// Only those behind this position.
    pub after: Option<u64>,
    /// How many at most: 1 to 100, 25 if absent.
    #[param(minimum = 1, maximum = 100)]
    pub limit: Option<u32>,
}

/// One record: one decision and what happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditRecord {
    /// Its position in the journal.
    pub position: u64,
    /// When.
    pub at: Time,
    /// Who asked: a key, or the platform.
    pub actor: Option<String>,
    /// What happened, in order.
    pub events: Vec<AuditEvent>,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditEvent {
    /// What kind of thing.
    #[serde(rename = "type")]
    #[schema(example = "hold.placed")]
    pub kind: String,
    /// The account it concerns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Its particulars.
    pub data: Value,
}

/// An event of the feed, as the data of one server-sent event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FeedEvent {
    /// Its id: pass it as `Last-Event-ID` to go on behind it.
    pub id: String,
    /// What kind of thing.
    #[serde(rename = "type")]
    #[schema(example = "hold.placed")]
    pub kind: String,
    /// When.
    pub at: Time,
    /// The position of its record.
    pub position: u64,
    /// The account it concerns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Its particulars.
    pub data: Value,
}

/// Where to begin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// The id of the last event already seen; the present if absent, `0` for the beginning.
    pub after: Option<String>,
}

/// A signed statement of how far the journal has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Checkpoint {
    /// The journal.
    pub journal: String,
    /// How many batches it has.
    pub sequence: u64,
    /// Its last position.
    pub position: u64,
    /// The hash of its last batch.
    pub hash: String,
    /// The checkpoint in the form that is signed.
    pub text: String,
    /// The public key that checks the signature.
    pub public_key: String,
}

/// Which record to prove.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ProofQuery {
    /// The record.
    pub position: u64,
}

/// A proof that a record is in the journal that a checkpoint speaks of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Proof {
    /// The record.
    pub position: u64,
    /// The batch that it is in.
    pub sequence: u64,
    /// The leaf that is proven, in hex.
    pub leaf: String,
    /// The hashes from the leaf to the root, in hex.
    pub path: Vec<String>,
    /// The checkpoint that it is proven against.
    pub checkpoint: Checkpoint,
}
