//! What runs on a GPU node.
//!
//! The agent registers its node, reports what runs on it and obeys the orders that come back. What
//! to do is decided by [`reconcile`], which is pure; [`runner`] does it. Each attempt has a
//! supervisor ([`supervise`]), a small process of its own that owns the job: an agent that dies,
//! restarts or is upgraded neither ends a job nor starts one twice nor loses an exit code, and a job
//! whose agent is cut off from the server ends before its GPUs are given to others.

pub mod attempt;
pub mod clock;
pub mod folder;
pub mod gpu;
pub mod heartbeat;
pub mod isolation;
pub mod logs;
pub mod machine;
pub mod metrics;
pub mod place;
pub mod reconcile;
pub mod report;
pub mod runner;
