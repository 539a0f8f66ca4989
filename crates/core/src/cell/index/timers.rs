//! Timers of a cell.

use std::collections::BTreeSet;

use crate::cell::ids::{JobId, MaintenanceId};
use crate::cell::nodes::node::NodeId;
use crate::time::Timestamp;

/// Work that is due at an instant. Timers of one instant run in this order.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// A node's lease ends.
    NodeLease(NodeId),
    /// A job reaches its longest runtime.
    MaxRuntime(JobId),
    /// Half of the last window of paid running time is left.
    FundsNeeded(JobId),
    /// The paid running time ends.
    FundsEnd(JobId),
    /// A stopping attempt's grace ends.
    Kill(JobId),
    /// A killed attempt ends without a report.
    KillTimeout(JobId),
    /// A job's delay after an operator's preemption ends.
    Release(JobId),
    /// A reservation has not led to a start in time.
    Reservation(JobId),
    /// A maintenance window begins.
    MaintenanceBegin(MaintenanceId),
    /// A maintenance window ends.
    MaintenanceEnd(MaintenanceId),
    /// Blocked jobs are examined for preemption.
    Review,
    /// The retention of the oldest request under an idempotency key ends.
    Requests,
}

/// All active timers.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Timers(BTreeSet<(Timestamp, Timer)>);

impl Timers {
    pub(crate) fn set(&mut self, at: Timestamp, timer: Timer) {
        self.0.insert((at, timer));
    }

    pub(crate) fn clear(&mut self, at: Timestamp, timer: Timer) {
        self.0.remove(&(at, timer));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Timestamp, Timer)> {
        self.0.iter().copied()
    }
}
