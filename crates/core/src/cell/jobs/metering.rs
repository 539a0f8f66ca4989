//! Metering: when an attempt started to run, and how much of its reported usage counts.

use smallvec::SmallVec;

use super::attempt::AttemptNodePhase;
use super::job::CellJob;
use crate::cell::ids::AttemptId;
use crate::cell::index::timers::Timer;
use crate::cell::nodes::node::NodeId;
use crate::cell::share::decay::usage_micros;
use crate::cell::state::Cell;
use crate::time::Timestamp;

/// Deciding.
impl Cell {
    /// The GPU-milliseconds that a node may report for an attempt by now: the observed running time
    /// plus a little slack for clocks, up to the stop order, the longest runtime and the paid time.
    pub(crate) fn meter_limit(&self, now: Timestamp, job: &CellJob, since: Timestamp) -> u64 {
        let attempt = job.attempt().expect("only attempts that are not over are metered");
        let observed = match attempt.stop {
            Some(stop) => stop.ordered_at.min(now).millis_since(since),
            None => now.millis_since(since).saturating_add(self.config.meter_slack_ms),
        };
        let paid = attempt.funded.map_or(i64::MAX, |funded| funded.total_ms.max(0));
        let allowed = observed.min(job.spec.max_runtime_ms.unwrap_or(i64::MAX)).min(paid);
        allowed.unsigned_abs().saturating_mul(u64::from(job.spec.gpu.devices()))
    }
}

/// Applying.
impl Cell {
    pub(crate) fn apply_started_on_node(&mut self, at: Timestamp, id: AttemptId, node: NodeId) {
        let job = self.job(id.job);
        let longest = job.spec.max_runtime_ms;
        let grace = job.spec.grace_ms;
        let first = job.attempt().is_some_and(|attempt| attempt.running_since.is_none());
        self.inventory.mark_reported(node, id);
        let attempt = self.attempt_mut(id.job);
        attempt.on_node_mut(node).phase = AttemptNodePhase::Running { since: at };
        if !first {
            return;
        }
        attempt.running_since = Some(at);
        let nodes: SmallVec<[NodeId; 1]> =
            attempt.nodes.iter().map(|on_node| on_node.node).collect();
        if let Some(longest) = longest {
            let end = at.plus_millis(longest);
            self.set_attempt_timer(end, Timer::MaxRuntime(id.job), id.job);
            for node in nodes {
                self.set_until(node, id, end.plus_millis(grace));
            }
        }
        self.start_funding_timers(at, id.job);
    }

    /// Tells the estimates when an attempt will be gone. Where it has ended, the node may be deleted.
    pub(crate) fn set_until(&mut self, node: NodeId, id: AttemptId, until: Timestamp) {
        if self.inventory.get(node).is_none() {
            return;
        }
        self.inventory.change(node, |record| {
            if let Some(held) = record.attempts.get_mut(&id) {
                held.until = until;
            }
        });
    }

    pub(crate) fn apply_metered(
        &mut self,
        at: Timestamp,
        node: NodeId,
        usage: &[(AttemptId, u64)],
    ) {
        for (attempt, gpu_ms) in usage {
            self.apply_usage(at, *attempt, node, *gpu_ms);
        }
    }

    fn apply_usage(&mut self, at: Timestamp, id: AttemptId, node: NodeId, gpu_ms: u64) {
        let job = self.job(id.job);
        let (account, thousandths) = (job.account, job.spec.gpu.per_device());
        let attempt = self.attempt_mut(id.job);
        attempt.on_node_mut(node).gpu_ms = gpu_ms;
        let used = usage_micros(attempt.price, thousandths, attempt.gpu_ms());
        let charged = attempt.used_micros.max(attempt.entry_micros);
        attempt.used_micros = used;
        if used > charged {
            self.accounts.rebase(at);
            let add = self.accounts.decay.scale(used - charged, at);
            self.accounts.charge(account, add, 0);
        }
    }
}
