//! Running time that is paid for in windows: the next one is requested when half of the last is
//! left.

use crate::cell::ids::{AttemptId, JobId};
use crate::cell::index::timers::Timer;
use crate::cell::state::Cell;
use crate::time::Timestamp;

/// Running time that is paid for: in total, and by the last window.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Funded {
    pub total_ms: i64,
    pub last_ms: i64,
}

impl Cell {
    /// Starts the timers for the end of the paid time, counted from the first report of running.
    pub(crate) fn start_funding_timers(&mut self, since: Timestamp, id: JobId) {
        let Some(funded) = self.attempt_mut(id).funded else { return };
        let end = since.plus_millis(funded.total_ms);
        let ask = since.plus_millis(funded.total_ms - funded.last_ms / 2);
        self.set_attempt_timer(ask, Timer::FundsNeeded(id), id);
        self.set_attempt_timer(end, Timer::FundsEnd(id), id);
    }

    pub(crate) fn apply_funding_set(&mut self, id: AttemptId, funded_ms: Option<i64>) {
        let attempt = self.attempt_mut(id.job);
        let before = attempt.funded.map_or(0, |funded| funded.total_ms);
        attempt.funded = funded_ms.map(|total_ms| Funded {
            total_ms,
            last_ms: if total_ms > before { total_ms - before } else { total_ms },
        });
        let (since, stopping) = (attempt.running_since, attempt.stop.is_some());
        self.clear_attempt_timer(Timer::FundsNeeded(id.job), id.job);
        self.clear_attempt_timer(Timer::FundsEnd(id.job), id.job);
        if let Some(since) = since.filter(|_| !stopping) {
            self.start_funding_timers(since, id.job);
        }
    }
}
