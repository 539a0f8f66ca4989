//! Which timers of the ledger are due, and what they decide.

use crate::ledger::event::Event;
use crate::ledger::index::aside::{LedgerAside, STEP_EVENTS};
use crate::ledger::index::timers::{earlier, is_due};
use crate::ledger::state::Ledger;
use crate::machine::DuePart;
use crate::time::Timestamp;

/// The most timers of one kind that one step decides.
pub(super) const STEP: usize = 256;

impl Ledger {
    /// The deadline of the earliest timer of this part.
    pub(super) fn deadline(&self, part: DuePart) -> Option<Timestamp> {
        if !(self.aside.is_empty() && self.cuts.is_empty() && self.briefings.is_empty()) {
            return self.deadline_in_full(part);
        }
        let timers = self.timers.next_deadline(self.policy.expiry_waits);
        let timers = earlier(timers, self.next_forgetting());
        // Timers of jobs that become due within a group run after the group.
        let jobs = if self.undo.is_none() { self.jobs.deadline(self.now, part) } else { None };
        earlier(timers, jobs)
    }

    /// Pushes the first due timer, and up to `most` of its kind.
    pub(super) fn push_due(
        &self,
        now: Timestamp,
        part: DuePart,
        most: usize,
        events: &mut Vec<Event>,
    ) {
        let Some(deadline) = self.deadline(part) else { return };
        if self.first_cut().is_some() {
            return self.push_left_cuts(most, events);
        }
        if let Some(briefing) = self.first_briefing() {
            return self.push_briefing(briefing, most, events);
        }
        let timers = &self.timers;
        let activations = timers.activations.iter().take_while(|(at, _)| *at <= deadline);
        let activations = activations
            .filter(|(_, grant)| !self.is_aside(LedgerAside::Activation { grant: *grant }));
        for (_, grant) in activations.take(most) {
            events.push(Event::GrantActivated { grant: *grant });
        }
        if !events.is_empty() {
            return;
        }
        let expiries = timers.expiries.iter().take_while(|(at, _)| is_due(*at, deadline));
        let expiries =
            expiries.filter(|(_, bucket)| !self.is_aside(LedgerAside::Expiry { bucket: *bucket }));
        let expiring = if self.policy.expiry_waits { 0 } else { most };
        for (_, bucket) in expiries.take(expiring) {
            self.push_expiry(*bucket, STEP_EVENTS.saturating_sub(events.len()), events);
            if events.len() >= STEP_EVENTS {
                break;
            }
        }
        if !events.is_empty() {
            return;
        }
        let leases = timers.leases.iter().take_while(|(at, _)| is_due(*at, deadline));
        let leases = leases.filter(|(expires_at, hold)| {
            !self.is_aside(LedgerAside::Lapse { hold: *hold, expires_at: *expires_at })
        });
        for (_, hold) in leases.take(most) {
            self.push_lapse(now, *hold, events);
            // A lapse of a job sends a message to a cell. The next message must be numbered after
            // it is applied.
            if self.live_hold(*hold).job().is_some() {
                return;
            }
        }
        if !events.is_empty() {
            return;
        }
        if self.job_deadline(part).is_some_and(|at| at <= deadline) {
            return self.push_due_job(now, part, most, events);
        }
        self.push_forgetting(now, events);
    }
}
