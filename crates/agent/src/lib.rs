//! The agent of a GPU node.
//!
//! The agent registers its node, reports its attempts and carries out the server's orders. What
//! to do is decided by [`reconcile`], which is pure, and done by [`runner`]. Each attempt has a
//! supervisor ([`supervise`]), a small separate process that owns the job: an agent that dies,
//! restarts or is upgraded neither ends a job nor starts one twice nor loses an exit code, and a job
//! whose agent is cut off from the server ends before its GPUs are given to other jobs.

pub mod attempt;
pub mod clock;
pub mod folder;
pub mod gpu;
pub mod heartbeat;
pub mod idle;
pub mod isolation;
pub mod logs;
pub mod machine;
pub mod metrics;
pub mod place;
pub mod reconcile;
pub mod report;
pub mod runner;
pub mod servers;
