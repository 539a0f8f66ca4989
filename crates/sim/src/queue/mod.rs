//! How long jobs wait and how fair that is: traces of jobs on a cluster of equal nodes.
//!
//! [`baseline`] runs simple policies, some of which know how long jobs will take; [`cell`] runs the
//! real cell, which does not. Both return a [`Run`], from which [`metrics`] and [`shares`] compute
//! figures. Jobs are gangs: up to a node's GPUs they run on one node, beyond that on whole nodes.
//! Work done before a preemption is kept, and starting and stopping take no time.

pub mod baseline;
pub mod cell;
pub mod metrics;
pub mod shares;

use crate::traces::JobRow;

/// A cluster of equal nodes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The number of nodes.
    pub nodes: u32,
    /// The number of GPUs per node.
    pub gpus_per_node: u16,
}

impl Cluster {
    /// The total number of GPUs.
    pub fn gpus(self) -> u32 {
        self.nodes * u32::from(self.gpus_per_node)
    }

    /// The number of nodes of a job, and its GPUs on each. `None` if it can never run: it is larger
    /// than the cluster, or larger than a node and not a whole number of nodes.
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

/// The result of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// By job, in the order of the trace.
    pub jobs: Vec<Finished>,
    /// Every interval in which a job had its GPUs.
    pub stretches: Vec<RunInterval>,
}

/// A finished job.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// When it first had its GPUs.
    pub started_ms: i64,
    /// When it finished.
    pub finished_ms: i64,
    /// How often it was started.
    pub starts: u32,
}

/// An interval in which a job had its GPUs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RunInterval {
    /// The index of the job in the trace.
    pub job: usize,
    /// The start.
    pub from_ms: i64,
    /// The end.
    pub to_ms: i64,
}

/// The index of a job in the trace that can never run, if there is one.
pub fn first_impossible(jobs: &[JobRow], cluster: Cluster) -> Option<usize> {
    jobs.iter().position(|job| cluster.gang(job.gpus).is_none())
}
