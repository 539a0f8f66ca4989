//! API keys.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::time::Time;

/// What a key may do.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Everything.
    Admin,
    /// Money: grants, refunds, transfers, budgets, prices.
    Billing,
    /// Machines: nodes, preemption, quotas, freezing.
    Operator,
    /// Spending: holds, charges, jobs.
    Submitter,
    /// Reading.
    Viewer,
    /// Reading, and the audit trail.
    Auditor,
    /// A node's agent.
    Agent,
}

impl Role {
    /// Every role.
    pub const ALL: [Role; 7] = [
        Role::Admin,
        Role::Billing,
        Role::Operator,
        Role::Submitter,
        Role::Viewer,
        Role::Auditor,
        Role::Agent,
    ];
}

/// Permissions beyond a role.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// Issue credits: grants, compensation, overdraft limits and compensation validity.
    Issue,
}

/// Creates a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"role": "submitter", "scope": "acme:nlp", "name": "ci"}))]
pub struct CreateKey {
    /// An id chosen by the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub id: Option<String>,
    /// What it may do.
    pub role: Role,
    /// An account path, or `*` for everything.
    pub scope: String,
    /// Display name.
    #[schema(min_length = 1, max_length = 256)]
    pub name: String,
    /// The last instant at which it is valid; never expires if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    /// Agents only: the region it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub region: Option<String>,
    /// Agents only: the node it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub node: Option<String>,
    /// Permissions beyond its role. Only keys with the scope `*` may grant these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<Capability>,
}

/// A key. The secret is shown once, in the answer to its creation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Key {
    /// Its id.
    pub id: String,
    /// The bearer secret; only in the answer to its creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What it may do.
    pub role: Role,
    /// An account path, or `*`.
    pub scope: String,
    /// Display name.
    pub name: String,
    /// The last instant at which it is valid.
    pub expires_at: Option<Time>,
    /// The region it is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The node it is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Permissions beyond its role.
    #[serde(default)]
    pub capabilities: Vec<Capability>,
    /// When it was created.
    pub created_at: Time,
    /// When it, or a session of it, was last used; absent if not since the server started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Time>,
}
