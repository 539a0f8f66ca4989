//! The state of a ledger, and the one function that changes the state of credits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fefo::{Line, Part};

use super::accounts::account::Account;
use super::accounts::past_usage::PastUsage;
use super::accounts::region::CellBook;
use super::accounts::tally::Tallies;
use super::command::{Policy, Restriction};
use super::credits::bucket::Bucket;
use super::credits::grant::Grant;
use super::credits::spend_order::{FirstBucket, SpendRank};
use super::event::{Event, NamedMovement, Piece};
use super::holds::hold::Hold;
use super::id::{AccountNo, BucketNo, CellNo, GrantNo, HoldNo, JobNo};
use super::index::aside::LedgerAside;
use super::index::blocks::Blocks;
use super::index::hash_index::HashIndex;
use super::index::idempotency::Answers;
use super::index::names::{HashedIndex, NameIndex};
use super::index::recent::RecentlyForgotten;
use super::index::slab::Slab;
use super::index::timers::Timers;
use super::jobs::table::Jobs;
use super::refusal::Resource;
use super::undo::Undo;
use crate::time::Timestamp;

/// Grants in a block.
pub(super) const GRANTS: usize = 64;

pub(super) type Grants = Blocks<Grant, GRANTS>;

/// The accounts of one shard and everything they have.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    pub(super) now: Timestamp,
    pub(super) policy: Policy,
    pub(super) accounts: Vec<Account>,
    pub(super) account_names: HashIndex,
    /// How many accounts each tenant has. Derived from the accounts.
    pub(super) tenant_accounts: BTreeMap<AccountNo, u32>,
    pub(super) grants: Grants,
    pub(super) grant_names: NameIndex,
    pub(super) buckets: Vec<Bucket>,
    /// Buckets that take further grants, by account, rank and restriction.
    pub(super) bucket_keys: NameIndex,
    pub(super) holds: Slab<Hold>,
    pub(super) hold_names: HashedIndex,
    /// Counts for new budgets. Not part of the state.
    pub(super) tallies: Tallies,
    pub(super) movements: Slab<Movement>,
    pub(super) movement_names: NameIndex,
    pub(super) answers: Answers,
    pub(super) timers: Timers,
    /// Strict open holds, by the buckets they have drawn from.
    pub(super) strict: BTreeSet<(BucketNo, HoldNo)>,
    /// Strict holds that an expired bucket must still be cut off from. A large expiry takes several
    /// steps.
    pub(super) cuts: BTreeSet<(BucketNo, HoldNo)>,
    /// Cells that have not received all policies, with the first account that remains.
    pub(super) briefings: BTreeMap<CellNo, AccountNo>,
    /// Timers and messages that were set aside.
    pub(super) aside: BTreeSet<LedgerAside>,
    pub(super) aging: Aging,
    /// What forgotten holds have spent, for budgets that are set later.
    pub(super) past_usage: PastUsage,
    /// The account whose sums were looked at last. Not part of the state: when they are added up never matters.
    pub(super) past_usage_swept: Option<AccountNo>,
    /// The cells.
    pub(super) cells: Vec<CellBook>,
    pub(super) jobs: Jobs,
    /// Whether holds and movements are forgotten by their age. Not part of the state.
    pub(super) forgets_by_age: bool,
    /// The undo steps of the current group; `None` outside a group.
    pub(super) undo: Option<Vec<Undo>>,
}

/// A refund, transfer or collection that was made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Movement {
    /// Its kind.
    pub what: Resource,
    /// The tenant in which its name is unique.
    pub tenant: AccountNo,
    /// Its name, and the units that moved.
    pub movement: NamedMovement,
    /// Whether each piece had expired when the movement was made.
    pub expired: Vec<bool>,
    /// The hold or charge that a refund returned from.
    pub hold: Option<HoldNo>,
}

/// Entries with a retention besides answers, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Aging {
    /// Closed holds and charges, by the instant of closing or of the last change.
    pub holds: VecDeque<(Timestamp, HoldNo)>,
    /// Named movements, by the instant at which they were made.
    pub movements: VecDeque<(Timestamp, u32)>,
    /// Expired buckets, by the instant of expiry.
    pub buckets: VecDeque<(Timestamp, BucketNo)>,
    /// Ended jobs, by the instant at which they ended.
    pub jobs: VecDeque<(Timestamp, JobNo)>,
    /// Closed holds of jobs that stay for the whole retention, by the instant of the last change.
    pub old_holds: VecDeque<(Timestamp, HoldNo)>,
    /// The latest change of any hold or charge that was forgotten by its age alone, as earlier releases did.
    pub forgotten_until: Option<Timestamp>,
    /// Whether movements were forgotten by their age alone.
    pub forgotten_movements: bool,
    /// The last change of anything with an id that was forgotten by its age alone, jobs included.
    pub forgotten_through: Option<Timestamp>,
    /// The position of the archive that came with the last forgetting.
    pub archived_through: u64,
    /// The names and keys that were forgotten last.
    pub recent: RecentlyForgotten,
}

/// The shortened hash of a request that is stored with the resources that it created.
pub fn short_fingerprint(fingerprint: u128) -> u64 {
    // Combines both halves; the cast keeps the lower 64 bits.
    (fingerprint ^ (fingerprint >> 64)) as u64
}

impl Ledger {
    /// An empty ledger.
    pub fn new() -> Ledger {
        Ledger::default()
    }

    /// The retention times and other platform-wide terms.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Suspends expiry, for a clock that is implausibly far ahead of the last record: grants do not
    /// expire until an operator has checked the clock. Everything else continues.
    pub fn doubt_clock(&self, events: &mut Vec<Event>) {
        let begins = self.timers.activations.iter().any(|(_, grant)| {
            let terms = self.grant(*grant).pending.as_ref();
            terms.is_some_and(|terms| terms.rank.expires_at().is_some())
        });
        if !self.policy.expiry_waits && (begins || !self.timers.expiries.is_empty()) {
            events.push(Event::PolicySet(Policy { expiry_waits: true, ..self.policy }));
        }
    }

    /// Whether units of a rank have expired by an instant. While expiry is suspended, none have.
    pub fn expires_by(&self, rank: &SpendRank, at: Timestamp) -> bool {
        !self.policy.expiry_waits && !rank.is_unexpired_at(at)
    }

    /// A grant.
    pub fn grant(&self, grant: GrantNo) -> &Grant {
        &self.grants[grant.index()]
    }

    /// A bucket.
    pub fn bucket(&self, bucket: BucketNo) -> &Bucket {
        &self.buckets[bucket.index()]
    }

    /// A hold or charge that is not forgotten.
    pub fn hold(&self, hold: HoldNo) -> Option<&Hold> {
        self.holds.get(hold.0)
    }

    /// A refund, transfer or collection that is not forgotten.
    pub fn movement(&self, movement: u32) -> Option<&Movement> {
        self.movements.get(movement)
    }

    /// A hold that an event names. It exists by construction.
    pub(super) fn live_hold(&self, hold: HoldNo) -> &Hold {
        self.holds.get(hold.0).expect("events name only existing holds")
    }

    /// Changes the state of units. Every movement of credits goes through this function.
    pub(super) fn retag(&mut self, piece: Piece, from: Part, to: Part) {
        let bucket = &mut self.buckets[piece.bucket.index()];
        let was_open = bucket.is_open();
        bucket.line.retag(piece.span, from, to);
        let is_open = bucket.is_open();
        let account = &mut self.accounts[bucket.account.index()];
        let length = i128::from(piece.span.len());
        let plain = bucket.restriction.is_none();
        for (part, change) in [(from, -length), (to, length)] {
            match part {
                Part::Free => {
                    account.available += change;
                    account.plain += if plain { change } else { 0 };
                }
                Part::Held => account.held += change,
                Part::Spent | Part::Expired | Part::Revoked | Part::Moved => {}
            }
        }
        if was_open != is_open {
            let (key, restricted) = ((bucket.rank, piece.bucket), bucket.restriction.is_some());
            self.index_open(key, restricted, is_open);
        }
        self.remember(|| Undo::Retagged { piece, from, to });
    }

    /// Adds a bucket to the spend order of its account, or removes it.
    pub(super) fn index_open(&mut self, key: (SpendRank, BucketNo), restricted: bool, open: bool) {
        let account = self.buckets[key.1.index()].account;
        let account = &mut self.accounts[account.index()];
        if open {
            account.open.insert(key, ());
            account.restricted_open += u32::from(restricted);
        } else {
            account.open.remove(&key);
            account.restricted_open -= u32::from(restricted);
        }
        account.first_bucket = FirstBucket::of(&account.open, &self.buckets);
    }

    /// Lays a grant on the line of its bucket. Its units are free from now on.
    pub(super) fn lay_grant(&mut self, grant: GrantNo) {
        let terms = self.grants[grant.index()].pending.take().expect("a grant is laid once");
        let (account, amount) = {
            let grant = self.grant(grant);
            (grant.account, grant.amount.length())
        };
        let shared = terms.restriction.as_ref().is_none_or(|r| r.max_share_micro.is_none());
        let present = if shared {
            self.find_bucket(account, &terms.rank, terms.restriction.as_deref())
        } else {
            None
        };
        let laid = present.and_then(|bucket| {
            let span = self.buckets[bucket.index()].line.append(amount, grant).ok()?;
            Some((bucket, span.start))
        });
        let (bucket, start) = match laid {
            Some((bucket, start)) => {
                self.remember(|| Undo::GrantLaid { grant, bucket: None });
                (bucket, start)
            }
            // A new rank, a grant with a share limit, or a full line needs a new bucket.
            None => {
                let bucket = BucketNo(u32::try_from(self.buckets.len()).unwrap_or(u32::MAX));
                self.open_bucket(bucket, account, &terms.rank, terms.restriction.clone(), grant);
                self.remember(|| Undo::GrantLaid { grant, bucket: Some((bucket, present)) });
                if shared {
                    self.index_bucket(bucket, present);
                }
                (bucket, 0)
            }
        };
        let placed = &mut self.grants[grant.index()];
        placed.bucket = Some(bucket);
        placed.start = start;
        let was_open = self.bucket(bucket).line.free() > amount;
        let length = i128::from(amount);
        let account = &mut self.accounts[account.index()];
        account.available += length;
        account.plain += if terms.restriction.is_none() { length } else { 0 };
        if !was_open {
            self.index_open((terms.rank, bucket), terms.restriction.is_some(), true);
        }
    }

    fn open_bucket(
        &mut self,
        bucket: BucketNo,
        account: AccountNo,
        rank: &SpendRank,
        restriction: Option<Box<Restriction>>,
        grant: GrantNo,
    ) {
        let amount = self.grant(grant).amount.length();
        self.buckets.push(Bucket {
            account,
            rank: *rank,
            expired: false,
            has_revoked: false,
            restriction,
            line: Line::new(amount, grant),
        });
        if let Some(expires_at) = rank.expires_at() {
            self.timers.expiries.insert((expires_at, bucket));
        }
    }

    /// The bucket that takes further grants with these terms.
    pub(super) fn find_bucket(
        &self,
        account: AccountNo,
        rank: &SpendRank,
        restriction: Option<&Restriction>,
    ) -> Option<BucketNo> {
        let key = (account, *rank, restriction);
        self.bucket_keys
            .find(key, |number| bucket_key(&self.buckets[number as usize]))
            .map(BucketNo)
    }

    /// Makes `bucket` the one that takes further grants with its terms, instead of `before`.
    pub(super) fn index_bucket(&mut self, bucket: BucketNo, before: Option<BucketNo>) {
        let buckets = &self.buckets;
        let key = bucket_key(&buckets[bucket.index()]);
        if let Some(before) = before {
            self.bucket_keys.remove(key, before.0);
        }
        self.bucket_keys.insert(key, bucket.0, |number| bucket_key(&buckets[number as usize]));
    }

    /// Makes the last of the buckets with the same terms the one that takes further grants.
    pub(super) fn index_last_bucket(&mut self, bucket: BucketNo) {
        let buckets = &self.buckets;
        let key = bucket_key(&buckets[bucket.index()]);
        self.bucket_keys.replace(key, bucket.0, |number| bucket_key(&buckets[number as usize]));
    }

    /// Undoes [`Ledger::index_bucket`].
    pub(super) fn unindex_bucket(&mut self, bucket: BucketNo, before: Option<BucketNo>) {
        let buckets = &self.buckets;
        let key = bucket_key(&buckets[bucket.index()]);
        self.bucket_keys.remove(key, bucket.0);
        if let Some(before) = before {
            self.bucket_keys.insert(key, before.0, |number| bucket_key(&buckets[number as usize]));
        }
    }
}

fn bucket_key(bucket: &Bucket) -> (AccountNo, SpendRank, Option<&Restriction>) {
    (bucket.account, bucket.rank, bucket.restriction.as_deref())
}
