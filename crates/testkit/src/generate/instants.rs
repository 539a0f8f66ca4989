//! Instants of commands: often equal to the last one, often near a deadline.

use bursar_core::ledger::command::BudgetPeriod;
use bursar_core::time::Timestamp;

use super::{DAY_MS, Generator};
use crate::model::{Model, period_around};

const HOUR_MS: i64 = 3_600_000;

impl Generator {
    /// Advances to the instant of the next command.
    pub(super) fn move_time(&mut self, model: &Model) {
        if !self.random.chance(self.flavor.hasty) {
            return;
        }
        let target = match self.random.index(36) {
            0..=11 => self.now + self.random.between(1, 3_000),
            12..=21 => self.around_a_deadline(model),
            22..=24 => self.around_a_midnight(),
            25..=32 => self.now + self.random.between(1, HOUR_MS),
            33 | 34 => self.now + self.random.between(1, DAY_MS),
            _ => self.now + self.random.between(1, 20 * DAY_MS),
        };
        self.now = self.now.max(target);
    }

    fn around_a_deadline(&mut self, model: &Model) -> i64 {
        let mut deadlines: Vec<i64> =
            model.deadlines().into_iter().map(Timestamp::millis).collect();
        deadlines.retain(|deadline| (self.now..self.now + 60 * DAY_MS).contains(deadline));
        deadlines.sort_unstable();
        deadlines.truncate(3);
        if deadlines.is_empty() {
            return self.now;
        }
        *self.random.pick(&deadlines) + self.random.between(-2, 1)
    }

    fn around_a_midnight(&mut self) -> i64 {
        let period = *self.random.pick(&[
            BudgetPeriod::Day,
            BudgetPeriod::Day,
            BudgetPeriod::Week,
            BudgetPeriod::Month,
        ]);
        let offset = *self.random.pick(&super::terms::OFFSETS);
        match period_around(self.now, period, offset) {
            Some((_, end)) => end + self.random.between(-1, 1),
            None => self.now,
        }
    }

    /// The expiry of a new grant: one of a few, so that grants share them.
    pub(super) fn expiry(&mut self) -> Option<Timestamp> {
        if self.random.chance(self.flavor.lasting) {
            return None;
        }
        let at = match self.random.index(15) {
            0 => self.now + self.random.between(-1, 2),
            1 => self.now + self.random.between(0, HOUR_MS),
            _ => {
                let place = self.random.index(self.expiries.len());
                if self.expiries[place] < self.now {
                    self.expiries[place] = self.now + self.random.between(0, 3 * DAY_MS);
                }
                self.expiries[place]
            }
        };
        Some(Timestamp::from_millis(at))
    }

    /// The first instant of a new grant.
    pub(super) fn effective_at(&mut self) -> Option<Timestamp> {
        let at = match self.random.index(20) {
            0 => self.now,
            1 => self.now - self.random.between(1, DAY_MS),
            2 => self.now + self.random.between(1, 2),
            3 | 4 => self.now + self.random.between(1, DAY_MS),
            5 => *self.random.pick(&self.expiries) + self.random.between(0, 1),
            _ => return None,
        };
        Some(Timestamp::from_millis(at))
    }

    /// The time to live of a hold.
    pub(super) fn ttl(&mut self) -> Option<i64> {
        match self.random.index(50) {
            0..=19 => None,
            20 => Some(1_000),
            21..=30 => Some(self.random.between(1_000, HOUR_MS)),
            31..=40 => Some(self.random.between(1_000, 3 * DAY_MS)),
            // Ends exactly when some grant expires.
            41..=48 => Some((*self.random.pick(&self.expiries) - self.now).max(1_000)),
            _ => Some(*self.random.pick(&[0, 999, -5, 315_360_000_000, 315_360_000_001, i64::MAX])),
        }
    }

    /// The effective time of late usage.
    pub(super) fn used_at(&mut self) -> Option<Timestamp> {
        if !self.random.chance(self.flavor.late) {
            return None;
        }
        let at = match self.random.index(9) {
            0 => self.now,
            1 => self.now - 1,
            2 | 3 => self.now - self.random.between(1, HOUR_MS),
            4 | 5 => self.now - self.random.between(1, 3 * DAY_MS),
            6 => self.now - 3 * DAY_MS - self.random.between(-1, 1),
            _ => (self.random.pick(&self.expiries) + self.random.between(-1, 1)).min(self.now + 1),
        };
        Some(Timestamp::from_millis(at))
    }
}
