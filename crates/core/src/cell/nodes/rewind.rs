//! After a restore: agents of the future that was lost may still run attempts that nothing here knows.
//!
//! A restore journals that the cell was set back. From then on no agent is heard before it registers
//! again: what ran on its node at the cut is lost, and whatever it runs now is unknown. An agent gives
//! up attempts that no server renews before the lease of its node is over. So the first registration
//! after it is followed by a whole lease in which nothing is placed on the node: no GPU is ever given
//! out twice, whatever the agent says.
//!
//! Earlier builds noted a restore in the manifest alone, and served the store under the numbers of
//! agents' starts that follow from it. A cell that was served so only learns its generation.

use super::inventory::NodeRecord;
use super::node::NodeId;
use crate::cell::command::Refusal;
use crate::cell::event::Event;
use crate::cell::index::timers::Timer;
use crate::cell::state::Cell;
use crate::time::Timestamp;

/// Until when nothing is placed on a node whose agent has not registered since the restore.
pub(crate) const UNTIL_REGISTERED: Timestamp = Timestamp::MAX;

impl NodeRecord {
    /// Whether its agent has not registered since the cell was set back.
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
            // It may have run something under this or another name.
            None => self.generation > 0,
            Some(record) => record.kept_until.is_some(),
        };
        keeps.then_some(lease_until)
    }
}

/// Applying.
impl Cell {
    /// Every lease is over: the timers of the nodes say what follows, each in a record of its own.
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
