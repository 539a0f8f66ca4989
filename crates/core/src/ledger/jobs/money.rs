//! What a job has used, spent and returned so far.

use super::{Attempt, Job};
use crate::ledger::credits::price::Rounding;
use crate::ledger::holds::hold::{Hold, HoldKind};
use crate::ledger::state::Ledger;
use crate::time::Timestamp;

/// The credits of a job over all its holds, in micro-credits.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct JobMoney {
    /// Charged for usage, whether credits were found for it or not.
    pub charged: u64,
    /// Returned to the grants.
    pub returned: u64,
    /// Charged usage for which no credits were found.
    pub uncollected: u64,
}

/// The usage of one attempt.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct AttemptUsage {
    /// GPU-milliseconds.
    pub gpu_ms: u64,
    /// Their cost in micro-credits.
    pub charged: u64,
    /// The part of the cost for which no credits were found.
    pub uncollected: u64,
}

impl Ledger {
    /// The usage of an attempt so far.
    pub fn attempt_usage(&self, job: &Job, attempt: &Attempt) -> AttemptUsage {
        if let Some(end) = &attempt.end {
            let (gpu_ms, charged, uncollected) = (end.gpu_ms, end.charged, end.uncollected);
            return AttemptUsage { gpu_ms, charged, uncollected };
        }
        let tenant = self.account(job.order.account).tenant;
        let number =
            attempt.hold.as_ref().and_then(|name| self.find_hold(tenant, HoldKind::Hold, name));
        let Some(hold) = number.and_then(|number| self.hold(number)) else {
            return AttemptUsage::default();
        };
        AttemptUsage {
            gpu_ms: hold.details.as_ref().map_or(0, |details| details.gpu_ms),
            charged: hold.captured + hold.uncollected(),
            uncollected: hold.uncollected(),
        }
    }

    /// The usage of those attempts of a job that have not ended, or not before an instant.
    pub fn job_usage_since(&self, job: &Job, since: Timestamp) -> AttemptUsage {
        let recent = job.attempts.iter().filter(|own| own.end.is_none_or(|end| end.at >= since));
        recent.map(|attempt| self.attempt_usage(job, attempt)).fold(
            AttemptUsage::default(),
            |sum, usage| AttemptUsage {
                gpu_ms: sum.gpu_ms.saturating_add(usage.gpu_ms),
                charged: sum.charged.saturating_add(usage.charged),
                uncollected: sum.uncollected.saturating_add(usage.uncollected),
            },
        )
    }

    /// The credits of a job so far; `last` is its newest hold, from the ledger or from its archived
    /// record.
    pub fn job_money(&self, job: &Job, last: Option<&Hold>) -> JobMoney {
        let mut money = JobMoney { returned: job.returned(last), ..JobMoney::default() };
        for attempt in &job.attempts {
            let usage = self.attempt_usage(job, attempt);
            money.charged += usage.charged;
            money.uncollected += usage.uncollected;
        }
        money
    }

    /// What a job that runs in a cell has cost until now, in micro-credits: what was charged, and the
    /// time since the last report at its price.
    pub fn job_cost_at(&self, job: &Job, now: Timestamp) -> Option<u64> {
        let live = job.live_attempt().filter(|live| live.cell.is_some())?;
        let terms = &job.order.terms;
        let running = terms.gpu_ms(now.millis_since(live.started_at?).max(0));
        let cost = terms.rate(live.per_gpu_hour).charge(running, Rounding::Floor);
        let charged = self.attempt_usage(job, live).charged;
        let ends = job.attempts.iter().filter_map(|attempt| attempt.end);
        let before: u64 = ends.map(|end| end.charged).sum();
        Some(before + charged.max(cost.map_or(0, |cost| cost.length())))
    }
}

impl Job {
    /// The credits returned to the grants so far, over all holds.
    fn returned(&self, last: Option<&Hold>) -> u64 {
        let placed = self.attempts.iter().filter(|attempt| attempt.cell.is_some());
        let surplus: u64 = placed.map(|attempt| self.surplus(attempt)).sum();
        let ends = self.attempts.iter().filter_map(|attempt| attempt.end);
        let ended: u64 = ends.map(|end| end.returned).sum();
        // A job that ended before it was placed has returned its whole hold.
        let name = self.hold_name.as_ref();
        let unused = last.filter(|_| self.attempts.iter().all(|one| one.hold.as_ref() != name));
        let unused = unused.filter(|hold| !hold.is_open());
        surplus + ended + unused.map_or(0, |hold| hold.amount - hold.captured)
    }

    /// The credits that were returned because the attempt got a cheaper GPU type than its hold was
    /// placed for.
    fn surplus(&self, attempt: &Attempt) -> u64 {
        let (terms, need) = (&self.order.terms, self.order.need());
        let pinned = terms.hold_at(attempt.per_gpu_hour, terms.first_window());
        need.saturating_sub(pinned.unwrap_or(need)).length()
    }
}
