//! How long jobs wait and how fairly: traces of jobs on a cluster of equal nodes.
//!
//! [`baseline`] runs the policies that know how long jobs will take; [`cell`] runs the cell's own
//! code, which does not. Both give a [`Run`], from which [`metrics`] and [`shares`] read the figures. Jobs are
//! gangs: up to a node's GPUs they run on one node, beyond that on whole nodes. What was done
//! before a preemption is kept, and starting and stopping take no time.

pub mod baseline;
pub mod cell;
pub mod metrics;
pub mod shares;

use crate::traces::JobRow;

/// A cluster of equal nodes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// How many nodes.
    pub nodes: u32,
    /// GPUs of each.
    pub gpus_per_node: u16,
}

impl Cluster {
    /// All GPUs.
    pub fn gpus(self) -> u32 {
        self.nodes * u32::from(self.gpus_per_node)
    }

    /// On how many nodes a job runs, and with how many GPUs on each. `None` if it can never run: it
    /// is larger than the cluster, or larger than a node and not a whole number of nodes.
    pub fn gang(self, gpus: u32) -> Option<(u16, u16)> {
        let per_node = u32::from(self.gpus_per_node);
        if gpus <= per_node {
            return Some((1, u16::try_from(gpus).ok()?));
        }
        let whole = gpus.is_multiple_of(per_node) && gpus <= self.gpus();
        let nodes = u16::try_from(gpus / per_node).ok()?;
        whole.then_some((nodes, self.gpus_per_node))
    }
}

/// What became of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// By job, in the trace's order.
    pub jobs: Vec<Finished>,
    /// Every stretch of time in which a job had its GPUs.
    pub stretches: Vec<Stretch>,
}

/// A job that is done.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// When it first had its GPUs.
    pub started_ms: i64,
    /// When it was done.
    pub finished_ms: i64,
    /// How often it was started.
    pub starts: u32,
}

/// A job had its GPUs from one instant to another.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The job's place in the trace.
    pub job: usize,
    /// From when on.
    pub from_ms: i64,
    /// Until when.
    pub to_ms: i64,
}

/// A job of the trace that can never run, if there is one: its place in the trace.
pub fn first_impossible(jobs: &[JobRow], cluster: Cluster) -> Option<usize> {
    jobs.iter().position(|job| cluster.gang(job.gpus).is_none())
}
