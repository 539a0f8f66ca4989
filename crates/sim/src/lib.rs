//! Trace-driven studies: how well jobs are placed, and how long they wait; and a small world in
//! which everything goes wrong that can.
//!
//! Read in this order: [`traces`] (the files) and [`families`] (those
//! that a seed makes), [`placement`] (the published packing experiment)
//! and [`policy`] (whom we compare with), [`queue`] (waiting and fairness), [`speed`] (what a
//! decision costs); apart from them [`world`] (ledgers, cells and agents under faults) and
//! [`auditor`] (who checks what comes of it).

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
