//! Settings of a cell, changed by operators.

/// Settings of a cell. All times are in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CellConfig {
    /// The time in which past usage loses half of its weight.
    pub half_life_ms: i64,
    /// The entry charge: running time that is counted as usage when a job is placed, before any is
    /// measured. The unused part is returned when the attempt ends.
    pub entry_charge_ms: i64,
    /// How long a job waits before it counts as aged.
    pub ageing_after_ms: i64,
    /// After this many placements of a class without an aged job, the oldest aged job of any
    /// account is next.
    pub ageing_one_in: u32,
    /// How long a node may be silent before its attempts are lost.
    pub node_lease_ms: i64,
    /// The interval at which agents report.
    pub heartbeat_ms: i64,
    /// How much running time beyond the observed one a report may contain.
    pub meter_slack_ms: i64,
    /// The delay before a job is placed again after an operator's preemption.
    pub requeue_delay_ms: i64,
    /// How long a killed attempt may stay unreported before it ends without a report.
    pub kill_timeout_ms: i64,
    /// How long a start may take, for estimates only.
    pub start_allowance_ms: i64,
    /// The runtime assumed for a job without a longest runtime, for estimates, for the expiry of
    /// reservations and as the least limit of the quantum.
    pub assumed_runtime_ms: i64,
    /// Whether an account under its fair share may preempt attempts of an account over it.
    pub share_preemption: bool,
    /// The quantum: how long an attempt is protected from preemption for fair share. It doubles
    /// with each such preemption of its job.
    pub share_minimum_runtime_ms: i64,
    /// The interval at which blocked jobs are examined for preemption while nothing else happens.
    pub review_ms: i64,
    /// The most attempts that are preempted within [`CellConfig::review_ms`].
    pub victims_per_review: u32,
    /// A plan of preemption that has not led to a start this long after the longest grace, plus a
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
