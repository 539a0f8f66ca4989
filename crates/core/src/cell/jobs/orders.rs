//! Orders to the agents of nodes.

use bursar_seeded::{Bug, seeded};
use compact_str::CompactString;

use super::attempt::CellAttempt;
use super::job::CellJob;
use crate::cell::command::{Heartbeat, Refusal};
use crate::cell::event::StopReason;
use crate::cell::ids::AttemptId;
use crate::cell::nodes::inventory::{Held, NodeRecord};
use crate::cell::nodes::node::NodeId;
use crate::cell::state::Cell;
use crate::name::NodeName;
use crate::opaque::Opaque;
use crate::time::Timestamp;

/// The name that a gang sees for a node that was deleted after its part there had ended.
const DELETED_NODE: &str = "deleted";

/// What a node must do. Repeated with every answer until the reports show that it is done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Order {
    /// The attempt, and with it the job.
    pub attempt: AttemptId,
    /// What to do.
    pub kind: OrderKind,
}

/// What to do with an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OrderKind {
    /// Start it.
    Start(Box<StartOrder>),
    /// Send the stop signal.
    Stop {
        /// When it will be killed.
        kill_at: Timestamp,
        /// Why it stops.
        reason: StopReason,
    },
    /// Kill it. An attempt that the agent never started is reported as stopped.
    Kill {
        /// Why it was stopped, if that is still known.
        reason: Option<StopReason>,
    },
    /// Stop reporting it, and end it if it still runs.
    Forget,
}

/// Everything that an agent needs to start an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StartOrder {
    /// Device indexes on the node, one bit each.
    pub gpus: u64,
    /// The uuids of the same devices. Empty if the node gave none.
    pub uuids: Vec<CompactString>,
    /// The nodes of the attempt, in the order of their ranks.
    pub nodes: Vec<NodeName>,
    /// The rank of this node.
    pub rank: u16,
    /// The job's payload, as the ledger admitted it.
    pub payload: Opaque,
    /// The time between the stop signal and the kill.
    pub grace_ms: i64,
}

impl Cell {
    /// The orders for a node after its report was applied.
    ///
    /// # Errors
    /// If the node is unknown, or its agent has restarted since: an earlier incarnation gets no
    /// orders.
    pub fn orders(&self, heartbeat: &Heartbeat) -> Result<Vec<Order>, Refusal> {
        let node = self.find_node(&heartbeat.node)?;
        let record = self.inventory.node(node);
        if heartbeat.incarnation != record.incarnation || record.is_unheard() {
            return Err(Refusal::StaleIncarnation { current: record.incarnation });
        }
        let mut orders = Vec::new();
        for (attempt, held) in &record.attempts {
            let kind = match self.live(*attempt) {
                None => held.fenced.then_some(OrderKind::Kill { reason: None }),
                Some((job, live)) => self.order(node, held, job, live),
            };
            orders.extend(kind.map(|kind| Order { attempt: *attempt, kind }));
        }
        for report in &heartbeat.reports {
            if !record.attempts.contains_key(&report.attempt) {
                orders.push(Order { attempt: report.attempt, kind: OrderKind::Forget });
            }
        }
        orders.sort_by_key(|order| order.attempt);
        orders.dedup_by_key(|order| order.attempt);
        Ok(orders)
    }

    /// The order for an attempt that has not ended.
    fn order(
        &self,
        node: NodeId,
        held: &Held,
        job: &CellJob,
        live: &CellAttempt,
    ) -> Option<OrderKind> {
        if !live.confirmed && !seeded(Bug::StartsUnconfirmed) {
            return None;
        }
        match live.stop {
            Some(stop) if stop.killed => Some(OrderKind::Kill { reason: Some(stop.reason) }),
            Some(stop) => Some(OrderKind::Stop { kill_at: stop.kill_at, reason: stop.reason }),
            None if held.reported => None,
            None => Some(OrderKind::Start(Box::new(self.start_order(node, held, job, live)))),
        }
    }

    fn start_order(
        &self,
        node: NodeId,
        held: &Held,
        job: &CellJob,
        live: &CellAttempt,
    ) -> StartOrder {
        let record = self.inventory.node(node);
        let name = |record: &NodeRecord| record.offer.name.clone();
        // A part that has ended leaves its rank to nothing when its node is deleted.
        let names = live.nodes.iter().map(|on_node| {
            self.inventory.get(on_node.node).map_or_else(|| DELETED_NODE.into(), name)
        });
        let nodes: Vec<NodeName> = names.collect();
        let rank = live.nodes.iter().position(|on_node| on_node.node == node);
        let rank = rank.expect("an attempt is held by the nodes that it runs on");
        StartOrder {
            gpus: held.gpus.bits(),
            uuids: held.gpus.iter().filter_map(|at| record.offer.uuids.get(at).cloned()).collect(),
            nodes,
            // A gang has at most 4096 nodes.
            rank: rank as u16,
            payload: job.spec.payload.clone(),
            grace_ms: job.spec.grace_ms,
        }
    }
}
