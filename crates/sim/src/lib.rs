//! Trace-driven studies: how well jobs are placed, and how long they wait.
//!
//! Read in this order: [`traces`] (the files), [`placement`] (the published packing experiment)
//! and [`policy`] (whom we compare with), [`queue`] (waiting and fairness), [`speed`] (what a
//! decision costs).

pub mod parallel;
pub mod placement;
pub mod policy;
pub mod queue;
pub mod random;
pub mod speed;
pub mod statistics;
pub mod traces;
