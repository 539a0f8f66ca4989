//! An expiring-credit ledger whose operations may arrive in any order of their timestamps.

mod draws;
mod error;
mod points;
mod profile;
mod segment;
#[cfg(test)]
mod tests;
mod tree;

use segment::{Operation, Place};
use tree::{Edit, Tree};

pub use draws::Draw;
pub use error::TimelineError;

/// Sums of amounts stay below this, so that no sum or difference of two of them can wrap.
const LARGEST_SUM: i128 = i128::MAX / 4;

/// A pack of credits in a [`Timeline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackId(usize);

/// A consumption in a [`Timeline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumptionId(usize);

/// The answer to [`Timeline::consume_credits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumed {
    /// The consumption, for [`Timeline::shortfall`] and [`Timeline::draws`].
    pub id: ConsumptionId,
    /// How much of the amount was not there, as of now; operations that arrive later may change it.
    pub shortfall: u64,
}

/// Credits that expire and consumptions of them, recorded in any order of time.
///
/// See the [module](self) for the rules, the reasoning and the costs.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    tree: Tree,
    packs: usize,
    consumptions: Vec<Operation>,
    shortage: i128,
    recorded: i128,
}

impl Timeline {
    /// An empty timeline.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records a pack that is spendable from `at` to `expires_at`, both inclusive; `None` is never.
    ///
    /// Errors: `ZeroAmount`, `ExpiresBeforeStart`, `Overflow`.
    pub fn add_credits(
        &mut self,
        amount: u64,
        at: i64,
        expires_at: Option<i64>,
    ) -> Result<PackId, TimelineError> {
        // No instant lies after the last one, so a pack that lives until then never expires.
        let expires_at = expires_at.unwrap_or(i64::MAX);
        if amount == 0 {
            return Err(TimelineError::ZeroAmount);
        }
        if expires_at < at {
            return Err(TimelineError::ExpiresBeforeStart { at, expires_at });
        }
        let recorded = self.recorded_with(amount)?;
        let place = Place { at, consumes: false, arrival: self.packs };
        let change = self.tree.edit(&Edit::Insert(Operation { place, amount, expires_at }));
        self.shortage += change.shortage;
        self.recorded = recorded;
        self.packs += 1;
        Ok(PackId(place.arrival))
    }

    /// Records a consumption that takes what is there, up to `amount`.
    ///
    /// It may come up short itself and, when it lies before others, make those come up short.
    ///
    /// Errors: `ZeroAmount`, `Overflow`.
    pub fn consume_credits(&mut self, amount: u64, at: i64) -> Result<Consumed, TimelineError> {
        let (operation, recorded) = self.consumption(amount, at)?;
        let change = self.tree.edit(&Edit::Insert(operation));
        self.shortage += change.shortage;
        let id = self.accept(operation, recorded);
        Ok(Consumed { id, shortfall: self.shortfall_of(&operation) })
    }

    /// Records a consumption only if it gets its whole amount and no other consumption gets less
    /// than before.
    ///
    /// Errors: `ZeroAmount`, `Overflow`, `Insufficient`, `Committed`.
    pub fn try_consume(&mut self, amount: u64, at: i64) -> Result<ConsumptionId, TimelineError> {
        let (operation, recorded) = self.consumption(amount, at)?;
        if self.shortfall_of(&operation) > 0 {
            let available = magnitude(self.tree.read(operation.place).balance);
            return Err(TimelineError::Insufficient { available });
        }
        let change = self.tree.edit(&Edit::Insert(operation));
        if change.shortage > 0 {
            self.tree.edit(&Edit::Remove(operation));
            return Err(TimelineError::Committed { shortfall: magnitude(change.shortage) });
        }
        Ok(self.accept(operation, recorded))
    }

    /// What is spendable at `t`, after every operation at `t` or before.
    pub fn balance(&self, t: i64) -> u128 {
        let after_all = Place { at: t, consumes: true, arrival: usize::MAX };
        magnitude(self.tree.read(after_all).balance)
    }

    /// How much of a consumption's amount is not there, given everything recorded so far.
    pub fn shortfall(&self, id: ConsumptionId) -> Option<u64> {
        self.consumptions.get(id.0).map(|operation| self.shortfall_of(operation))
    }

    /// How much all consumptions together come up short.
    pub fn total_shortfall(&self) -> u128 {
        magnitude(self.shortage)
    }

    /// Which packs a consumption draws from, in the order in which it does, given everything
    /// recorded so far.
    ///
    /// This replays all operations before it: O(n log n).
    pub fn draws(&self, id: ConsumptionId) -> Option<Vec<Draw>> {
        self.consumptions.get(id.0).map(|operation| draws::draws(&self.tree, operation))
    }

    /// How many operations are recorded.
    pub fn len(&self) -> usize {
        self.packs + self.consumptions.len()
    }

    /// Whether nothing is recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn consumption(&self, amount: u64, at: i64) -> Result<(Operation, i128), TimelineError> {
        if amount == 0 {
            return Err(TimelineError::ZeroAmount);
        }
        let recorded = self.recorded_with(amount)?;
        let place = Place { at, consumes: true, arrival: self.consumptions.len() };
        Ok((Operation { place, amount, expires_at: at }, recorded))
    }

    fn accept(&mut self, operation: Operation, recorded: i128) -> ConsumptionId {
        self.recorded = recorded;
        self.consumptions.push(operation);
        ConsumptionId(operation.place.arrival)
    }

    fn recorded_with(&self, amount: u64) -> Result<i128, TimelineError> {
        let recorded = self.recorded + i128::from(amount);
        if recorded > LARGEST_SUM { Err(TimelineError::Overflow) } else { Ok(recorded) }
    }

    fn shortfall_of(&self, operation: &Operation) -> u64 {
        let available = self.tree.read(operation.place).balance;
        let missing = (i128::from(operation.amount) - available).max(0);
        u64::try_from(missing).expect("at most the whole amount is missing, and that is a u64")
    }
}

fn magnitude(amount: i128) -> u128 {
    u128::try_from(amount).expect("balances and shortages are never negative")
}
