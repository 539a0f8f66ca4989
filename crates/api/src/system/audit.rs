//! The audit trail, its proofs and the event feed.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::time::Time;

/// Which records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// The machine: `ledger-0` (if absent), `directory`, or `cell-REGION`.
    #[param(example = "cell-eu")]
    pub machine: Option<String>,
    /// Only those that concern this account or one below it.
    pub account: Option<String>,
    /// Only those that concern this job.
    pub job: Option<String>,
    /// Only records after this position.
    pub after: Option<u64>,
    /// Only the record at this position.
    pub position: Option<u64>,
    /// Only those of this key or person, by its id in the trail.
    pub actor: Option<String>,
    /// Only these commands, separated by commas: at most 20.
    #[param(example = "drain_node,preempt_job")]
    pub command: Option<String>,
    /// How many at most: 1 to 100, 25 if absent. With `actor` or `command`, and of another machine than
    /// the ledger, a page may have fewer, or none, although more follow.
    #[param(minimum = 1, maximum = 100)]
    pub limit: Option<u32>,
    /// The cursor of the next page.
    pub cursor: Option<String>,
}

/// A command and its events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditRecord {
    /// Its record in the journal.
    pub position: u64,
    /// Its place in the record: 0, or more in an atomic batch.
    pub item: u32,
    /// When it happened.
    pub at: Time,
    /// The key or platform component that sent the command; absent for timers.
    pub actor: Option<String>,
    /// The command; absent for timers, and in the directory, which stores only events.
    #[schema(example = "place_hold")]
    pub command: Option<String>,
    /// Why it was rejected; absent if it was accepted.
    pub refusal: Option<String>,
    /// The events, in order.
    #[schema(example = json!(["hold_placed", "answered"]))]
    pub events: Vec<String>,
    /// What it is about: nodes, jobs, keys, prices, … Absent in the ledger.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub about: Vec<AuditSubject>,
    /// The id of the request; absent in the ledger and in cells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "req_01JAB2C3D4E5F6G7H8J9K0M1N2")]
    pub request_id: Option<String>,
}

/// Something that a record of a cell or of the directory is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct AuditSubject {
    /// What it is.
    #[serde(rename = "type")]
    pub kind: AuditSubjectType,
    /// Its name or id. Of a node of a tenant, `tenant/name`.
    #[schema(example = "n1")]
    pub id: String,
}

/// A kind of thing that a record is about.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuditSubjectType {
    /// An account.
    Account,
    /// A job.
    Job,
    /// A node.
    Node,
    /// An API key.
    Key,
    /// The price of a GPU type.
    Price,
    /// A priority class.
    Class,
    /// A region.
    Region,
}

/// An event of the feed, as the data of one server-sent event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FeedEvent {
    /// Its id: pass it as `Last-Event-ID` to resume after it.
    pub id: String,
    /// The kind.
    #[serde(rename = "type")]
    #[schema(example = "hold.placed")]
    pub kind: String,
    /// When it happened.
    pub at: Time,
    /// The position of its record.
    pub position: u64,
    /// The account it concerns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The payload.
    pub data: Value,
}

/// Where the feed starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// The id of the last event already seen; new events only if absent, `0` for all events.
    pub after: Option<String>,
}

/// A signed statement: the first `size` records of the journal have this root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Checkpoint {
    /// The journal.
    pub journal: String,
    /// How many records.
    pub size: u64,
    /// The root of the Merkle tree over them, in hex.
    pub root: String,
    /// When it was signed.
    pub signed_at: Time,
    /// The checkpoint as it is signed, followed by its Ed25519 signature, in hex.
    pub signed: String,
    /// The public key that checks the signature, in hex.
    pub public_key: String,
}

/// Which record to prove.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ProofQuery {
    /// The machine: `ledger-0` (if absent), `directory`, or `cell-REGION`.
    #[param(example = "cell-eu")]
    pub machine: Option<String>,
    /// The record.
    #[param(minimum = 1)]
    pub position: u64,
}

/// Which journal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CheckpointQuery {
    /// The machine: `ledger-0` (if absent), `directory`, or `cell-REGION`.
    #[param(example = "cell-eu")]
    pub machine: Option<String>,
}

/// A proof that a record is in the journal of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Proof {
    /// The record.
    pub position: u64,
    /// All bytes of the record, in hex: the leaf of the tree.
    pub frame: String,
    /// The hashes from the leaf to the root, in hex, lowest first.
    pub path: Vec<String>,
    /// The checkpoint of the proof.
    pub checkpoint: Checkpoint,
}
