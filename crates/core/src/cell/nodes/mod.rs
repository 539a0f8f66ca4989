//! Nodes: what they have, leases, maintenance, and which jobs they accept.

pub(super) mod inventory;
pub(super) mod lease;
pub(super) mod maintenance;
pub mod node;
pub mod owner;
pub(super) mod rewind;
pub mod scope;
pub mod used_names;
pub mod view;
