//! Trace-driven studies of placement and waiting, and a small simulated world with faults.
//!
//! Read in this order: [`traces`] (the files) and [`families`] (synthetic traces), [`placement`]
//! (the published packing experiment) and [`policy`] (the policies to compare with), [`queue`]
//! (waiting and fairness), [`ablation`] (what each rule of the policy buys), [`speed`] (the cost of
//! a decision). Separate from them are [`world`] (ledgers, cells and agents under faults) and
//! [`auditor`] (which checks the world).

pub mod ablation;
pub mod auditor;
pub mod families;
pub mod parallel;
pub mod placement;
pub mod policy;
pub mod queue;
pub mod random;
pub mod speed;
pub mod statistics;
pub mod traces;
pub mod world;
