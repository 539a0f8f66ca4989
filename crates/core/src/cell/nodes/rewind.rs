//! After a restore: agents may still run attempts that the restored cell does not know.
//!
//! A restore journals that the cell was set back. From then on the reports of an agent are ignored
//! until it registers again: what ran on its node at the cut is lost, and what it runs now is
//! unknown. An agent stops attempts that no server renews before its node's lease ends. So after
//! the first registration nothing is placed on the node for one whole lease, and no GPU is
//! allocated twice, whatever the agent reports.
//!
//! Earlier builds recorded a restore only in the manifest, and derived the agents' incarnations
//! from it. A cell that was served in this way only records the generation.

use super::inventory::NodeRecord;
use super::node::NodeId;
use crate::cell::command::Refusal;
use crate::cell::event::Event;
use crate::cell::index::timers::Timer;
use crate::cell::state::Cell;
use crate::time::Timestamp;

/// Placeholder: nothing is placed on the node until its agent has registered after the restore.
pub(crate) const UNTIL_REGISTERED: Timestamp = Timestamp::MAX;

impl NodeRecord {
    /// Whether its agent has not registered since the restore.
    pub(crate) fn is_unheard(&self) -> bool {
        self.kept_until == Some(UNTIL_REGISTERED)
    }
}

/// Deciding.
impl Cell {
    /// The generation of the store: higher after each restore, 0 if there was none.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    pub(crate) fn decide_rewind(
        &self,
        generation: u32,
        served: bool,
        events: &mut Vec<Event>,
    ) -> Result<(), Refusal> {
        if generation < self.generation {
            let must = "not below that of the last restore";
            return Err(Refusal::Invalid { field: "generation", must });
        }
        if generation > self.generation {
            events.push(Event::Rewound { generation, served });
        }
        Ok(())
    }

    /// Until when nothing is placed on a node that registers with a lease.
    pub(crate) fn keeps_until(
        &self,
        known: Option<&NodeRecord>,
        lease_until: Timestamp,
    ) -> Option<Timestamp> {
        let keeps = match known {
            // Its machine may have run attempts under this or another name.
            None => self.generation > 0,
            Some(record) => record.kept_until.is_some(),
        };
        keeps.then_some(lease_until)
    }
}

/// Applying.
impl Cell {
    /// Ends every lease. The timers of the nodes decide what follows, each in a record of its own.
    pub(crate) fn apply_rewound(&mut self, at: Timestamp, generation: u32) {
        self.generation = generation;
        let nodes: Vec<NodeId> = self.inventory.iter().map(|(node, _)| node).collect();
        for id in nodes {
            let record = self.inventory.node(id);
            if record.alive {
                let (seq, lease_until) = (record.seq, record.lease_until);
                self.timers.clear(lease_until, Timer::NodeLease(id));
                self.timers.set(at, Timer::NodeLease(id));
                self.inventory.renew(id, seq, at);
            }
            self.inventory.change(id, |record| record.kept_until = Some(UNTIL_REGISTERED));
            self.drop_reservations_on(id);
        }
    }

    pub(crate) fn apply_cleared(&mut self, id: NodeId) {
        self.inventory.change(id, |record| record.kept_until = None);
        self.wake_for(id);
    }
}
