//! Reports of the agents on their attempts. A report counts only for attempts that have something
//! on the node.

use std::collections::BTreeSet;

use bursar_seeded::{Bug, seeded};

use super::attempt::{AttemptNodePhase, LastReport};
use super::job::CellJob;
use crate::cell::command::{AttemptReport, Heartbeat, Refusal, ReportState};
use crate::cell::event::{AttemptNodeEnd, Event};
use crate::cell::ids::AttemptId;
use crate::cell::nodes::inventory::NodeRecord;
use crate::cell::nodes::node::NodeId;
use crate::cell::state::Cell;
use crate::time::Timestamp;

/// What a report changes, read against the state before it: first starts, then usage, then ends.
#[derive(Default)]
struct Findings<'a> {
    started: Vec<AttemptId>,
    usage: Vec<(AttemptId, u64)>,
    ended: Vec<Ended<'a>>,
    lifted: Vec<AttemptId>,
}

/// An attempt that ended on the node.
struct Ended<'a> {
    job: &'a CellJob,
    attempt: AttemptId,
    report: LastReport,
}

impl Cell {
    /// Decides the events of a report. Once they are applied, the orders that follow are read with
    /// [`Cell::orders`].
    pub(crate) fn decide_heartbeat(
        &self,
        now: Timestamp,
        heartbeat: &Heartbeat,
        events: &mut Vec<Event>,
    ) -> Result<Timestamp, Refusal> {
        let node = self.find_node(&heartbeat.node)?;
        let record = self.inventory.node(node);
        let is_stale = heartbeat.incarnation != record.incarnation;
        if (is_stale && !seeded(Bug::TakesStaleReport)) || record.is_unheard() {
            return Err(Refusal::StaleIncarnation { current: record.incarnation });
        }
        if heartbeat.seq <= record.seq {
            return Ok(record.lease_until);
        }
        if !record.alive {
            // The node was lost. Meanwhile its GPUs may have been registered under another name.
            self.check_gpus_free(&record.offer, Some(node))?;
        }
        let lease_until = now.plus_millis(self.node_lease_ms());
        let mut findings = Findings::default();
        let mut listed = BTreeSet::new();
        for report in &heartbeat.reports {
            // Of two reports on one attempt the first counts.
            if listed.insert(report.attempt) {
                self.read_report(now, node, report, &mut findings);
            }
        }
        for attempt in record.attempts.keys().filter(|attempt| !listed.contains(attempt)) {
            self.read_absence(node, record, *attempt, &mut findings);
        }
        events.push(Event::NodeReported { node, seq: heartbeat.seq, lease_until });
        if record.kept_until.is_some_and(|until| until <= now) {
            events.push(Event::NodeCleared { node });
        }
        self.decide_findings(now, node, findings, events);
        Ok(lease_until)
    }

    fn decide_findings(
        &self,
        now: Timestamp,
        node: NodeId,
        findings: Findings<'_>,
        events: &mut Vec<Event>,
    ) {
        let Findings { started, usage, ended, lifted } = findings;
        events.extend(
            started.into_iter().map(|attempt| Event::AttemptStartedOnNode { attempt, node }),
        );
        if !usage.is_empty() {
            events.push(Event::UsageMetered { node, usage });
        }
        for Ended { job, attempt, report } in ended {
            let (end, exit_code) = (report.end, report.exit_code);
            events.push(Event::AttemptEndedOnNode { attempt, node, end, exit_code });
            self.decide_after_node(now, job, &report, events);
        }
        events.extend(lifted.into_iter().map(|attempt| Event::FenceLifted { attempt, node }));
    }

    fn read_report<'a>(
        &'a self,
        now: Timestamp,
        node: NodeId,
        report: &AttemptReport,
        findings: &mut Findings<'a>,
    ) {
        let attempt = report.attempt;
        let end = match report.state {
            ReportState::Running => None,
            ReportState::Succeeded => Some(AttemptNodeEnd::Succeeded),
            ReportState::Failed => Some(AttemptNodeEnd::Failed),
            ReportState::Stopped => Some(AttemptNodeEnd::Stopped),
        };
        let Some((job, live)) = self.live(attempt).filter(|(_, live)| live.confirmed) else {
            let fenced = self.inventory.node(node).attempts.get(&attempt);
            if fenced.is_some_and(|held| held.fenced) && end.is_some() {
                findings.lifted.push(attempt);
            }
            return;
        };
        let Some(on_node) = live.on_node(node) else { return };
        let since = match on_node.phase {
            AttemptNodePhase::Ended(_) => return,
            AttemptNodePhase::Running { since } => Some(since),
            // Stopped before it was seen running: it has not run.
            AttemptNodePhase::Silent if end == Some(AttemptNodeEnd::Stopped) => None,
            // Ended before it was seen running: no running time was observed.
            AttemptNodePhase::Silent => {
                findings.started.push(attempt);
                Some(now)
            }
        };
        let limit = since.map_or(0, |since| self.meter_limit(now, job, since));
        let limit = if seeded(Bug::TrustsAgentClock) { u64::MAX } else { limit };
        let gpu_ms = report.gpu_ms_total.min(limit).max(on_node.gpu_ms);
        if gpu_ms > on_node.gpu_ms {
            findings.usage.push((attempt, gpu_ms));
        }
        if let Some(end) = end {
            let report = LastReport { node, end, exit_code: report.exit_code, gpu_ms };
            findings.ended.push(Ended { job, attempt, report });
        }
    }

    /// Handles an attempt that has something on the node but is not in the report. It is gone if an
    /// agent of the node had reported it; otherwise the start order has not arrived yet.
    fn read_absence<'a>(
        &'a self,
        node: NodeId,
        record: &NodeRecord,
        attempt: AttemptId,
        findings: &mut Findings<'a>,
    ) {
        let Some((job, live)) = self.live(attempt) else {
            // The absence of an attempt that ran lifts its fence. An attempt that was never
            // reported may still be starting, so its fence stays until the agent answers the kill
            // order.
            let ran =
                record.attempts.get(&attempt).is_some_and(|held| held.fenced && held.reported);
            if ran {
                findings.lifted.push(attempt);
            }
            return;
        };
        if let Some(on_node) = live.on_node(node)
            && matches!(on_node.phase, AttemptNodePhase::Running { .. })
        {
            let (end, gpu_ms) = (AttemptNodeEnd::Stopped, on_node.gpu_ms);
            let report = LastReport { node, end, exit_code: None, gpu_ms };
            findings.ended.push(Ended { job, attempt, report });
        }
    }
}
