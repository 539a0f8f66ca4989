//! Draws: the request, the limits, and the largest possible amount.
//!
//! A draw takes from the buckets of an account and its ancestors, in spend order.

use fefo::Span;
use smallvec::SmallVec;

use super::{Candidate, Free, SpendSupply};
use crate::ledger::accounts::account::Path;
use crate::ledger::command::Context;
use crate::ledger::credits::bucket::share_of;
use crate::ledger::credits::grant::push_joined;
use crate::ledger::event::{Piece, Pieces};
use crate::ledger::holds::hold::Hold;
use crate::ledger::id::BucketNo;
use crate::ledger::state::Ledger;

/// A request to draw credits.
#[derive(Copy, Clone, Debug)]
pub(in crate::ledger) struct DrawRequest<'a> {
    /// The account that spends and its ancestors, nearest first.
    pub(in crate::ledger) path: &'a Path,
    /// What it is for.
    pub(in crate::ledger) context: &'a Context,
    /// The hold that it adds to.
    pub(in crate::ledger) hold: Option<&'a Hold>,
    /// Whether restrictions are ignored, because the credits keep them (a transfer).
    pub(in crate::ledger) unrestricted: bool,
}

impl<'a> DrawRequest<'a> {
    /// A draw for a new hold or charge.
    pub(in crate::ledger) fn new(path: &'a Path, context: &'a Context) -> DrawRequest<'a> {
        DrawRequest { path, context, hold: None, unrestricted: false }
    }

    /// How much the hold has drawn before.
    pub(in crate::ledger) fn drawn(&self) -> u128 {
        self.hold.map_or(0, |hold| u128::from(hold.amount))
    }

    /// How much the hold has drawn before from a bucket.
    pub(super) fn drawn_from(&self, bucket: BucketNo) -> u128 {
        let slices = self.hold.iter().flat_map(|hold| hold.slices.iter());
        slices.filter(|slice| slice.bucket == bucket).map(|slice| u128::from(slice.kept())).sum()
    }
}

/// The credits that can be drawn.
#[derive(Debug, Default)]
pub(super) struct Stock {
    /// Units that a draw may take without limit.
    plain: u128,
    /// Buckets with a limit on their share of a hold.
    shared: Vec<Shared>,
}

/// A bucket with a share limit.
#[derive(Debug)]
struct Shared {
    share_micro: u32,
    free: u128,
    drawn: u128,
}

impl Stock {
    /// Adds the units of a bucket. The hold has drawn `drawn` from it before.
    pub(in crate::ledger) fn add(&mut self, max_share: Option<u32>, free: u128, drawn: u128) {
        match max_share {
            None => self.plain += free,
            Some(share_micro) => self.shared.push(Shared { share_micro, free, drawn }),
        }
    }

    /// The largest amount up to `wanted` that a hold can draw that has drawn `drawn` before.
    pub(in crate::ledger) fn largest(&self, wanted: u128, drawn: u128) -> u128 {
        let all = self.plain + self.shared.iter().map(|bucket| bucket.free).sum::<u128>();
        largest_feasible(wanted.min(all), |amount| self.capacity(drawn + amount))
    }

    /// The amount that plain credits and limited shares can contribute to a hold of `total`.
    fn capacity(&self, total: u128) -> u128 {
        let limited = self.shared.iter().map(|bucket| {
            let limit = share_of(bucket.share_micro, total).saturating_sub(bucket.drawn);
            limit.min(bucket.free)
        });
        self.plain + limited.sum::<u128>()
    }
}

impl Ledger {
    /// Draws `amount` of the free units, all or nothing.
    pub(in crate::ledger) fn draw(&self, request: DrawRequest<'_>, amount: u64) -> Option<Pieces> {
        if let Some(pieces) = self.draw_from_first(request, amount) {
            return Some(pieces);
        }
        // If the total is too small, no bucket has to be read.
        let free: i128 = request.path.iter().map(|account| self.account(*account).available).sum();
        if free < i128::from(amount) {
            return None;
        }
        self.draw_from(&Free, request, amount)
    }

    /// The common case: the first bucket in spend order is unrestricted, has no equals and has
    /// enough, usually in one piece.
    fn draw_from_first(&self, request: DrawRequest<'_>, amount: u64) -> Option<Pieces> {
        let bucket = self.first_bucket(request.path)?;
        let line = &self.bucket(bucket).line;
        let mut pieces = Pieces::new();
        if let Some(free) = line.first_free().filter(|free| free.len() >= amount) {
            pieces.push(Piece { bucket, span: Span::new(free.start, free.start + amount) });
            return Some(pieces);
        }
        if line.free() < amount {
            return None;
        }
        pieces.extend(line.lowest_free(amount).map(|span| Piece { bucket, span }));
        Some(pieces)
    }

    /// Draws `amount` of a supply, all or nothing.
    pub(super) fn draw_from<S: SpendSupply>(
        &self,
        supply: &S,
        request: DrawRequest<'_>,
        amount: u64,
    ) -> Option<Pieces> {
        let mut pieces = Pieces::new();
        let mut left = amount;
        let total = request.drawn() + u128::from(amount);
        let mut order = self.spend_order(supply, request).peekable();
        let mut equals: SmallVec<[Candidate; 4]> = SmallVec::new();
        while left > 0 {
            let first = order.next()?;
            if order.peek().is_none_or(|next| !next.is_equal_to(&first)) {
                let limit = self.limit(request, first.bucket, total);
                for piece in self.lowest_units(supply, first.bucket, limit.min(left.into())) {
                    left -= piece.span.len();
                    push_joined(&mut pieces, piece);
                }
                continue;
            }
            equals.clear();
            equals.push(first);
            while let Some(next) = order.next_if(|next| next.is_equal_to(&first)) {
                equals.push(next);
            }
            left = self.draw_from_equals(supply, request, &equals, (total, left), &mut pieces);
        }
        Some(pieces)
    }

    /// Up to `limit` units of a bucket, lowest first.
    fn lowest_units<'a, S: SpendSupply>(
        &'a self,
        supply: &'a S,
        bucket: BucketNo,
        limit: u128,
    ) -> impl Iterator<Item = Piece> + 'a {
        let mut left = u64::try_from(limit).unwrap_or(u64::MAX);
        supply.units(self, bucket).map_while(move |span| {
            let taken = span.len().min(left);
            left -= taken;
            let span = Span::new(span.start, span.start + taken);
            (taken > 0).then_some(Piece { bucket, span })
        })
    }

    /// The most that a draw may take from a bucket for a hold of `total` after the draw.
    fn limit(&self, request: DrawRequest<'_>, bucket: BucketNo, total: u128) -> u128 {
        match self.bucket(bucket).max_share().filter(|_| !request.unrestricted) {
            None => u128::MAX,
            Some(share) => share_of(share, total).saturating_sub(request.drawn_from(bucket)),
        }
    }

    /// Draws from buckets of equal order, grant by grant. Returns the amount still missing.
    fn draw_from_equals<S: SpendSupply>(
        &self,
        supply: &S,
        request: DrawRequest<'_>,
        equals: &[Candidate],
        (total, wanted): (u128, u64),
        pieces: &mut Pieces,
    ) -> u64 {
        let mut parts = Vec::new();
        for Candidate { bucket, .. } in equals {
            let limit = self.limit(request, *bucket, total);
            for Piece { bucket, span } in self.lowest_units(supply, *bucket, limit) {
                for (span, grant) in self.bucket(bucket).line.packs_in(span) {
                    parts.push((self.grant_order(grant), Piece { bucket, span }));
                }
            }
        }
        parts.sort_unstable();
        let mut left = wanted;
        for (_, Piece { bucket, span }) in parts {
            let taken = span.len().min(left);
            if taken == 0 {
                break;
            }
            left -= taken;
            let span = Span::new(span.start, span.start + taken);
            push_joined(pieces, Piece { bucket, span });
        }
        left
    }

    /// The largest amount up to `wanted` that [`Ledger::draw`] would find without the free units
    /// `without`.
    pub(in crate::ledger) fn largest_draw(
        &self,
        request: DrawRequest<'_>,
        without: &[Piece],
        wanted: u128,
    ) -> u128 {
        let missing = |of: &dyn Fn(BucketNo) -> bool| -> u128 {
            let gone = without.iter().filter(|piece| of(piece.bucket));
            gone.map(|piece| u128::from(piece.span.len())).sum()
        };
        let free: i128 = request.path.iter().map(|account| self.account(*account).plain).sum();
        // Free units are never negative (L2), and the missing units are among them.
        let plain =
            free.unsigned_abs() - missing(&|bucket| self.bucket(bucket).restriction.is_none());
        let mut stock = Stock { plain, ..Stock::default() };
        for account in request.path {
            if self.account(*account).restricted_open == 0 {
                continue;
            }
            for ((_, number), ()) in self.account(*account).open.iter() {
                let bucket = self.bucket(*number);
                if bucket.restriction.is_none() || !bucket.admits(request.context) {
                    continue;
                }
                let free = u128::from(bucket.line.free()) - missing(&|other| other == *number);
                stock.add(bucket.max_share(), free, request.drawn_from(*number));
            }
        }
        stock.largest(wanted, request.drawn())
    }
}

/// The most iterations of [`largest_feasible`] before it bisects.
const DESCENTS: u32 = 1000;

/// The largest amount up to `bound` that its own capacity covers.
///
/// Limited shares make the capacity grow with the amount, so a larger draw can succeed where a
/// smaller one fails. The iteration starts at `bound` and replaces the amount by its capacity; it
/// cannot miss the largest feasible amount. Shares that add up to almost one make it slow.
/// Bisection then finds a feasible amount that is close.
fn largest_feasible(bound: u128, capacity: impl Fn(u128) -> u128) -> u128 {
    let mut amount = bound;
    for _ in 0..DESCENTS {
        let covered = capacity(amount);
        if covered >= amount {
            return amount;
        }
        amount = covered;
    }
    let (mut feasible, mut bound) = (0, amount);
    while feasible < bound {
        let middle = bound - (bound - feasible) / 2;
        if capacity(middle) >= middle {
            feasible = middle;
        } else {
            bound = middle - 1;
        }
    }
    feasible
}
