//! The servers of a store, and the machines that they own.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::time::Time;

/// The state of a member.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClusterMemberState {
    /// It may own machines.
    Active,
    /// It owns no machine while another member can.
    Draining,
    /// It was not seen for 15 seconds.
    Gone,
}

/// A server of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterMember {
    /// Its name.
    pub id: String,
    /// The URL at which other members reach it.
    pub url: String,
    /// Its state.
    pub state: ClusterMemberState,
    /// The version of its program.
    pub build: String,
    /// The newest form of a store that it reads.
    #[serde(default)]
    #[schema(required)]
    pub form: u32,
    /// When it was last seen, by the clock of the store.
    pub seen_at: Time,
}

/// A machine: the directory, a ledger or a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterMachine {
    /// Its name: `directory`, `ledger-0` or `cell-` and a region.
    pub id: String,
    /// The member that owns it; null while none does.
    pub owner: Option<String>,
    /// The member that will own it next; null if that is not known beforehand.
    pub successor: Option<String>,
    /// Rises whenever an owner takes it.
    pub epoch: u64,
    /// The last record of its journal.
    pub position: u64,
    /// How far the successor's copy is behind, in milliseconds; null without a copy.
    pub follower_lag_ms: Option<u64>,
}

/// The servers of a store, and the machines that they own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cluster {
    /// The version of the tables of the store; 0 for a data folder, which has one server.
    pub version: u64,
    /// The form of what is stored: a server that does not read it is refused.
    #[serde(default)]
    #[schema(required)]
    pub form: u32,
    /// The form that an upgrade of the cluster raises it to; null if no member reads a newer one.
    pub next_form: Option<u32>,
    /// The members that cannot read that form and hold back the upgrade.
    #[serde(default)]
    #[schema(required)]
    pub held_back_by: Vec<String>,
    /// The members, by name.
    pub members: Vec<ClusterMember>,
    /// The machines, by name.
    pub machines: Vec<ClusterMachine>,
}
