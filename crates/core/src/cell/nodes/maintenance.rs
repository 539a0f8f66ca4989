//! Maintenance windows.
//!
//! Until a window begins, a node takes only jobs that end before it. When it begins, preemptible
//! attempts are stopped; the others run until they end or an operator forces a drain.

use super::inventory::Claim;
use super::node::NodeId;
use crate::cell::event::Event;
use crate::cell::ids::{ClassRank, MaintenanceId};
use crate::cell::index::timers::Timer;
use crate::cell::state::Cell;
use crate::time::Timestamp;

/// A scheduled window.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MaintenanceWindow {
    pub from: Timestamp,
    pub to: Timestamp,
    pub nodes: Vec<NodeId>,
    pub began: bool,
}

/// No class may ignore maintenance.
pub(crate) const MAINTENANCE_CLASS: ClassRank = ClassRank(u8::MAX);

impl Cell {
    pub(crate) fn decide_maintenance_begin(
        &self,
        now: Timestamp,
        id: MaintenanceId,
        events: &mut Vec<Event>,
    ) {
        events.push(Event::MaintenanceBegan { id });
        self.decide_empty(now, &self.maintenance[&id].nodes, false, events);
    }

    pub(crate) fn apply_maintenance_planned(
        &mut self,
        id: MaintenanceId,
        window: MaintenanceWindow,
    ) {
        self.remove_window(id);
        self.timers.set(window.from, Timer::MaintenanceBegin(id));
        self.timers.set(window.to, Timer::MaintenanceEnd(id));
        let claim = Claim::maintenance(window.from);
        for node in &window.nodes {
            self.add_claim(*node, claim);
            self.drop_reservations_on(*node);
        }
        self.maintenance.insert(id, window);
    }

    pub(crate) fn apply_maintenance_began(&mut self, id: MaintenanceId) {
        let window = self.maintenance.get_mut(&id).expect("an event names only windows here");
        window.began = true;
        let (from, nodes) = (window.from, window.nodes.clone());
        self.timers.clear(from, Timer::MaintenanceBegin(id));
        for node in nodes {
            self.inventory.change(node, |record| record.windows += 1);
            self.drop_reservations_on(node);
        }
    }

    pub(crate) fn apply_maintenance_ended(&mut self, id: MaintenanceId) {
        self.remove_window(id);
    }

    fn remove_window(&mut self, id: MaintenanceId) {
        let Some(window) = self.maintenance.remove(&id) else { return };
        self.timers.clear(window.from, Timer::MaintenanceBegin(id));
        self.timers.clear(window.to, Timer::MaintenanceEnd(id));
        let claim = Claim::maintenance(window.from);
        for node in window.nodes {
            self.remove_claim(node, claim);
            if window.began {
                self.inventory.change(node, |record| record.windows -= 1);
            }
            self.wake_for(node);
        }
    }

    pub(crate) fn add_claim(&mut self, node: NodeId, claim: Claim) {
        self.inventory.change(node, |record| {
            let at = record.claims.partition_point(|other| *other <= claim);
            record.claims.insert(at, claim);
        });
    }

    /// Removes one claim; an equal one may remain.
    pub(crate) fn remove_claim(&mut self, node: NodeId, claim: Claim) {
        self.inventory.change(node, |record| {
            if let Some(at) = record.claims.iter().position(|other| *other == claim) {
                record.claims.remove(at);
            }
        });
    }
}
