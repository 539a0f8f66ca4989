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
//! // A late operation: six were already consumed at 20, so the one at 60 draws from the second pack.
//! timeline.try_consume(6, 20)?;
//! assert_eq!(timeline.balance(60), 1);
//! assert_eq!(timeline.balance(101), 1);
//! assert_eq!(timeline.shortfall(spent.id), Some(0));
//!
//! // Two are available at 20, but then the one at 60 would have a shortfall of one: refused.
//! assert!(timeline.try_consume(2, 20).is_err());
//! # Ok::<(), fefo::timeline::TimelineError>(())
//! ```
//!
//! # Rules
//!
//! - A pack is spendable at `t` iff `at <= t <= expires_at`, both ends inclusive. `None` means no
//!   expiry; `Some(i64::MAX)` means the same, because no instant comes after it.
//! - Operations take effect by instant; at one instant packs come before consumptions; then in
//!   order of arrival.
//! - A consumption draws from the packs that are valid at its instant: first the one that expires
//!   first; of equal expiry, the one that starts first; then the one that arrived first.
//! - [`consume_credits`](Timeline::consume_credits) takes what is available. The missing amount is
//!   its shortfall. It is not a debt: later packs do not repay it.
//! - [`try_consume`](Timeline::try_consume) is all or nothing: it is refused if it, or any
//!   consumption already recorded, would have a new or larger shortfall. A later `consume_credits`
//!   with an earlier instant can still cause one; use `try_consume` throughout to prevent this.
//! - Every answer equals that of a full replay, in the order above, of all operations recorded so
//!   far. So a late operation changes what later ones draw, and shortfalls may grow or vanish.
//!
//! # How it works
//!
//! All events lie in one order: packs start, credits are consumed, packs expire. That order is
//! divided into *cells* of about √(n log n) events, so that there are about √(n / log n) cells.
//! When an event of a cell changes, the cell is replayed alone, from empty. The effect of cells on
//! each other is computed without a replay:
//!
//! 1. Let *gone* be everything consumed or expired up to some moment. Consumptions count in full,
//!    including their shortfall. A consumption raises gone by its amount. An expiry `x` raises it
//!    to the sum of what is gone or held and expires up to `x`, if that is more. What is held and
//!    expires up to `x` grows at most by the packs that start; a consumption only moves it to what
//!    is gone. So after the expiry `x`, gone is the maximum over all earlier moments `s` of
//!    gone(`s`) plus the packs that start after `s` and expire up to `x`. This is a longest path
//!    through time. An edit changes the length of many paths at once, so they are not updated one
//!    by one.
//! 2. A credit that a cell leaves unused when it starts empty stays unused whatever earlier cells
//!    hand over to it: first-expiring-first-out uses all that can be used, and other credits only
//!    compete for it. So only the ends of a cell matter. The length of a path from cell `i` to the
//!    expiry `x` in a later cell `j` is the sum of gone(end of `i`), of what `i` alone leaves of its
//!    packs that expire up to `x`, of the packs of the cells between that expire up to `x`, of the
//!    packs of `j` itself that expire up to `x`, and of what is consumed or expires in the rest of
//!    `j` after `x`, alone. gone(end of `j`) is the longest of these paths, or gone(end of `i`) plus
//!    what is consumed or expires in `j` alone, for the cell `i` just before.
//! 3. Of all `x` in `j` only the best matters. It depends on the packs of `i` and of the cells
//!    between that expire *in* `j`, and on `j`. The packs that start and expire between are the
//!    same for all `x` and are counted separately. So a new pack or consumption changes the paths
//!    out of its own cell, the paths into it and the paths into the cell of the expiry. The paths
//!    into one cell differ only where packs arrive, so all of them together take as much work as
//!    that cell has events.
//! 4. For the paths out of one cell, only what that cell leaves of its packs changes. For every
//!    pack that arrives from there, the gain of the best `x` by the whole pack is known, so the
//!    paths out of a cell together take as much work as packs leave it.
//! 5. The longest path into each cell is found with about log n comparisons, because a path from an
//!    earlier cell that catches up with one from a later cell stays ahead.
//!
//! Replays and best expiries (3) are the same kind of work, and neither needs a heap or a tree: see
//! `cascade.rs`. Packs that expire first are drawn as if there were no others, so a cell is
//! replayed pack by pack in the order of expiry, and each pack fills the consumptions from its
//! start on. Packs that arrive raise the later expiries above the earlier ones; each first fills
//! the lead of the earlier ones.
//!
//! A balance reads what is held at the start of its cell from the same paths in the other
//! direction: for each expiry the best over all cells, instead of for each cell the best over all
//! expiries. Then it replays its cell. At the end of time everything has expired, so gone is then
//! the sum of all packs and all shortfalls.
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
//! These bounds hold for any amounts in any order. An operation that consumes or frees many small
//! packs with as many expiries costs no more. With k cells of m events, an edit takes O(m α(m)) in
//! its cells, O(k) for the paths that pass over it, and O(k log k) to follow the longest paths; the
//! length of cells balances these. The table leaves out α, the inverse Ackermann function, which is
//! below five for every n that fits in memory. The logarithm is that of the bisection in `ways.rs`.
//! Paths that catch up with each other could be followed in O(k α(k)), but by methods that are
//! slower at any such n. The bound is amortised because all cells are divided again in O(n α(n))
//! when one has grown too long, after at least as many operations as a cell was planned to have
//! events. `examples/timeline_growth.rs` measures several orders, among them one in which every
//! operation changes what expires at every expiry.
//!
//! # Why entries cannot go stale
//!
//! The usual design, a heap of packs by expiry with amounts that shrink in place, has two traps:
//! entries that are spent or expired but still in the heap, and priorities or amounts that change
//! under it when history is corrected. Here there is no heap, and no remaining amount outlives the
//! replay of a cell. Packs and consumptions are written once and never change, expiries are events
//! like all others, and balances are computed from sums that an edit updates as a whole. Expired
//! packs are not removed; a balance at `t` does not include them.

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

pub use draws::TimelineDraw;
pub use error::TimelineError;

/// The maximum sum of amounts. No sum or difference of two such sums can overflow.
const MAX_SUM: i128 = i128::MAX / 4;

/// A pack of credits in a [`Timeline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimelinePackId(usize);

/// A consumption in a [`Timeline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumptionId(usize);

/// The answer to [`Timeline::consume_credits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumed {
    /// The consumption, for [`Timeline::shortfall`] and [`Timeline::draws`].
    pub id: ConsumptionId,
    /// The part of the amount that was not available, given all operations so far. Operations that
    /// arrive later may change it.
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

    /// Records a pack that is spendable from `at` to `expires_at`, both inclusive. `None` means no
    /// expiry.
    ///
    /// Errors: `ZeroAmount`, `ExpiresBeforeStart`, `Overflow`.
    pub fn add_credits(
        &mut self,
        amount: u64,
        at: i64,
        expires_at: Option<i64>,
    ) -> Result<TimelinePackId, TimelineError> {
        // No instant lies after the last one, so a pack that is valid until then never expires.
        let expires_at = expires_at.unwrap_or(i64::MAX);
        if amount == 0 {
            return Err(TimelineError::ZeroAmount);
        }
        if expires_at < at {
            return Err(TimelineError::ExpiresBeforeStart { at, expires_at });
        }
        self.recorded = self.recorded_with(amount)?;
        self.added += i128::from(amount);
        let id = TimelinePackId(self.grid.packs.len());
        self.grid.add(amount, at, expires_at);
        Ok(id)
    }

    /// Records a consumption that takes what is available, up to `amount`.
    ///
    /// It may have a shortfall itself, and may cause shortfalls of later consumptions.
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
    /// A refusal costs up to two edits: its effect on other consumptions is known only after it is
    /// inserted.
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

    /// The spendable amount at `t`, after every operation at `t` or before.
    pub fn balance(&self, t: i64) -> u128 {
        magnitude(self.grid.balance(Moment::consumption(t, usize::MAX)))
    }

    /// The part of a consumption's amount that is not available, given everything recorded so far.
    pub fn shortfall(&self, id: ConsumptionId) -> Option<u64> {
        self.consumptions.get(id.0).map(|consumption| self.shortfall_of(consumption))
    }

    /// The sum of the shortfalls of all consumptions.
    pub fn total_shortfall(&self) -> u128 {
        // At the end of time everything added is gone. The excess is the amount consumed without
        // cover.
        magnitude(self.grid.gone() - self.added)
    }

    /// The packs that a consumption draws from, in order, given everything recorded so far.
    ///
    /// This replays all operations before it: O(n log n).
    pub fn draws(&self, id: ConsumptionId) -> Option<Vec<TimelineDraw>> {
        let consumption = self.consumptions.get(id.0)?;
        Some(draws::draws(&self.grid, consumption.moment))
    }

    /// The number of recorded operations.
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
        if recorded > MAX_SUM { Err(TimelineError::Overflow) } else { Ok(recorded) }
    }

    fn shortfall_of(&self, consumption: &Consumption) -> u64 {
        let available = self.grid.balance(consumption.moment);
        let missing = (i128::from(consumption.amount) - available).max(0);
        u64::try_from(missing).expect("at most the whole amount is missing, which is a u64")
    }
}

fn magnitude(amount: i128) -> u128 {
    u128::try_from(amount).expect("balances and shortages are never negative")
}
