//! The order of spending, and draws in that order.
//!
//! A draw walks the open buckets of an account and of all accounts above it, merged by rank, then
//! nearest account first. Buckets that are still equal take turns grant by grant, in the order in
//! which the grants became spendable.

use fefo::Span;
use smallvec::SmallVec;

use super::account::{Account, Path};
use super::bucket::{Rank, share_of};
use super::command::Context;
use super::event::{Piece, Pieces};
use super::grant::push_joined;
use super::hold::Hold;
use super::id::BucketNo;
use super::state::Ledger;

/// What is to be drawn.
#[derive(Copy, Clone, Debug)]
pub(super) struct Request<'a> {
    /// The account that spends and those above it, nearest first.
    pub(super) path: &'a Path,
    /// What it is for.
    pub(super) context: &'a Context,
    /// The hold that it adds to.
    pub(super) hold: Option<&'a Hold>,
    /// Whether restrictions do not matter, because the credits keep them.
    pub(super) unrestricted: bool,
}

impl<'a> Request<'a> {
    /// A draw for something new.
    pub(super) fn new(path: &'a Path, context: &'a Context) -> Request<'a> {
        Request { path, context, hold: None, unrestricted: false }
    }

    /// How much the hold has drawn before.
    fn drawn(&self) -> u128 {
        self.hold.map_or(0, |hold| u128::from(hold.amount))
    }

    /// How much the hold has drawn before from a bucket.
    fn drawn_from(&self, bucket: BucketNo) -> u128 {
        let slices = self.hold.iter().flat_map(|hold| hold.slices.iter());
        slices.filter(|slice| slice.bucket == bucket).map(|slice| u128::from(slice.kept())).sum()
    }
}

/// A bucket in the merged order.
#[derive(Copy, Clone, Debug)]
struct Candidate {
    rank: Rank,
    /// How far its account is from the one that spends.
    level: u8,
    bucket: BucketNo,
}

impl Candidate {
    fn is_equal_to(&self, other: &Candidate) -> bool {
        (self.rank, self.level) == (other.rank, other.level)
    }
}

/// A bucket with a share limit, as far as a draw is concerned.
struct Shared {
    share_micro: u32,
    free: u128,
    drawn: u128,
}

impl Ledger {
    /// Draws `amount`, all or nothing.
    pub(super) fn draw(&self, request: Request<'_>, amount: u64) -> Option<Pieces> {
        let mut pieces = Pieces::new();
        if self.draw_from_first(request, amount, &mut pieces) {
            return Some(pieces);
        }
        let mut left = amount;
        let total = request.drawn() + u128::from(amount);
        let mut candidates = self.candidates(request).peekable();
        let mut equals: SmallVec<[Candidate; 4]> = SmallVec::new();
        while left > 0 {
            let first = candidates.next()?;
            if candidates.peek().is_none_or(|next| !next.is_equal_to(&first)) {
                let limit = self.limit(request, first.bucket, total).min(u128::from(left));
                // The limit is at most `left`, which fits.
                let limit = u64::try_from(limit).unwrap_or(left);
                for span in self.bucket(first.bucket).line.lowest_free(limit) {
                    left -= span.len();
                    pieces.push(Piece { bucket: first.bucket, span });
                }
                continue;
            }
            equals.clear();
            equals.push(first);
            while let Some(next) = candidates.next_if(|next| next.is_equal_to(&first)) {
                equals.push(next);
            }
            left = self.draw_from_equals(request, &equals, total, left, &mut pieces);
        }
        Some(pieces)
    }

    /// The common case: the first bucket of all is plain, unrivalled, and has enough, mostly in one
    /// piece. Says whether it is so.
    fn draw_from_first(&self, request: Request<'_>, amount: u64, pieces: &mut Pieces) -> bool {
        let first = self.first_account(request.path);
        let Some(bucket) = first.and_then(|account| account.front.bucket()) else { return false };
        let line = &self.bucket(bucket).line;
        if let Some(free) = line.first_free().filter(|free| free.len() >= amount) {
            pieces.push(Piece { bucket, span: Span::new(free.start, free.start + amount) });
            return true;
        }
        let enough = line.free() >= amount;
        if enough {
            pieces.extend(line.lowest_free(amount).map(|span| Piece { bucket, span }));
        }
        enough
    }

    /// The account whose first bucket is spent first of all on the path.
    fn first_account(&self, path: &Path) -> Option<&Account> {
        let mut accounts =
            path.iter().map(|account| self.account(*account)).filter(|own| !own.open.is_empty());
        let mut first = accounts.next()?;
        for other in accounts {
            let rank = |account: &Account| account.open.first().map(|((rank, _), ())| *rank);
            if rank(other) < rank(first) {
                first = other;
            }
        }
        Some(first)
    }

    /// The most that one draw of a hold with `total` in all may take from a bucket.
    pub(super) fn limit(&self, request: Request<'_>, bucket: BucketNo, total: u128) -> u128 {
        match self.bucket(bucket).max_share().filter(|_| !request.unrestricted) {
            None => u128::MAX,
            Some(share) => share_of(share, total).saturating_sub(request.drawn_from(bucket)),
        }
    }

    /// Draws from buckets of equal order, grant by grant. Returns what is still wanted.
    fn draw_from_equals(
        &self,
        request: Request<'_>,
        equals: &[Candidate],
        total: u128,
        wanted: u64,
        pieces: &mut Pieces,
    ) -> u64 {
        let mut parts = Vec::new();
        for candidate in equals {
            let line = &self.bucket(candidate.bucket).line;
            let mut limit = self.limit(request, candidate.bucket, total);
            for free in line.free_spans(0) {
                for (span, grant) in line.packs_in(free) {
                    let taken = u64::try_from(limit).unwrap_or(u64::MAX).min(span.len());
                    limit -= u128::from(taken);
                    if taken > 0 {
                        let span = Span::new(span.start, span.start + taken);
                        let order = (self.grant(grant).spendable_from(), grant);
                        parts.push((order, Piece { bucket: candidate.bucket, span }));
                    }
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

    /// The buckets that a draw may take from, in order.
    fn candidates<'a>(&'a self, request: Request<'a>) -> impl Iterator<Item = Candidate> + 'a {
        let mut levels: SmallVec<[_; 4]> = SmallVec::new();
        for (level, account) in (0u8..).zip(request.path) {
            let mut entries = self.account(*account).open.iter();
            if let Some((head, ())) = entries.next() {
                levels.push((*head, level, entries));
            }
        }
        let next = move || {
            let (at, nearest) = levels
                .iter()
                .enumerate()
                .map(|(at, ((rank, bucket), level, _))| {
                    (at, Candidate { rank: *rank, level: *level, bucket: *bucket })
                })
                .min_by_key(|(_, candidate)| (candidate.rank, candidate.level))?;
            match levels[at].2.next() {
                Some((head, ())) => levels[at].0 = *head,
                None => drop(levels.remove(at)),
            }
            Some(nearest)
        };
        std::iter::from_fn(next).filter(move |candidate| {
            request.unrestricted || self.bucket(candidate.bucket).admits(request.context)
        })
    }

    /// The largest amount up to `wanted` that [`Ledger::draw`] would find if the free units
    /// `without` were gone.
    pub(super) fn largest_draw(
        &self,
        request: Request<'_>,
        without: &[Piece],
        wanted: u128,
    ) -> u128 {
        let missing = |of: &dyn Fn(BucketNo) -> bool| -> u128 {
            let gone = without.iter().filter(|piece| of(piece.bucket));
            gone.map(|piece| u128::from(piece.span.len())).sum()
        };
        let free: i128 = request.path.iter().map(|account| self.account(*account).plain).sum();
        // Free units are never negative (L2), and what is missing was among them.
        let mut plain =
            free.unsigned_abs() - missing(&|bucket| self.bucket(bucket).restriction.is_none());
        let mut shared = Vec::new();
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
                match bucket.max_share() {
                    None => plain += free,
                    Some(share_micro) => {
                        let drawn = request.drawn_from(*number);
                        shared.push(Shared { share_micro, free, drawn });
                    }
                }
            }
        }
        let all = plain + shared.iter().map(|bucket| bucket.free).sum::<u128>();
        let drawn = request.drawn();
        largest_feasible(wanted.min(all), |amount| capacity(plain, &shared, drawn + amount))
    }
}

/// How often [`largest_feasible`] tries to come down to the answer.
const DESCENTS: u32 = 1000;

/// The largest amount up to `bound` that is covered by the capacity it opens.
///
/// Limited shares make capacity grow with the amount, so that a larger draw can succeed where a
/// smaller one fails. Coming down from above, from each amount to the capacity it opens, cannot
/// miss the largest one. Shares that add up to almost one make that slow; then bisection finds a
/// feasible amount that is close.
pub(super) fn largest_feasible(bound: u128, capacity: impl Fn(u128) -> u128) -> u128 {
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

/// What plain credits and limited shares of a hold of `total` can give.
fn capacity(plain: u128, shared: &[Shared], total: u128) -> u128 {
    let limited = shared.iter().map(|bucket| {
        let limit = share_of(bucket.share_micro, total).saturating_sub(bucket.drawn);
        limit.min(bucket.free)
    });
    plain + limited.sum::<u128>()
}
