//! Warnings before the paid running time ends: one each time the runway becomes short.

use super::{Attempt, Job, JobState, OnExhausted};
use crate::ledger::credits::spend_order::draw::DrawRequest;
use crate::ledger::event::Event;
use crate::ledger::id::JobNo;
use crate::ledger::state::Ledger;
use crate::time::Timestamp;

impl Attempt {
    /// When the next warning is due, and its consequence. Where both ends are the same, the job
    /// stops: there is no overdraft to warn of.
    fn next_warning(&self, ahead_ms: i64) -> Option<(Timestamp, OnExhausted)> {
        let credits = self.credits_ms.filter(|_| self.warned.is_none());
        let all = self.funded_ms.filter(|_| self.short && self.warned != Some(OnExhausted::Stop));
        let warning =
            |ms: Option<i64>, then| Some((self.ends_at(ms?)?.plus_millis(-ahead_ms), then));
        let overdraft = warning(credits, OnExhausted::Overdraft);
        let stop = warning(all, OnExhausted::Stop);
        [stop, overdraft].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// When it will have run for `running_ms`.
    fn ends_at(&self, running_ms: i64) -> Option<Timestamp> {
        self.started_at.map(|started| started.plus_millis(running_ms))
    }

    /// Clears warnings of ends that are no longer near.
    pub(super) fn settle_warnings(&mut self, at: Timestamp, ahead_ms: i64) {
        let near = |ms: Option<i64>| {
            let end = ms.and_then(|ms| self.ends_at(ms));
            end.is_some_and(|end| end.plus_millis(-ahead_ms) <= at)
        };
        self.warned = match self.warned {
            Some(OnExhausted::Stop) if self.short && near(self.funded_ms) => self.warned,
            Some(_) if near(self.credits_ms) => Some(OnExhausted::Overdraft),
            Some(_) | None => None,
        };
    }
}

impl Job {
    /// When the next warning before the paid running time ends is due, and its consequence.
    pub(in crate::ledger) fn next_warning(&self) -> Option<(Timestamp, OnExhausted)> {
        let ahead_ms = self.order.terms.warn_ahead_ms;
        let runs = self.state == JobState::Running && ahead_ms > 0;
        self.live_attempt().filter(|_| runs)?.next_warning(ahead_ms)
    }
}

impl Ledger {
    /// Pushes a due warning, unless more credits have become available.
    pub(in crate::ledger) fn push_warning(
        &self,
        now: Timestamp,
        number: JobNo,
        events: &mut Vec<Event>,
    ) {
        let job = self.live_job(number);
        let Some((live, (_, then))) = job.live_attempt().zip(job.next_warning()) else { return };
        let averted = match then {
            OnExhausted::Stop => self.push_refill(now, number, events).is_ok(),
            OnExhausted::Overdraft => self.push_more_credits(now, number, events),
        };
        let running_ms = match then {
            OnExhausted::Stop => live.funded_ms,
            OnExhausted::Overdraft => live.credits_ms,
        };
        if let Some(ends_at) = running_ms.and_then(|ms| live.ends_at(ms)).filter(|_| !averted) {
            events.push(Event::ExhaustionWarned { job: number, ends_at, then });
        }
    }

    /// Records that credits last longer than computed before: usage beyond a hold is first paid
    /// from credits that the account has by then. Returns whether they do.
    fn push_more_credits(&self, now: Timestamp, number: JobNo, events: &mut Vec<Event>) -> bool {
        let job = self.live_job(number);
        let (Some(live), Some(hold)) = (job.live_attempt(), job.hold) else { return false };
        let (hold, terms) = (self.live_hold(hold), &job.order.terms);
        let path = self.path(hold.account);
        let context = job.order.context();
        let request = DrawRequest { hold: Some(hold), ..DrawRequest::new(&path, &context) };
        let room = self.budget_room(now, &path).min(u128::from(live.overdraft));
        let there = self.largest_draw(request, &[], room);
        let there = u64::try_from(there).unwrap_or(u64::MAX);
        let lasts = terms.running_ms(live.per_gpu_hour, hold.amount.saturating_add(there));
        let ends = live.ends_at(lasts).map(|end| end.plus_millis(-terms.warn_ahead_ms));
        let longer = ends.is_some_and(|warn_at| warn_at > now);
        if longer {
            events.push(Event::AttemptFunded {
                job: number,
                funded_ms: live.funded_ms,
                overdraft: live.overdraft,
                short: live.short,
                credits_ms: Some(lasts),
            });
        }
        longer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credits::Credits;
    use smallvec::SmallVec;

    #[test]
    fn a_job_without_any_overdraft_is_warned_of_its_stop_alone() {
        let start = Timestamp::from_millis(0);
        let mut attempt = Attempt {
            cell: None,
            number: 1,
            gpu_type: None,
            nodes: SmallVec::new(),
            per_gpu_hour: Credits::ZERO,
            hold: None,
            confirmed_at: start,
            started_at: Some(start),
            funded_ms: Some(900_000),
            overdraft: 0,
            short: true,
            credits_ms: Some(900_000),
            warned: None,
            end: None,
        };
        let due = attempt.next_warning(300_000);
        assert_eq!(due, Some((Timestamp::from_millis(600_000), OnExhausted::Stop)));
        attempt.warned = Some(OnExhausted::Stop);
        assert_eq!(attempt.next_warning(300_000), None);
    }
}
