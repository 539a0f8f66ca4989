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
//! Everything that happens lies in one order: packs start, something is consumed, packs expire. That
//! order is cut into *cells* of about √(n log n) events, so that there are about √(n / log n) of them. A cell
//! is replayed, alone and from nothing, whenever something changes in it. How the cells meet is worked
//! out without a replay:
//!
//! 1. Let *gone* be all that is consumed or expired up to some moment, consumptions counted in full
//!    even for what was not there. A consumption raises it by its amount. An expiry `x` raises it to
//!    whatever is gone or held and expires up to `x`, if that is more. What is held and expires up
//!    to `x` at most grows by the packs that start; consuming only moves it to what is gone. So
//!    after the expiry `x`, gone is the most over all earlier moments `s` of gone(`s`) and the packs
//!    that start after `s` and expire up to `x`. That is a longest path through time, and an edit
//!    changes the length of many ways at once, but not one by one.
//! 2. A credit that a cell, started with nothing, leaves unused stays unused whatever is handed over
//!    to it: first-expiring-first-out uses all that can be used, and others only compete for it. So
//!    of a cell only its ends matter: a way from cell `i` to the expiry `x` in a later cell `j` is
//!    gone(end of `i`), what `i` alone left of its packs that expire up to `x`, the packs of the
//!    cells between that expire up to `x`, the packs of `j` itself that expire up to `x`, and what
//!    goes in the rest of `j` after `x`, alone. gone(end of `j`) is the best of these ways, or
//!    gone(end of `i`) and what `j` alone makes go, for the cell `i` just before.
//! 3. Of all `x` in `j` only the best matters. It depends on the packs of `i` and of the cells
//!    between that expire *in* `j`, and on `j`; the packs that start and expire between are the same
//!    for all `x` and counted apart. So a new pack or consumption changes the ways out of its own
//!    cell, the ways into it and the ways into the cell of the expiry. The ways into one cell differ
//!    only where packs arrive, so that all of them together are as much work as that cell has events.
//! 4. For the ways out of one cell, what that cell left of its packs changes, and nothing else. For
//!    every pack that arrives from there we know how much better the best `x` gets by the whole of it, so
//!    the ways out of a cell are together as much work as packs leave it.
//! 5. The best way into each cell is found with about log n looks, because a way from an earlier cell
//!    that catches up with one from a later cell stays ahead.
//!
//! Replays (1) and best expiries (3) are one and the same kind of work, and neither needs a heap or a tree: see
//! `cascade.rs`. What expires first is drawn as if nothing else were there, so a cell is replayed pack by
//! pack in the order of expiry, and each pack fills the consumptions from its start on. And packs that
//! arrive raise the later expiries above the earlier ones, each filling up what the earlier ones are ahead.
//!
//! A balance takes what is held at the start of its cell from the same ways, turned round: for each expiry the
//! best over all cells instead of for each cell the best over all expiries. Then it replays its cell.
//! In the end everything has expired, so gone is then all that was added, and the shortfalls.
//!
//! # Costs
//!
//! | | |
//! |---|---|
//! | `balance`, `shortfall` | O(√(n log n)) |
//! | `add_credits`, `consume_credits`, `try_consume` | O(√(n log n)) amortised |
//! | `total_shortfall` | O(√(n log n)) after an edit, then O(1) |
//! | `len` | O(1) |
//! | `draws` | O(n log n): a replay of what comes before |
//! | memory | O(n) |
//!
//! That holds for any amounts in any order: no operation, however many crumbs with as many expiries
//! it swallows or sets free, costs more. With k cells of m events, an edit is O(m α(m)) in its cells, O(k) for
//! the ways that pass over it, and O(k log k) to follow the best ways; cells are as long as makes these
//! alike. The table leaves out α, the inverse of Ackermann's function, which is below five for
//! every n that fits a memory. The logarithm is that of the bisection in `ways.rs`; ways that catch up with
//! each other could be followed in O(k α(k)), but by methods that are slower at any such n.
//! It is amortised because cells that have grown are cut anew, all of them, O(n α(n)), after as many
//! operations as a cell was planned to have events, or more. `examples/timeline_growth.rs` measures it for
//! several orders, among them one that makes every operation change what expires at every expiry.
//!
//! # What cannot go wrong here
//!
//! The usual design, a heap of packs by expiry with amounts that shrink in place, has two traps:
//! entries that are spent or expired but still in the heap, and priorities or amounts that change
//! under it when history is corrected. Here is no heap, and no remaining amount that outlives the
//! replay of a cell: packs and consumptions are written once and never change, expiries are events
//! like all others, and what is left is computed from sums that an edit updates as a whole. What has
//! expired is not removed; the question at `t` does not reach it.

mod arrivals;
mod cascade;
mod cell;
mod draws;
mod effort;
mod error;
mod event;
mod grid;
mod lengths;
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
