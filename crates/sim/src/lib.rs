//! Trace-driven studies: how well jobs are placed, and how long they wait; and a small world in
//! which everything goes wrong that can.
//!
//! Read in this order: [`traces`] (the files), [`placement`] (the published packing experiment)
//! and [`policy`] (whom we compare with), [`queue`] (waiting and fairness); apart from them [`world`]
//! (ledgers, cells and agents under faults) and [`auditor`] (who checks what comes of it).

pub mod auditor;
pub mod parallel;
pub mod placement;
pub mod policy;
pub mod queue;
pub mod random;
pub mod statistics;
pub mod traces;
pub mod world;
