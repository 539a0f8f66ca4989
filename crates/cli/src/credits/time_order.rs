//! The credits of one user, with operations in the order of time.

use fefo::{AddError, Draw, Pool};

use super::UserCredits;
use super::answer::{BadLine, Code, LineOutcome, PackPart};
use super::operation::Action;

/// A pool and the instant of its last operation.
#[derive(Default)]
pub(super) struct PoolCredits {
    pool: Pool,
    /// The line that added each pack, by the number of the pack.
    pack_lines: Vec<u64>,
    latest: i64,
}

impl UserCredits for PoolCredits {
    fn apply(&mut self, line: u64, action: Action) -> Result<LineOutcome, BadLine> {
        let now = action.instant().unwrap_or(self.latest);
        if now < self.latest {
            let text = format!(
                "{now} is before {}, the time of the last operation of this user; \
                 --any-order accepts late operations",
                self.latest
            );
            return Err(BadLine::new(Code::OutOfOrder, text));
        }
        let outcome = match action {
            Action::AddCredits { amount, expiry_time, at: _ } => {
                self.add(line, amount, expiry_time, now)?
            }
            Action::ConsumeCredits { amount, allow_partial: true, .. } => {
                let draw = self.pool.consume_up_to(amount, now);
                self.consumed(&draw)
            }
            Action::ConsumeCredits { amount, allow_partial: false, .. } => {
                match self.pool.consume_credits(amount, now) {
                    Ok(draw) => self.consumed(&draw),
                    Err(shortage) => LineOutcome::Insufficient { available: shortage.available },
                }
            }
            Action::GetBalance { .. } => {
                LineOutcome::Balance { balance: self.pool.get_balance(now) }
            }
        };
        self.latest = now;
        Ok(outcome)
    }
}

impl PoolCredits {
    fn add(
        &mut self,
        line: u64,
        amount: u64,
        expiry: i64,
        now: i64,
    ) -> Result<LineOutcome, BadLine> {
        if expiry < now {
            return Err(BadLine::expires_before_start(expiry, now));
        }
        self.pool.add_credits(amount, expiry).map_err(|error| match error {
            AddError::Zero => BadLine::malformed("the amount is zero; write at least 1"),
            AddError::AlreadyExpired => BadLine::expires_before_start(expiry, now),
            AddError::Overflow => {
                let text = format!(
                    "the packs that expire at {expiry} would have more than {} credits together; \
                     write a smaller amount",
                    u64::MAX
                );
                BadLine::new(Code::Overflow, text)
            }
        })?;
        self.pack_lines.push(line);
        Ok(LineOutcome::CreditsAdded { at: now, changes: None })
    }

    fn consumed(&self, draw: &Draw) -> LineOutcome {
        let lots = self.pool.lots(draw);
        let consumed = lots.iter().map(|(_, amount)| amount).sum();
        let line_of = |pack: u64| {
            let index = usize::try_from(pack).expect("packs are numbered from 0 without gaps");
            self.pack_lines[index]
        };
        let part = |(pack, amount): (fefo::PackId, u64)| PackPart { line: line_of(pack.0), amount };
        let packs = lots.into_iter().map(part).collect();
        LineOutcome::CreditsConsumed { consumed, packs: Some(packs), changes: None }
    }
}
