//! Nodes: what they have, leases, maintenance, and which jobs they accept.

mod hardware;
pub(super) mod inventory;
pub(super) mod lease;
pub(super) mod maintenance;
pub mod node;
mod numbers;
pub mod owner;
mod record;
pub(super) mod rewind;
pub mod scope;
pub mod used_names;
pub mod view;
