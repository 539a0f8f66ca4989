//! The spend order. It is defined in this file alone.
//!
//! Buckets are spent by [`SpendRank`], then nearest account first. Buckets that are still equal are
//! spent grant by grant, in the order in which the grants became spendable. The units of one bucket
//! are spent along its line, where its grants lie in that order.
//!
//! Every draw walks [`Ledger::spend_order`] over one of three supplies: free units ([`Free`]),
//! units that will be free once the decision so far is applied (`overlay`), or units that were
//! valid at a past instant (`late`).

pub mod draw;
pub mod late;
pub(in crate::ledger) mod overlay;

use bursar_seeded::{Bug, seeded};
use fefo::{SmallMap, Span};
use smallvec::SmallVec;

use self::draw::DrawRequest;
use super::bucket::Bucket;
use crate::ledger::accounts::account::{Account, Path};
use crate::ledger::command::{GrantKind, Restriction};
use crate::ledger::id::{AccountNo, BucketNo, GrantNo};
use crate::ledger::state::Ledger;
use crate::time::Timestamp;

/// The sort key of buckets; the distance of the account comes second.
///
/// Compared field by field, in this order: priority, expiry (never is last), narrowness (more
/// restricted dimensions first, then fewer listed values), kind.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpendRank {
    /// Lower is spent first.
    pub priority: u8,
    /// The last instant at which it can be spent, in milliseconds; `i64::MAX` if it never expires.
    expires: i64,
    /// Three minus the number of restricted dimensions.
    open_dimensions: u8,
    /// How many values the restriction lists.
    values: u32,
    /// The kind of the grants.
    pub kind: GrantKind,
}

impl SpendRank {
    /// The rank of a grant.
    pub fn new(
        priority: u8,
        expires_at: Option<Timestamp>,
        restriction: Option<&Restriction>,
        kind: GrantKind,
    ) -> SpendRank {
        let lists = restriction.map_or([None, None, None], Restriction::lengths);
        let open = lists.iter().filter(|list| list.is_none()).count();
        let values: usize = lists.iter().flatten().sum();
        SpendRank {
            priority,
            expires: expires_at.map_or(i64::MAX, Timestamp::millis),
            open_dimensions: u8::try_from(open).unwrap_or(3),
            values: u32::try_from(values).unwrap_or(u32::MAX),
            kind,
        }
    }

    /// The last instant at which it can be spent; `None` if it never expires.
    pub fn expires_at(&self) -> Option<Timestamp> {
        (self.expires != i64::MAX).then(|| Timestamp::from_millis(self.expires))
    }

    /// Whether it has not expired at `at`. The expiry instant itself is included.
    pub fn is_unexpired_at(&self, at: Timestamp) -> bool {
        if seeded(Bug::ExpiresEarly) {
            return at.millis() < self.expires;
        }
        at.millis() <= self.expires
    }
}

/// Buckets in spend order.
pub type BucketOrder = SmallMap<(SpendRank, BucketNo), ()>;

/// The bucket that an account spends first, if it is unrestricted and no other bucket has its rank.
/// Stored in the account, so that a draw need not read the order, which lies elsewhere in memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct FirstBucket(u32);

impl FirstBucket {
    /// There is none, or the order must be read.
    pub const UNKNOWN: FirstBucket = FirstBucket(u32::MAX);

    /// The first of these buckets.
    pub(in crate::ledger) fn of(open: &BucketOrder, buckets: &[Bucket]) -> FirstBucket {
        let mut entries = open.iter().map(|((rank, bucket), ())| (*rank, *bucket));
        let Some((rank, first)) = entries.next() else { return FirstBucket::UNKNOWN };
        let rivalled = entries.next().is_some_and(|(next, _)| next == rank);
        if rivalled || buckets[first.index()].restriction.is_some() {
            return FirstBucket::UNKNOWN;
        }
        FirstBucket(first.0)
    }

    /// The bucket, if it is known.
    pub fn bucket(self) -> Option<BucketNo> {
        (self != FirstBucket::UNKNOWN).then_some(BucketNo(self.0))
    }
}

/// Credits that a draw can take.
pub(in crate::ledger) trait SpendSupply {
    /// The buckets of an account that have such credits, by rank and number.
    fn buckets<'a>(
        &'a self,
        ledger: &'a Ledger,
        account: AccountNo,
    ) -> impl Iterator<Item = (SpendRank, BucketNo)> + 'a;

    /// The units of a bucket that can be taken, lowest first.
    fn units<'a>(&'a self, ledger: &'a Ledger, bucket: BucketNo)
    -> impl Iterator<Item = Span> + 'a;
}

/// Units that are free now.
#[derive(Copy, Clone, Debug)]
pub(in crate::ledger) struct Free;

impl SpendSupply for Free {
    fn buckets<'a>(
        &'a self,
        ledger: &'a Ledger,
        account: AccountNo,
    ) -> impl Iterator<Item = (SpendRank, BucketNo)> + 'a {
        ledger.account(account).open.iter().map(|(key, ())| *key)
    }

    fn units<'a>(
        &'a self,
        ledger: &'a Ledger,
        bucket: BucketNo,
    ) -> impl Iterator<Item = Span> + 'a {
        ledger.bucket(bucket).line.free_spans(0)
    }
}

/// A bucket in spend order.
#[derive(Copy, Clone, Debug)]
pub(super) struct Candidate {
    /// Its rank, and the distance of its account from the one that spends.
    order: (SpendRank, u8),
    /// The bucket.
    pub(in crate::ledger) bucket: BucketNo,
}

impl Candidate {
    /// Whether both have the same order, so that they are spent grant by grant.
    pub(super) fn is_equal_to(&self, other: &Candidate) -> bool {
        self.order == other.order
    }
}

impl Ledger {
    /// The buckets that a draw may take from, in spend order.
    pub(super) fn spend_order<'a, S: SpendSupply>(
        &'a self,
        supply: &'a S,
        request: DrawRequest<'a>,
    ) -> impl Iterator<Item = Candidate> + 'a {
        let mut levels: SmallVec<[_; 4]> = SmallVec::new();
        for (level, account) in (0u8..).zip(request.path) {
            let mut buckets = supply.buckets(self, *account);
            if let Some((rank, bucket)) = buckets.next() {
                levels.push((Candidate { order: (rank, level), bucket }, buckets));
            }
        }
        let next = move || {
            let heads = levels.iter().map(|(head, _)| *head).enumerate();
            let level =
                |head: &Candidate| if seeded(Bug::SpendsNearestFirst) { head.order.1 } else { 0 };
            let (at, first) = heads.min_by_key(|(_, head)| (level(head), head.order))?;
            match levels[at].1.next() {
                Some((rank, bucket)) => {
                    levels[at].0 = Candidate { order: (rank, first.order.1), bucket };
                }
                None => drop(levels.remove(at)),
            }
            Some(first)
        };
        std::iter::from_fn(next).filter(move |candidate| {
            request.unrestricted || self.bucket(candidate.bucket).admits(request.context)
        })
    }

    /// The sort key of grants in buckets of equal order.
    pub(super) fn grant_order(&self, grant: GrantNo) -> (Timestamp, GrantNo) {
        (self.grant(grant).spendable_from(), grant)
    }

    /// The first bucket of [`Ledger::spend_order`] over free units, if it is unrestricted and has
    /// no equals.
    pub(super) fn first_bucket(&self, path: &Path) -> Option<BucketNo> {
        let mut accounts =
            path.iter().map(|account| self.account(*account)).filter(|own| !own.open.is_empty());
        let mut first = accounts.next()?;
        for other in accounts {
            let rank = |account: &Account| account.open.first().map(|((rank, _), ())| *rank);
            if rank(other) < rank(first) && !seeded(Bug::SpendsNearestFirst) {
                first = other;
            }
        }
        first.first_bucket.bucket()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names<T: From<&'static str>>(list: &[&'static str]) -> Option<Vec<T>> {
        Some(list.iter().copied().map(T::from).collect())
    }

    #[test]
    fn rank_orders_by_priority_expiry_narrowness_and_kind() {
        let at = |ms| Some(Timestamp::from_millis(ms));
        let one = Restriction { gpu_types: names(&["H100"]), ..Restriction::default() };
        let two = Restriction { gpu_types: names(&["A100", "H100"]), ..Restriction::default() };
        let dims = Restriction { regions: names(&["eu", "us"]), ..two.clone() };
        let ranks = [
            SpendRank::new(1, None, None, GrantKind::Purchase),
            SpendRank::new(2, at(5), None, GrantKind::Purchase),
            SpendRank::new(2, at(6), Some(&dims), GrantKind::Purchase),
            SpendRank::new(2, at(6), Some(&one), GrantKind::Purchase),
            SpendRank::new(2, at(6), Some(&two), GrantKind::Purchase),
            SpendRank::new(2, at(6), None, GrantKind::Promotion),
            SpendRank::new(2, at(6), None, GrantKind::Compensation),
            SpendRank::new(2, at(6), None, GrantKind::Grant),
            SpendRank::new(2, at(6), None, GrantKind::Purchase),
            SpendRank::new(2, None, Some(&dims), GrantKind::Promotion),
        ];
        assert!(ranks.is_sorted());
    }

    #[test]
    fn the_expiry_instant_is_the_last_valid_one() {
        let rank = SpendRank::new(0, Some(Timestamp::from_millis(100)), None, GrantKind::Grant);
        assert!(rank.is_unexpired_at(Timestamp::from_millis(99)));
        assert!(rank.is_unexpired_at(Timestamp::from_millis(100)));
        assert!(!rank.is_unexpired_at(Timestamp::from_millis(101)));
    }
}
