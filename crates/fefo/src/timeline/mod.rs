//! An expiring-credit ledger whose operations may arrive in any order of their timestamps.
//!
//! ```
//! use fefo::Timeline;
//!
//! let mut timeline = Timeline::new();
//! timeline.add_credits(10, 0, Some(100))?;
//! timeline.add_credits(5, 50, None)?;
//! let spent = timeline.consume_credits(8, 60)?;
//! assert_eq!(timeline.balance(60), 7);
//! assert_eq!(timeline.balance(101), 5); // two of the first ten expired unused
//!
//! // News from the past: six more were gone by 20, so the one at 60 reaches into the second pack.
//! timeline.try_consume(6, 20)?;
//! assert_eq!(timeline.balance(60), 1);
//! assert_eq!(timeline.balance(101), 1);
//! assert_eq!(timeline.shortfall(spent.id), Some(0));
//!
//! // Two at 20 are there, but then the one at 60 would come up short by one: refused.
//! assert!(timeline.try_consume(2, 20).is_err());
//! # Ok::<(), fefo::timeline::TimelineError>(())
//! ```
//!
//! # Rules
//!
//! - A pack is spendable at `t` iff `at <= t <= expires_at`, both ends inclusive. `None` is never;
//!   `Some(i64::MAX)` means the same, as no instant comes after it.
//! - Operations take effect by instant; at one instant packs come before consumptions; then in
//!   order of arrival.
//! - A consumption takes from the packs valid at its instant, first the one that expires first;
//!   of one expiry, first the one that starts first, then the one that arrived first.
//! - [`consume_credits`](Timeline::consume_credits) takes what is there. What is missing is its
//!   shortfall: lost for good, not a debt that later packs repay.
//! - [`try_consume`](Timeline::try_consume) is all or nothing: it is refused if it, or any
//!   consumption already recorded, would come up (further) short. Nothing protects it from a later
//!   `consume_credits` with an earlier instant; who wants that uses `try_consume` throughout.
//! - Every answer equals that of a full replay, in the order above, of all that is recorded *now*.
//!   So a late operation changes what later ones draw, and shortfalls may grow or vanish.
//!
//! # How it works
//!
//! The operations are kept in time order in a balanced tree over segments of at most 64. A segment
//! is replayed whenever it is touched. A branch knows how its halves meet, and that is enough.
//!
//! Look at a run of operations that starts with nothing. It leaves *spare* credits, by expiry, and
//! a *shortage*. Now hand it more credits at its beginning. Which credits stay unused then?
//!
//! 1. First-expiring-first-out leaves as little unused as any assignment could, up to each
//!    instant: if a draw passes over a credit that expires earlier, exchanging the two costs
//!    nothing. So it is a matter of what *can* be used, and for credits that live in intervals and
//!    demand at instants Hall's condition says it: a set of credits can be used iff in no window
//!    of time those that live wholly inside exceed the demand inside.
//! 2. A credit that the run left unused stays unused when others join. So those handed over
//!    compete only with the ones that the run *used*. For these every window holds already.
//! 3. The ones handed over are all there at the beginning, so only windows that begin there can
//!    fail. The condition on windows, with two ends, becomes one on instants: up to each `x`,
//!    credits handed over and expiring by `x` fit into the *room* up to `x`, the demand up to `x`
//!    less the used credits that expire by `x`. Filling room in order of expiry is one pass; what
//!    does not fit overflows: it, or a credit it displaced, expires at that instant unused.
//!
//! So with `handed` = the spare credits of the left half that are valid at the split:
//!
//! ```text
//! overflow = walk along handed - room(right)
//! spare    = spare(right) + overflow
//! room     = room(left) + room(right) - handed + overflow
//! shortage = shortage(left) + shortage(right) - (Σ handed - Σ overflow)
//! ```
//!
//! An edit changes one segment, and each branch above it turns a sparse change of a half into a
//! sparse change of its own. Reading a balance goes down one path. Where it turns right, the
//! credits handed over add `extra = Σ handed - overflow before t - shortage(right) before t` to
//! what the right half alone would have: they vanish only by overflow or into what was short, and
//! while any is left it goes into the first shortage. A negative `extra` is the shortage that
//! remains. A consumption is complete and takes from nobody iff the shortage of the whole does not
//! grow, since it never makes another one less short. That is how `try_consume` decides.
//!
//! # Costs
//!
//! | | |
//! |---|---|
//! | `balance`, `shortfall` | O(√n) |
//! | `add_credits`, `consume_credits`, `try_consume` | O((1 + κ) √n) amortised, never above O(n) |
//! | `total_shortfall`, `len` | O(1) |
//! | `draws` | O(n log n): a replay of what comes before |
//! | memory | O(n log n) |
//!
//! κ is the greatest number of expiries, over the branches above the edit, at which the amount
//! left unused changes. Moving draws from one pack to another is free as long as it changes only
//! who draws from what; so a late operation that shifts every later draw has a small κ. For an
//! operation of amount `a`:
//!
//! - κ is at most the number of distinct expiries (days, say, in most ledgers);
//! - κ is at most `2a / g` when all amounts are multiples of `g`: the overflow of a branch is what
//!   stays unused with the left half less what stays unused without it, and each of the two
//!   changes in one direction only, by `a` in sum. So amounts within a constant factor of a common
//!   measure give O(√n), whatever the order;
//! - the worst case is an operation that swallows many crumbs with as many expiries, or sets them
//!   free. That costs up to O(n), about as much as a replay, each time. We know no exact structure
//!   that avoids it. `examples/timeline_growth.rs` measures it beside the usual cases.
//!
//! The √n is that of the blocks in a branch's profile, and halves with every second level.
//! Balancing costs O(log n) amortised.
//!
//! # What cannot go wrong here
//!
//! The usual design, a heap of packs by expiry with amounts that shrink in place, has two traps:
//! entries that are spent or expired but still in the heap, and priorities or amounts that change
//! under it when history is corrected. Here is no heap and no remaining amount: packs and
//! consumptions are written once and never change, expiries are only ever keys of sorted
//! sequences, and what is left is computed from sums that an edit updates as a whole. What has
//! expired is not removed; the question at `t` does not reach it.

mod arrivals;
mod between;
mod cell;
mod draws;
mod error;
mod event;
mod grid;
mod held;
mod peaks;
#[cfg(test)]
mod tests;
mod ways;

use event::Moment;
use grid::Grid;

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
    grid: Grid,
    consumptions: Vec<Consumption>,
    added: i128,
    recorded: i128,
}

#[derive(Clone, Copy, Debug)]
struct Consumption {
    moment: Moment,
    amount: u64,
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
        self.recorded = self.recorded_with(amount)?;
        self.added += i128::from(amount);
        let id = PackId(self.grid.packs.len());
        self.grid.add(amount, at, expires_at);
        Ok(id)
    }

    /// Records a consumption that takes what is there, up to `amount`.
    ///
    /// It may come up short itself and, when others come after it, make those come up short.
    ///
    /// Errors: `ZeroAmount`, `Overflow`.
    pub fn consume_credits(&mut self, amount: u64, at: i64) -> Result<Consumed, TimelineError> {
        let (consumption, recorded) = self.consumption(amount, at)?;
        self.grid.consume(amount, consumption.moment);
        let id = self.accept(consumption, recorded);
        Ok(Consumed { id, shortfall: self.shortfall_of(&consumption) })
    }

    /// Records a consumption only if it gets its whole amount and no other consumption gets less
    /// than before.
    ///
    /// A refusal costs up to two edits: whom it would harm shows only with the consumption in place.
    ///
    /// Errors: `ZeroAmount`, `Overflow`, `Insufficient`, `Committed`.
    pub fn try_consume(&mut self, amount: u64, at: i64) -> Result<ConsumptionId, TimelineError> {
        let (consumption, recorded) = self.consumption(amount, at)?;
        let available = magnitude(self.grid.balance(consumption.moment));
        if available < u128::from(amount) {
            return Err(TimelineError::Insufficient { available });
        }
        let shortfall_before = self.total_shortfall();
        self.grid.consume(amount, consumption.moment);
        let shortfall = self.total_shortfall() - shortfall_before;
        if shortfall > 0 {
            self.grid.forget(consumption.moment);
            return Err(TimelineError::Committed { shortfall });
        }
        Ok(self.accept(consumption, recorded))
    }

    /// What is spendable at `t`, after every operation at `t` or before.
    pub fn balance(&self, t: i64) -> u128 {
        magnitude(self.grid.balance(Moment::consumption(t, usize::MAX)))
    }

    /// How much of a consumption's amount is not there, given everything recorded so far.
    pub fn shortfall(&self, id: ConsumptionId) -> Option<u64> {
        self.consumptions.get(id.0).map(|consumption| self.shortfall_of(consumption))
    }

    /// How much all consumptions together come up short.
    pub fn total_shortfall(&self) -> u128 {
        // In the end everything that was added is gone; more can only have been asked for.
        magnitude(self.grid.gone() - self.added)
    }

    /// Which packs a consumption draws from, in the order in which it does, given everything
    /// recorded so far.
    ///
    /// This replays all operations before it: O(n log n).
    pub fn draws(&self, id: ConsumptionId) -> Option<Vec<Draw>> {
        let consumption = self.consumptions.get(id.0)?;
        Some(draws::draws(&self.grid, consumption.moment))
    }

    /// How many operations are recorded.
    pub fn len(&self) -> usize {
        self.grid.packs.len() + self.consumptions.len()
    }

    /// Whether nothing is recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn consumption(&self, amount: u64, at: i64) -> Result<(Consumption, i128), TimelineError> {
        if amount == 0 {
            return Err(TimelineError::ZeroAmount);
        }
        let recorded = self.recorded_with(amount)?;
        let moment = Moment::consumption(at, self.consumptions.len());
        Ok((Consumption { moment, amount }, recorded))
    }

    fn accept(&mut self, consumption: Consumption, recorded: i128) -> ConsumptionId {
        self.recorded = recorded;
        self.consumptions.push(consumption);
        ConsumptionId(consumption.moment.arrival)
    }

    fn recorded_with(&self, amount: u64) -> Result<i128, TimelineError> {
        let recorded = self.recorded + i128::from(amount);
        if recorded > LARGEST_SUM { Err(TimelineError::Overflow) } else { Ok(recorded) }
    }

    fn shortfall_of(&self, consumption: &Consumption) -> u64 {
        let available = self.grid.balance(consumption.moment);
        let missing = (i128::from(consumption.amount) - available).max(0);
        u64::try_from(missing).expect("at most the whole amount is missing, and that is a u64")
    }
}

fn magnitude(amount: i128) -> u128 {
    u128::try_from(amount).expect("balances and shortages are never negative")
}
