//! The complete structure for one owner: packs on lines ordered by expiry.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Line, Part, Span};

/// Identifies a pack of one pool, in the order of addition.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackId(pub u64);

/// Credits of one owner, spent first-expiring-first-out.
///
/// Time moves forward: an instant earlier than the latest one seen counts as the latest. Packs with
/// the same expiry lie on one [`Line`] in the order in which they were added. For operations in any
/// order of time, see [`Timeline`](crate::Timeline).
///
/// | operation | cost |
/// |---|---|
/// | add | O(log expiries) |
///
/// consume
/// O((lines emptied + 1) · log expiries), for any number of packs
///
/// | balance | O(1), and O(log expiries) once for each line that has expired |
/// | give back | O(spans drawn · log) |
#[derive(Clone, Debug, Default)]
pub struct Pool {
    lines: BTreeMap<i64, Line<PackId>>,
    /// Expiries of the lines that have a free unit and are not expired.
    open: BTreeSet<i64>,
    balance: u128,
    packs: u64,
    latest: Option<i64>,
}

/// The reason why a pack was not added.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum AddError {
    /// The amount is zero.
    Zero,
    /// The expiry lies before the latest instant seen, so the pack could never be spent.
    AlreadyExpired,
    /// The packs of one expiry instant would have more than 2⁶⁴ − 1 units together.
    Overflow,
}

/// Fewer units were available than requested. Nothing was taken.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The units that could have been taken.
    pub available: u128,
}

/// The units taken by one consumption, in the order in which they were taken.
///
/// Not `Clone`, so that the same units cannot be given back twice.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Draw {
    slices: Vec<(i64, Span)>,
}

impl Draw {
    /// The number of units that the draw still keeps.
    pub fn amount(&self) -> u128 {
        self.slices.iter().map(|(_, span)| u128::from(span.len())).sum()
    }
}

/// The state of units that were given back.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct GivenBack {
    /// Units that can be spent again.
    pub returned: u128,
    /// Units whose pack had expired in the meantime. They expired at once.
    pub expired: u128,
}

impl Pool {
    /// A pool without credits.
    pub fn new() -> Pool {
        Pool::default()
    }

    /// Adds a pack that can be spent up to and including the instant `expires_at`.
    pub fn add_credits(&mut self, amount: u64, expires_at: i64) -> Result<PackId, AddError> {
        if amount == 0 {
            return Err(AddError::Zero);
        }
        if self.latest.is_some_and(|latest| expires_at < latest) {
            return Err(AddError::AlreadyExpired);
        }
        let pack = PackId(self.packs);
        match self.lines.entry(expires_at) {
            std::collections::btree_map::Entry::Vacant(slot) => {
                slot.insert(Line::new(amount, pack));
            }
            std::collections::btree_map::Entry::Occupied(mut line) => {
                line.get_mut().append(amount, pack).map_err(|_| AddError::Overflow)?;
            }
        }
        self.open.insert(expires_at);
        self.balance += u128::from(amount);
        self.packs += 1;
        Ok(pack)
    }

    /// The amount that can be spent at `now`.
    pub fn get_balance(&mut self, now: i64) -> u128 {
        self.expire(now);
        self.balance
    }

    /// Takes `amount` units at `now`, soonest expiry first; all or nothing.
    pub fn consume_credits(&mut self, amount: u64, now: i64) -> Result<Draw, Shortage> {
        self.expire(now);
        if u128::from(amount) > self.balance {
            return Err(Shortage { available: self.balance });
        }
        Ok(self.take(amount))
    }

    /// Takes `amount` units at `now`, or all that are available if there are fewer.
    pub fn consume_up_to(&mut self, amount: u64, now: i64) -> Draw {
        self.expire(now);
        self.take(amount)
    }

    /// Gives back `amount` units of a draw, or all that it keeps if there are fewer, last drawn
    /// first.
    pub fn give_back(&mut self, draw: &mut Draw, amount: u64, now: i64) -> GivenBack {
        self.expire(now);
        let mut left = amount;
        let mut back = GivenBack::default();
        while left > 0 {
            let Some((expires_at, span)) = draw.slices.pop() else { break };
            let given = span.len().min(left);
            left -= given;
            let returned = Span::new(span.end - given, span.end);
            if given < span.len() {
                draw.slices.push((expires_at, Span::new(span.start, returned.start)));
            }
            let line = self.lines.get_mut(&expires_at).expect("a line outlives its draws");
            if self.latest.is_some_and(|latest| expires_at < latest) {
                line.retag(returned, Part::Spent, Part::Expired);
                back.expired += u128::from(given);
            } else {
                line.retag(returned, Part::Spent, Part::Free);
                self.open.insert(expires_at);
                self.balance += u128::from(given);
                back.returned += u128::from(given);
            }
        }
        back
    }

    /// The packs that a draw took from, in order, with the amount of each.
    pub fn lots(&self, draw: &Draw) -> Vec<(PackId, u64)> {
        let mut lots: Vec<(PackId, u64)> = Vec::new();
        for (expires_at, span) in &draw.slices {
            for (owned, pack) in self.lines[expires_at].packs_in(*span) {
                match lots.last_mut() {
                    Some((last, amount)) if *last == pack => *amount += owned.len(),
                    _ => lots.push((pack, owned.len())),
                }
            }
        }
        lots
    }

    /// Expires units that can no longer be spent at `now`.
    fn expire(&mut self, now: i64) {
        let now = self.latest.map_or(now, |latest| latest.max(now));
        self.latest = Some(now);
        while let Some(expires_at) = self.open.first().copied().filter(|at| *at < now) {
            self.open.remove(&expires_at);
            let line = self.lines.get_mut(&expires_at).expect("an open expiry has a line");
            self.balance -= u128::from(line.free());
            let spans: Vec<Span> = line.free_spans(0).collect();
            for span in spans {
                line.retag(span, Part::Free, Part::Expired);
            }
        }
    }

    fn take(&mut self, amount: u64) -> Draw {
        let mut draw = Draw::default();
        let mut left = amount;
        while left > 0 {
            let Some(expires_at) = self.open.first().copied() else { break };
            let line = self.lines.get_mut(&expires_at).expect("an open expiry has a line");
            let spans: Vec<Span> = line.lowest_free(left).collect();
            for span in spans {
                line.retag(span, Part::Free, Part::Spent);
                left -= span.len();
                self.balance -= u128::from(span.len());
                draw.slices.push((expires_at, span));
            }
            if line.free() == 0 {
                self.open.remove(&expires_at);
            }
        }
        draw
    }
}
