//! Rate limits for the output of nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{LogError, LogLimits, NodeTag};

/// With more nodes than this, nodes with a full bucket are dropped.
const MAX_METERS: usize = 1024;

#[derive(Debug)]
struct Meter {
    /// The bytes that the node may send now.
    room: u64,
    /// When `room` was computed, by the writer's clock.
    since: Duration,
}

impl Meter {
    /// Adds the bytes earned since the last refill.
    fn refill(&mut self, limits: &LogLimits, now: Duration) {
        let passed = now.saturating_sub(self.since).as_millis();
        let earned = passed.saturating_mul(u128::from(limits.node_rate)) / 1000;
        if earned > 0 {
            let earned = u64::try_from(earned).unwrap_or(u64::MAX);
            self.room = self.room.saturating_add(earned).min(limits.node_burst);
            self.since = now;
        }
    }
}

/// The rate limits of all nodes.
pub(super) struct Meters {
    limits: LogLimits,
    nodes: BTreeMap<NodeTag, Meter>,
}

impl Meters {
    pub(super) fn new(limits: LogLimits) -> Meters {
        Meters { limits, nodes: BTreeMap::new() }
    }

    /// Takes bytes from a node's bucket, or returns how long it has to wait.
    pub(super) fn take(
        &mut self,
        node: NodeTag,
        bytes: usize,
        now: Duration,
    ) -> Result<(), LogError> {
        let limits = self.limits;
        if self.nodes.len() >= MAX_METERS && !self.nodes.contains_key(&node) {
            self.nodes.retain(|_, meter| {
                meter.refill(&limits, now);
                meter.room < limits.node_burst
            });
        }
        let fresh = || Meter { room: limits.node_burst, since: now };
        let meter = self.nodes.entry(node).or_insert_with(fresh);
        meter.refill(&limits, now);
        let bytes = bytes as u64;
        match meter.room.checked_sub(bytes) {
            Some(room) => {
                meter.room = room;
                Ok(())
            }
            None => Err(LogError::TooFast((bytes - meter.room).div_ceil(limits.node_rate).max(1))),
        }
    }
}

#[cfg(test)]
mod tests {
    use bursar_core::cell::NodeKey;

    use super::*;

    #[test]
    fn a_node_sends_a_burst_and_then_at_its_rate() {
        let limits = LogLimits { node_rate: 100, node_burst: 1000, ..LogLimits::default() };
        let mut meters = Meters::new(limits);
        let (node, start) = (NodeTag::of("eu", &NodeKey::from("n1")), Duration::ZERO);
        let after = |ms| start + Duration::from_millis(ms);
        meters.take(node, 1000, after(0)).expect("a burst");
        let refused = meters.take(node, 250, after(0));
        assert!(matches!(refused, Err(LogError::TooFast(3))), "{refused:?}");
        assert!(meters.take(node, 250, after(2400)).is_err());
        meters.take(node, 250, after(2500)).expect("it was earned");
        assert!(meters.take(node, 1, after(2500)).is_err());
        meters.take(node, 1000, after(100_000)).expect("a burst, and not more");
        assert!(meters.take(node, 1, after(100_000)).is_err());
    }

    #[test]
    fn idle_nodes_are_not_remembered() {
        let mut meters = Meters::new(LogLimits::default());
        let start = Duration::ZERO;
        for index in 0..5 * MAX_METERS {
            let node = NodeTag::of("eu", &NodeKey::from(format!("n{index}")));
            let at = start + Duration::from_secs(index as u64);
            meters.take(node, 1 << 20, at).expect("far below the burst");
            assert!(meters.nodes.len() <= MAX_METERS);
        }
    }
}
