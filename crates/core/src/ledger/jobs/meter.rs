//! Usage of running jobs: captures and leases.

use bursar_seeded::{Bug, seeded};

use super::JobState;
use crate::cell::ids::AttemptId;
use crate::ledger::command::Usage;
use crate::ledger::credits::price::Rounding;
use crate::ledger::credits::spend_order::overlay::Overlay;
use crate::ledger::event::{Event, Pieces};
use crate::ledger::id::{CellNo, HoldNo, JobNo};
use crate::ledger::jobs::start::RUNNING_LEASE_MS;
use crate::ledger::state::Ledger;
use crate::time::Timestamp;

impl Ledger {
    pub(in crate::ledger) fn push_started(&self, job: JobNo, events: &mut Vec<Event>) {
        let live = self.live_job(job).live_attempt();
        if live.is_some_and(|attempt| attempt.started_at.is_none()) {
            events.push(Event::AttemptStarted { job });
        }
    }

    pub(in crate::ledger) fn push_stopping(&self, job: JobNo, events: &mut Vec<Event>) {
        if self.live_job(job).state != JobState::Stopping {
            events.push(Event::AttemptStopping { job });
        }
    }

    /// Pushes the effects of one report of a node on live attempts.
    pub(in crate::ledger) fn push_usages(
        &self,
        now: Timestamp,
        cell: CellNo,
        usages: &[(AttemptId, u64)],
        events: &mut Vec<Event>,
    ) {
        // A report should name an attempt once. If it is named twice, the larger usage counts.
        let mut usages = usages.to_vec();
        usages.sort_unstable_by_key(|(attempt, gpu_ms)| (*attempt, std::cmp::Reverse(*gpu_ms)));
        usages.dedup_by_key(|(attempt, _)| *attempt);
        let mut overlay = Overlay::default();
        for (attempt, gpu_ms) in usages {
            let Some((job, _)) = self.live_attempt_of(cell, attempt) else { continue };
            self.push_started(job, events);
            if let Some(hold) = self.live_job(job).hold {
                self.push_usage(now, hold, gpu_ms, &mut overlay, events);
            }
        }
    }

    fn push_usage(
        &self,
        now: Timestamp,
        number: HoldNo,
        gpu_ms: u64,
        overlay: &mut Overlay,
        events: &mut Vec<Event>,
    ) {
        let hold = self.live_hold(number);
        // Cannot fail: submission checks that the limit of the rate is within the largest amount.
        if let Ok(metered) = self.meter(hold, Usage::GpuMs(gpu_ms), Rounding::Floor)
            && hold.grows_by(metered)
        {
            self.push_capture(now, number, hold, metered, None, overlay, events);
        }
        let renewed = Some(now.plus_millis(RUNNING_LEASE_MS));
        if renewed > hold.expires_at && !seeded(Bug::HoldLapsesWhileRunning) {
            let pieces = Pieces::new();
            let expires_at = renewed;
            events.push(Event::HoldExtended { hold: number, pieces, gpu_ms: 0, expires_at });
        }
    }
}
