//! What an operator may set for a whole cell.

/// Settings of a cell. All times are in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellConfig {
    /// The time in which past usage loses half of its weight.
    pub half_life_ms: i64,
    /// The running time that is charged to the fair share when a job is placed, before anything
    /// was measured. What was charged and not used is given back when the attempt ends.
    pub entry_charge_ms: i64,
    /// How long a job waits before it counts as aged.
    pub ageing_after_ms: i64,
    /// When no aged job of a class was placed for so many placements, the oldest one is next,
    /// whoever's it is.
    pub ageing_one_in: u32,
    /// How long a node may be silent before its attempts are lost.
    pub node_lease_ms: i64,
    /// How often agents are asked to report.
    pub heartbeat_ms: i64,
    /// How much more running time than the cell observed a report may claim.
    pub meter_slack_ms: i64,
    /// After an operator's preemption the job is not placed for so long.
    pub requeue_delay_ms: i64,
    /// How long an attempt that was killed may stay unreported before it ends without its report.
    pub kill_timeout_ms: i64,
    /// How long a start may take, for the estimates only.
    pub start_allowance_ms: i64,
    /// The runtime assumed of a job that names none, for the estimates only.
    pub assumed_runtime_ms: i64,
    /// Whether a subtree under its fair share may take from one over it.
    pub share_preemption: bool,
    /// How long an attempt runs before it may be preempted for the fair share: twice as long after
    /// each time that this happened to its job.
    pub share_minimum_runtime_ms: i64,
    /// How often the waiting jobs are looked at again for preemption while nothing else happens.
    pub review_ms: i64,
    /// At most so many attempts are preempted within [`CellConfig::review_ms`].
    pub victims_per_review: u32,
    /// A plan of preemption that has not led to a start so long after the longest grace, and a
    /// node's lease, is dropped.
    pub plan_timeout_ms: i64,
}

impl Default for CellConfig {
    fn default() -> CellConfig {
        const SECOND: i64 = 1000;
        const MINUTE: i64 = 60 * SECOND;
        const HOUR: i64 = 60 * MINUTE;
        CellConfig {
            half_life_ms: 24 * HOUR,
            entry_charge_ms: HOUR,
            ageing_after_ms: 24 * HOUR,
            ageing_one_in: 32,
            node_lease_ms: 90 * SECOND,
            heartbeat_ms: 30 * SECOND,
            meter_slack_ms: 5 * SECOND,
            requeue_delay_ms: 10 * SECOND,
            kill_timeout_ms: MINUTE,
            start_allowance_ms: MINUTE,
            assumed_runtime_ms: 24 * HOUR,
            share_preemption: true,
            share_minimum_runtime_ms: 10 * MINUTE,
            review_ms: MINUTE,
            victims_per_review: 256,
            plan_timeout_ms: 2 * MINUTE,
        }
    }
}
