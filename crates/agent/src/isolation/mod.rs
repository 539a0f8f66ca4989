//! Isolation of jobs from the agent and from each other.

pub mod cgroup;
pub mod guard;
pub mod namespace;
pub mod privilege;
