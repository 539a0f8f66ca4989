//! What is due without being asked for.

use std::collections::BTreeSet;

use crate::cell::ids::{JobId, MaintenanceId};
use crate::cell::nodes::node::NodeId;
use crate::time::Timestamp;

/// Something that is due at an instant. At one instant they happen in this order.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// A node's lease ends.
    NodeLease(NodeId),
    /// A job has run as long as it may.
    MaxRuntime(JobId),
    /// Half of the running time last paid for is left.
    FundsNeeded(JobId),
    /// The running time that is paid for ends.
    FundsEnd(JobId),
    /// A stopping attempt's grace ends.
    Kill(JobId),
    /// A killed attempt ends without its report.
    KillTimeout(JobId),
    /// A job's delay after an operator's preemption ends.
    Release(JobId),
    /// A reservation should have led to a start.
    Reservation(JobId),
    /// A maintenance window begins.
    MaintenanceBegin(MaintenanceId),
    /// A maintenance window ends.
    MaintenanceEnd(MaintenanceId),
    /// Waiting jobs are looked at again for preemption.
    Review,
    /// The oldest request under an idempotency key has been kept long enough.
    Requests,
}

/// All timers that run.
#[derive(Clone, Debug, Default)]
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
