//! The credits of one user, with operations in any order of time.

use std::collections::BTreeMap;

use fefo::Timeline;
use fefo::timeline::{ConsumptionId, TimelineError};

use super::UserCredits;
use super::answer::{BadLine, Change, Code, LineOutcome};
use super::operation::Action;

/// A timeline, and the answers that late operations can change.
#[derive(Default)]
pub(super) struct TimelineCredits {
    timeline: Timeline,
    /// Answered consumptions, by instant and line.
    consumptions: BTreeMap<(i64, u64), AnsweredConsumption>,
    /// Answered balances, by instant and line.
    balances: BTreeMap<(i64, u64), u128>,
    latest: i64,
}

struct AnsweredConsumption {
    id: ConsumptionId,
    amount: u64,
    consumed: u64,
}

impl UserCredits for TimelineCredits {
    fn apply(&mut self, line: u64, action: Action) -> Result<LineOutcome, BadLine> {
        let now = action.instant().unwrap_or(self.latest);
        let outcome = match action {
            Action::AddCredits { amount, expiry_time, at: _ } => self.add(amount, expiry_time, now),
            Action::ConsumeCredits { amount, allow_partial: true, .. } => {
                self.consume_up_to(line, amount, now)
            }
            Action::ConsumeCredits { amount, allow_partial: false, .. } => {
                self.consume_all(line, amount, now)
            }
            Action::GetBalance { .. } => {
                let balance = self.timeline.balance(now);
                self.balances.insert((now, line), balance);
                Ok(LineOutcome::Balance { balance })
            }
        }?;
        self.latest = self.latest.max(now);
        Ok(outcome)
    }
}

impl TimelineCredits {
    fn add(&mut self, amount: u64, expiry_time: i64, now: i64) -> Result<LineOutcome, BadLine> {
        let shortfall = self.timeline.total_shortfall();
        self.timeline.add_credits(amount, now, Some(expiry_time)).map_err(bad_line)?;
        let covered = shortfall - self.timeline.total_shortfall();
        Ok(LineOutcome::CreditsAdded { at: now, changes: self.changes(now, covered) })
    }

    fn consume_up_to(&mut self, line: u64, amount: u64, now: i64) -> Result<LineOutcome, BadLine> {
        let shortfall = self.timeline.total_shortfall();
        let new = self.timeline.consume_credits(amount, now).map_err(bad_line)?;
        let of_others = self.timeline.total_shortfall() - u128::from(new.shortfall) - shortfall;
        let changes = self.changes(now, of_others);
        let consumed = amount - new.shortfall;
        let answered = AnsweredConsumption { id: new.id, amount, consumed };
        self.consumptions.insert((now, line), answered);
        Ok(LineOutcome::CreditsConsumed { consumed, packs: None, changes })
    }

    fn consume_all(&mut self, line: u64, amount: u64, now: i64) -> Result<LineOutcome, BadLine> {
        let id = match self.timeline.try_consume(amount, now) {
            Ok(id) => id,
            Err(TimelineError::Insufficient { available }) => {
                return Ok(LineOutcome::Insufficient { available });
            }
            Err(TimelineError::Committed { shortfall }) => {
                return Ok(LineOutcome::Committed { shortfall });
            }
            Err(
                error @ (TimelineError::ZeroAmount
                | TimelineError::ExpiresBeforeStart { .. }
                | TimelineError::Overflow),
            ) => return Err(bad_line(error)),
        };
        // It is refused if another consumption would get less.
        let changes = self.changes(now, 0);
        let answered = AnsweredConsumption { id, amount, consumed: amount };
        self.consumptions.insert((now, line), answered);
        Ok(LineOutcome::CreditsConsumed { consumed: amount, packs: None, changes })
    }

    /// The answers at `now` and later that an operation at `now` has changed; `None` if there are
    /// none and the operation is not late.
    ///
    /// `shifted` is the sum by which consumptions that were answered get more or less. A pack never
    /// takes from a consumption, and a consumption never gives to another, so all of them change in
    /// the same direction, and the search ends when the sum is found.
    fn changes(&mut self, now: i64, shifted: u128) -> Option<Vec<Change>> {
        let mut changes = Vec::new();
        let mut left = shifted;
        for (&(_, line), answered) in self.consumptions.range_mut((now, 0)..) {
            if left == 0 {
                break;
            }
            let shortfall = self.timeline.shortfall(answered.id);
            let shortfall = shortfall.expect("every answered consumption is recorded");
            let (consumed, was) = (answered.amount - shortfall, answered.consumed);
            if consumed != was {
                left -= u128::from(consumed.abs_diff(was));
                answered.consumed = consumed;
                changes.push(Change::Consumed { line, consumed, was });
            }
        }
        let mut known = None;
        for (&(instant, line), answered) in self.balances.range_mut((now, 0)..) {
            let balance = match known {
                Some((same, balance)) if same == instant => balance,
                _ => self.timeline.balance(instant),
            };
            known = Some((instant, balance));
            let was = std::mem::replace(answered, balance);
            if balance != was {
                changes.push(Change::Balance { line, balance, was });
            }
        }
        changes.sort_unstable_by_key(Change::line);
        (now < self.latest || !changes.is_empty()).then_some(changes)
    }
}

fn bad_line(error: TimelineError) -> BadLine {
    match error {
        TimelineError::ExpiresBeforeStart { at, expires_at } => {
            BadLine::expires_before_start(expires_at, at)
        }
        TimelineError::ZeroAmount => BadLine::malformed(error.to_string()),
        TimelineError::Overflow
        | TimelineError::Insufficient { .. }
        | TimelineError::Committed { .. } => BadLine::new(Code::Overflow, error.to_string()),
    }
}
