//! Timers, found by looking at every grant and hold.

use bursar_core::ledger::command::{Cause, OnExpiry};
use bursar_core::ledger::holds::hold::HoldState;
use bursar_core::time::Timestamp;

use super::Model;

/// A due timer. At one instant the kinds run in this order.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Activation(usize),
    Expiry(usize),
    Lapse(usize),
}

impl Model {
    /// Runs all timers that are due by `now`, each at its own instant.
    pub fn advance(&mut self, now: Timestamp) {
        let now = now.millis();
        while let Some((at, due)) = self.earliest_due().filter(|(at, _)| *at <= now) {
            self.now = self.now.max(at);
            match due {
                Due::Activation(grant) => self.activate(grant),
                Due::Expiry(grant) => self.expire(grant),
                Due::Lapse(hold) => self.close_hold(hold, HoldState::Lapsed, Cause::Holder),
            }
        }
        self.now = self.now.max(now);
    }

    /// Every instant at which a timer is due.
    pub fn deadlines(&self) -> Vec<Timestamp> {
        self.all_due().map(|(at, _)| Timestamp::from_millis(at)).collect()
    }

    fn earliest_due(&self) -> Option<(i64, Due)> {
        self.all_due().min()
    }

    fn all_due(&self) -> impl Iterator<Item = (i64, Due)> {
        let grants = self.grants.iter().enumerate();
        let activations = grants
            .clone()
            .filter(|(_, grant)| !grant.is_active)
            .map(|(number, grant)| (grant.spendable_from, Due::Activation(number)));
        let expiries = grants
            .filter(|(_, grant)| !grant.is_expired)
            .filter_map(|(number, grant)| Some((grant.expires_at? + 1, Due::Expiry(number))));
        let lapses = (self.holds.iter().enumerate())
            .filter(|(_, hold)| hold.state == HoldState::Open)
            .filter_map(|(number, hold)| Some((hold.expires_at? + 1, Due::Lapse(number))));
        activations.chain(expiries).chain(lapses)
    }

    /// Expires a grant: its free units, and those that strict holds still hold.
    fn expire(&mut self, number: usize) {
        let grant = &mut self.grants[number];
        grant.is_expired = true;
        grant.expired += grant.free;
        grant.free = 0;
        for hold in &mut self.holds {
            if hold.state != HoldState::Open || hold.on_expiry != OnExpiry::Strict {
                continue;
            }
            for lot in hold.lots.iter_mut().filter(|lot| lot.grant == number) {
                let cut = lot.held();
                lot.cut += cut;
                grant.held -= cut;
                grant.expired += cut;
            }
        }
    }
}
