//! The servers of a store.

use bursar_api::system::cluster::Cluster;

use crate::call::{Call, Method, path};

/// The members and the machines that they own.
pub fn show() -> Call<Cluster> {
    Call::get("/v1/cluster")
}

/// Drains a member: it hands over what it owns, and forwards requests.
pub fn drain(id: &str) -> Call<Cluster> {
    change(id, "drain")
}

/// Resumes a member: it may own machines again.
pub fn resume(id: &str) -> Call<Cluster> {
    change(id, "resume")
}

/// Removes a member that is gone.
pub fn evict(id: &str) -> Call<Cluster> {
    change(id, "evict")
}

/// Raises the form of the store to the newest that all members read.
pub fn upgrade() -> Call<Cluster> {
    Call::new(Method::Post, path(&["v1", "cluster", "upgrade"]))
}

fn change(id: &str, verb: &str) -> Call<Cluster> {
    Call::new(Method::Post, path(&["v1", "cluster", "members", id, verb]))
}
