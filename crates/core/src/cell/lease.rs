//! Nodes: registration, reports, orders, leases, drain.

use std::collections::BTreeSet;

use compact_str::CompactString;

use super::attempt::MemberPhase;
use super::command::{Heartbeat, NodeOffer, Order, OrderKind, Refusal, Report, ReportState};
use super::event::{AttemptOutcome, Event, MemberEnd, StopReason};
use super::ids::AttemptId;
use super::inventory::NodeRecord;
use super::node::{MAX_GPUS, Node, NodeId, NodeSpec};
use super::state::Cell;
use super::timer::Timer;
use crate::time::Timestamp;

/// Deciding.
impl Cell {
    pub(crate) fn find_node(&self, name: &CompactString) -> Result<NodeId, Refusal> {
        self.inventory.find(name).ok_or(Refusal::UnknownNode)
    }

    pub(crate) fn decide_register(
        &self,
        now: Timestamp,
        offer: &NodeOffer,
        events: &mut Vec<Event>,
    ) -> Result<u32, Refusal> {
        if usize::from(offer.gpus) > MAX_GPUS {
            return Err(Refusal::Invalid { field: "gpus", must: "at most 64" });
        }
        if offer.name.is_empty() {
            return Err(Refusal::Invalid { field: "name", must: "not empty" });
        }
        let known = self.inventory.find(&offer.name);
        let record = known.map(|id| (id, self.inventory.node(id)));
        if let Some((_, record)) = record
            && !record.members.is_empty()
            && *record.offer != *offer
        {
            return Err(Refusal::NodeBusy);
        }
        let incarnation = record.map_or(1, |(_, record)| record.incarnation + 1);
        events.push(Event::NodeRegistered {
            node: known.unwrap_or_else(|| self.inventory.next_id()),
            offer: Box::new(offer.clone()),
            incarnation,
            lease_until: now.plus_millis(self.config.node_lease_ms),
        });
        Ok(incarnation)
    }

    /// Takes a report in. What it causes is read off the events; the orders that follow are asked
    /// for with [`Cell::orders`] once they are applied.
    pub(crate) fn decide_heartbeat(
        &self,
        now: Timestamp,
        heartbeat: &Heartbeat,
        events: &mut Vec<Event>,
    ) -> Result<Timestamp, Refusal> {
        let node = self.find_node(&heartbeat.node)?;
        let record = self.inventory.node(node);
        if heartbeat.incarnation != record.incarnation {
            return Err(Refusal::StaleIncarnation { current: record.incarnation });
        }
        if heartbeat.seq <= record.seq {
            return Ok(record.lease_until);
        }
        let lease_until = now.plus_millis(self.config.node_lease_ms);
        events.push(Event::NodeReported { node, seq: heartbeat.seq, lease_until });
        for (at, report) in heartbeat.reports.iter().enumerate() {
            let repeated = heartbeat.reports[..at].iter().any(|r| r.attempt == report.attempt);
            if !repeated {
                self.decide_report(now, node, report, events);
            }
        }
        for attempt in record.members.keys() {
            if !heartbeat.reports.iter().any(|report| report.attempt == *attempt) {
                self.decide_unlisted(now, node, record, *attempt, events);
            }
        }
        Ok(lease_until)
    }

    fn decide_report(
        &self,
        now: Timestamp,
        node: NodeId,
        report: &Report,
        events: &mut Vec<Event>,
    ) {
        let attempt = report.attempt;
        let end = match report.state {
            ReportState::Running => None,
            ReportState::Succeeded => Some(MemberEnd::Succeeded),
            ReportState::Failed => Some(MemberEnd::Failed),
            ReportState::Stopped => Some(MemberEnd::Stopped),
        };
        let Some((job, live)) = self.live(attempt).filter(|(_, live)| live.confirmed) else {
            let fenced = self.inventory.node(node).members.get(&attempt);
            if fenced.is_some_and(|held| held.fenced) && end.is_some() {
                events.push(Event::FenceLifted { attempt, node });
            }
            return;
        };
        let Some(member) = live.member(node) else { return };
        let since = match member.phase {
            MemberPhase::Ended(_) => return,
            MemberPhase::Running { since } => since,
            MemberPhase::Silent => {
                // One that ends before it was seen running has run for no time that was observed.
                if end != Some(MemberEnd::Stopped) {
                    events.push(Event::MemberStarted { attempt, node });
                }
                now
            }
        };
        let limit = self.meter_limit(now, job, since);
        let gpu_ms = report.gpu_ms_total.min(limit).max(member.gpu_ms);
        if gpu_ms > member.gpu_ms {
            let total_gpu_ms = live.gpu_ms() - member.gpu_ms + gpu_ms;
            events.push(Event::UsageMetered { attempt, node, gpu_ms, total_gpu_ms });
        }
        if let Some(end) = end {
            events.push(Event::MemberEnded { attempt, node, end });
            self.decide_after_member(now, job, node, end, events);
        }
    }

    /// An attempt that has something on the node and is not in the report: gone, if this or an
    /// earlier start of the agent had reported it; otherwise the order has not arrived yet.
    fn decide_unlisted(
        &self,
        now: Timestamp,
        node: NodeId,
        record: &NodeRecord,
        attempt: AttemptId,
        events: &mut Vec<Event>,
    ) {
        let Some((job, live)) = self.live(attempt) else {
            // A fence of an attempt that ran is lifted by its absence; one that was never reported
            // may still be starting, and stays until the agent answers the order to kill it.
            let ran = record.members.get(&attempt).is_some_and(|held| held.fenced && held.reported);
            if ran {
                events.push(Event::FenceLifted { attempt, node });
            }
            return;
        };
        let ran = live
            .member(node)
            .is_some_and(|member| matches!(member.phase, MemberPhase::Running { .. }));
        if ran {
            let end = MemberEnd::Stopped;
            events.push(Event::MemberEnded { attempt, node, end });
            self.decide_after_member(now, job, node, end, events);
        }
    }

    /// What a node must do now, after what it reported.
    pub fn orders(&self, heartbeat: &Heartbeat) -> Vec<Order> {
        let Some(record) = self.inventory.find(&heartbeat.node).map(|id| self.inventory.node(id))
        else {
            return Vec::new();
        };
        let mut orders = Vec::new();
        for (attempt, held) in &record.members {
            let kind = match self.live(*attempt) {
                None => held.fenced.then_some(OrderKind::Kill),
                Some((_, live)) => match (live.stop, live.confirmed) {
                    (_, false) => None,
                    (Some(stop), true) if stop.killed => Some(OrderKind::Kill),
                    (Some(stop), true) => Some(OrderKind::Stop { kill_at: stop.kill_at }),
                    (None, true) => {
                        (!held.reported).then_some(OrderKind::Start { gpus: held.gpus.bits() })
                    }
                },
            };
            orders.extend(kind.map(|kind| Order { attempt: *attempt, kind }));
        }
        for report in &heartbeat.reports {
            if !record.members.contains_key(&report.attempt) {
                orders.push(Order { attempt: report.attempt, kind: OrderKind::Forget });
            }
        }
        orders.sort_by_key(|order| order.attempt);
        orders.dedup_by_key(|order| order.attempt);
        orders
    }

    /// A node fell silent: every attempt on it is lost.
    pub(crate) fn decide_node_lost(&self, now: Timestamp, node: NodeId, events: &mut Vec<Event>) {
        // First, so that what ends below finds the node gone and fences nothing on it.
        events.push(Event::NodeLost { node });
        for attempt in self.inventory.node(node).members.keys() {
            match self.live(*attempt) {
                Some((job, _)) => self.decide_end(now, job, AttemptOutcome::Lost, events),
                None => events.push(Event::FenceLifted { attempt: *attempt, node }),
            }
        }
    }

    pub(crate) fn decide_drain(
        &self,
        now: Timestamp,
        node: NodeId,
        force: bool,
        events: &mut Vec<Event>,
    ) {
        let record = self.inventory.node(node);
        if !record.drained {
            events.push(Event::NodeDrained { node });
        }
        if force {
            self.decide_empty(now, &[node], true, events);
        }
    }

    /// Stops what runs on some nodes, or only what is preemptible. A gang on several of them is
    /// stopped once.
    pub(crate) fn decide_empty(
        &self,
        now: Timestamp,
        nodes: &[NodeId],
        everything: bool,
        events: &mut Vec<Event>,
    ) {
        let members = nodes.iter().flat_map(|node| self.inventory.node(*node).members.keys());
        let attempts: BTreeSet<AttemptId> = members.copied().collect();
        for attempt in attempts {
            let live = self.live(attempt);
            if let Some((job, _)) = live.filter(|(job, _)| everything || job.spec.preemptible) {
                self.decide_stop(now, job, StopReason::Drained, events);
            }
        }
    }
}

/// Applying.
impl Cell {
    pub(crate) fn apply_registered(
        &mut self,
        id: NodeId,
        offer: &NodeOffer,
        incarnation: u32,
        lease_until: Timestamp,
    ) {
        let labels = offer.labels.iter().map(|label| self.labels.intern(label.clone())).collect();
        let spec = NodeSpec {
            model: self.models.intern(offer.model.clone()),
            gpus: offer.gpus,
            gpu_memory_mib: offer.gpu_memory_mib,
            cpu_milli: offer.cpu_milli,
            memory_mib: offer.memory_mib,
            labels,
            rack: self.racks.intern(offer.rack.clone()),
        };
        let node = Node::new(spec).expect("the number of GPUs was checked");
        if let Some(record) = self.inventory.get(id) {
            self.timers.clear(record.lease_until, Timer::NodeLease(id));
        }
        self.inventory.register(id, Box::new(offer.clone()), node, incarnation, lease_until);
        self.timers.set(lease_until, Timer::NodeLease(id));
        self.wake_for(id);
    }

    pub(crate) fn apply_reported(&mut self, id: NodeId, seq: u64, lease_until: Timestamp) {
        let record = self.inventory.node(id);
        let (before, returned) = (record.lease_until, !record.alive);
        self.timers.clear(before, Timer::NodeLease(id));
        self.timers.set(lease_until, Timer::NodeLease(id));
        self.inventory.renew(id, seq, lease_until);
        if returned {
            self.inventory.change(id, |record| record.alive = true);
            self.wake_for(id);
        }
    }

    pub(crate) fn apply_lost(&mut self, id: NodeId) {
        let lease_until = self.inventory.node(id).lease_until;
        self.timers.clear(lease_until, Timer::NodeLease(id));
        self.inventory.change(id, |record| record.alive = false);
        self.drop_reservations_on(id);
    }

    pub(crate) fn apply_drained(&mut self, id: NodeId, drained: bool) {
        self.inventory.change(id, |record| record.drained = drained);
        if drained {
            self.drop_reservations_on(id);
        } else {
            self.wake_for(id);
        }
    }

    pub(crate) fn apply_removed(&mut self, id: NodeId) {
        let lease_until = self.inventory.node(id).lease_until;
        self.timers.clear(lease_until, Timer::NodeLease(id));
        self.drop_reservations_on(id);
        for window in self.maintenance.values_mut() {
            window.nodes.retain(|node| *node != id);
        }
        self.inventory.remove(id);
    }
}
