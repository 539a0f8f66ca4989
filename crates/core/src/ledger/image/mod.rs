//! A whole ledger as plain data, for snapshots. It contains everything that the digest covers and
//! nothing derived. [`Ledger::from_image`] rebuilds names, open buckets, timers and sums.

mod restore;

use std::fmt;
use std::sync::Arc;

use fefo::{Part, Span};

use super::accounts::account::Account;
use super::accounts::budget::Budget;
use super::accounts::past_usage::PastSpending;
use super::accounts::quota::Quota;
use super::accounts::region::CellBook;
use super::command::{AccountKind, AccountSettings, GrantKind, Policy, Restriction};
use super::credits::bucket::Bucket;
use super::credits::grant::{Grant, GrantDetails};
use super::credits::spend_order::SpendRank;
use super::holds::hold::Hold;
use super::id::{AccountNo, BucketNo, CellNo, HoldNo, JobNo};
use super::index::aside::LedgerAside;
use super::index::idempotency::{KeptAnswer, KeptEntry};
use super::index::recent::RecentlyForgotten;
use super::jobs::Job;
use super::jobs::table::Review;
use super::reply::LedgerAnswer;
use super::state::{Ledger, Movement};
use crate::credits::Credits;
use crate::name::{AccountPath, GrantId, Region};
use crate::time::Timestamp;

/// A whole ledger as plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Image {
    /// The latest instant at which an event was applied.
    pub now: Timestamp,
    /// The retention times and other platform-wide terms.
    pub policy: Policy,
    /// Accounts, in the order of their numbers.
    pub accounts: Vec<AccountImage>,
    /// Grants, in the order of their numbers.
    pub grants: Vec<GrantImage>,
    /// Buckets, in the order of their numbers.
    pub buckets: Vec<BucketImage>,
    /// Holds and charges that are not forgotten, by number.
    pub holds: Vec<(u32, Hold)>,
    /// Numbers of forgotten holds, the next to be used last.
    pub free_holds: Vec<u32>,
    /// Refunds, transfers and collections that are not forgotten, by number.
    pub movements: Vec<(u32, Movement)>,
    /// Numbers of forgotten movements, the next to be used last.
    pub free_movements: Vec<u32>,
    /// Answers kept for their idempotency keys, oldest first.
    pub answers: Vec<AnswerImage>,
    /// Closed holds in the order in which their retention is checked.
    pub aging_holds: Vec<(Timestamp, HoldNo)>,
    /// Named movements in the order in which they will be forgotten.
    pub aging_movements: Vec<(Timestamp, u32)>,
    /// Expired buckets that late usage can still reach, oldest first.
    pub aging_buckets: Vec<(Timestamp, BucketNo)>,
    /// The cells.
    pub cells: Vec<CellBook>,
    /// The number that the next job gets.
    pub next_job: u64,
    /// Jobs that are not forgotten, by number.
    pub jobs: Vec<(JobNo, Job)>,
    /// The next reviews of blocked jobs, by tenant.
    pub reviews: Vec<(AccountNo, Review)>,
    /// Ended jobs in the order in which they will be forgotten.
    pub aging_jobs: Vec<(Timestamp, JobNo)>,
    /// The latest change of any hold or charge that was forgotten.
    pub forgotten_until: Option<Timestamp>,
    /// The last movement of anything with an id that was forgotten. Earlier releases did not write it.
    pub forgotten_through: Option<Timestamp>,
    /// Whether movements were forgotten by their age alone.
    pub forgotten_movements: bool,
    /// Closed holds of jobs that stay for the whole retention.
    pub old_holds: Vec<(Timestamp, HoldNo)>,
    /// The position of the archive that came with the last forgetting.
    pub archived_through: u64,
    /// The names and keys that were forgotten last.
    pub recent: RecentlyForgotten,
    /// What forgotten holds have spent, by account and quarter of an hour.
    pub past_usage: Vec<((AccountNo, i64), PastSpending)>,
    /// What failed again and again and is skipped.
    pub aside: Vec<LedgerAside>,
    /// Cells that have not received all policies, with the first account that remains.
    pub briefings: Vec<(CellNo, AccountNo)>,
}

/// One account.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AccountImage {
    /// Its full path.
    pub path: AccountPath,
    /// What it represents.
    pub kind: AccountKind,
    /// Whether new spending is stopped.
    pub frozen: bool,
    /// The hash of the request that opened it.
    pub fingerprint: u64,
    /// Its settings.
    pub settings: AccountSettings,
    /// Usage for which no credits were found.
    pub uncollected: i128,
    /// Its budgets, by name.
    pub budgets: Vec<Budget>,
    /// Its quotas, by region.
    pub quotas: Vec<QuotaImage>,
    /// Whether the platform froze it.
    pub frozen_by_platform: bool,
}

/// One quota.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QuotaImage {
    /// The region; all regions if absent.
    pub region: Option<Region>,
    /// Its limits.
    pub quota: Quota,
}

/// The terms that grants of one bucket share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TermsImage {
    /// Lower is spent first.
    pub priority: u8,
    /// The last instant at which they can be spent.
    pub expires_at: Option<Timestamp>,
    /// Their kind.
    pub kind: GrantKind,
    /// What they may be spent on.
    pub restriction: Option<Box<Restriction>>,
}

/// One grant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GrantImage {
    /// Its name.
    pub id: GrantId,
    /// The account that has it.
    pub account: AccountNo,
    /// The bucket it lies in; `None` until it can be spent.
    pub bucket: Option<BucketNo>,
    /// Its first unit there.
    pub start: u64,
    /// How much was granted.
    pub amount: Credits,
    /// When it was issued.
    pub created_at: Timestamp,
    /// The first instant at which it can be spent.
    pub effective_at: Timestamp,
    /// The hash of the request that issued it.
    pub fingerprint: u64,
    /// Whether it was revoked.
    pub revoked: bool,
    /// The terms of its bucket, until it lies in one.
    pub pending: Option<TermsImage>,
    /// Fields that most grants do not need.
    pub details: Option<Box<GrantDetails>>,
}

/// One bucket. The grants name their buckets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BucketImage {
    /// The account that has the grants.
    pub account: AccountNo,
    /// Their terms.
    pub terms: TermsImage,
    /// Whether it has expired.
    pub expired: bool,
    /// Whether some grant on it was revoked.
    pub has_revoked: bool,
    /// The start of each run of equal units, and their state.
    pub runs: Vec<(u64, Part)>,
}

/// An answer kept for its idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AnswerImage {
    /// When it was given.
    pub at: Timestamp,
    /// The hash of tenant and key.
    pub key: u128,
    /// The hash of the request.
    pub fingerprint: u128,
    /// The answer.
    pub answer: Arc<LedgerAnswer>,
    /// The id of the request that was refused; zero if it was not.
    pub request: u128,
}

/// Why an image is not the image of any ledger.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ImageError(pub String);

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not the image of a ledger: {}", self.0)
    }
}

impl std::error::Error for ImageError {}

impl TermsImage {
    fn of(rank: &SpendRank, restriction: Option<&Restriction>) -> TermsImage {
        TermsImage {
            priority: rank.priority,
            expires_at: rank.expires_at(),
            kind: rank.kind,
            restriction: restriction.cloned().map(Box::new),
        }
    }

    fn rank(&self) -> SpendRank {
        SpendRank::new(self.priority, self.expires_at, self.restriction.as_deref(), self.kind)
    }
}

impl Ledger {
    /// This ledger as plain data.
    pub fn image(&self) -> Image {
        Image {
            now: self.now,
            policy: self.policy,
            accounts: self.accounts.iter().map(account_image).collect(),
            grants: self.grants.iter().map(grant_image).collect(),
            buckets: self.buckets.iter().map(bucket_image).collect(),
            holds: self.holds.iter().map(|(number, hold)| (number, hold.clone())).collect(),
            free_holds: self.holds.free_places().to_vec(),
            movements: self.movements.iter().map(|(number, made)| (number, made.clone())).collect(),
            free_movements: self.movements.free_places().to_vec(),
            answers: self.answers.iter().map(answer_image).collect(),
            aging_holds: self.aging.holds.iter().copied().collect(),
            aging_movements: self.aging.movements.iter().copied().collect(),
            aging_buckets: self.aging.buckets.iter().copied().collect(),
            cells: self.cells.clone(),
            next_job: self.jobs.next,
            jobs: self.jobs.all.iter().map(|(number, job)| (*number, job.clone())).collect(),
            reviews: self.jobs.reviews.iter().map(|(tenant, next)| (*tenant, *next)).collect(),
            aging_jobs: self.aging.jobs.iter().copied().collect(),
            forgotten_until: self.aging.forgotten_until,
            forgotten_through: self.aging.forgotten_through,
            forgotten_movements: self.aging.forgotten_movements,
            old_holds: self.aging.old_holds.iter().copied().collect(),
            archived_through: self.aging.archived_through,
            recent: self.aging.recent.clone(),
            past_usage: self
                .past_usage
                .by_quarter
                .iter()
                .map(|(at, spent)| (*at, *spent))
                .collect(),
            aside: self.aside.iter().copied().collect(),
            briefings: self.briefings.iter().map(|(cell, from)| (*cell, *from)).collect(),
        }
    }
}

fn answer_image(entry: KeptEntry) -> AnswerImage {
    let KeptEntry { at, key, kept } = entry;
    let KeptAnswer { fingerprint, answer, request } = kept;
    AnswerImage { at, key, fingerprint, answer, request }
}

fn account_image(account: &Account) -> AccountImage {
    let details = account.details.as_deref();
    AccountImage {
        path: account.path.clone(),
        kind: account.kind,
        frozen: account.frozen,
        fingerprint: account.fingerprint,
        settings: details.map(|details| details.settings.clone()).unwrap_or_default(),
        uncollected: account.uncollected(),
        budgets: account.budgets().to_vec(),
        quotas: details.map_or_else(Vec::new, |details| {
            let image = |(region, quota): &(Option<Region>, Quota)| QuotaImage {
                region: region.clone(),
                quota: quota.clone(),
            };
            details.quotas.iter().map(image).collect()
        }),
        frozen_by_platform: account.is_frozen_by_platform(),
    }
}

fn grant_image(grant: &Grant) -> GrantImage {
    let pending = grant.pending.as_deref();
    GrantImage {
        id: grant.id.clone(),
        account: grant.account,
        bucket: grant.bucket,
        start: grant.start,
        amount: grant.amount,
        created_at: grant.created_at,
        effective_at: grant.effective_at,
        fingerprint: grant.fingerprint,
        revoked: grant.revoked,
        pending: pending.map(|terms| TermsImage::of(&terms.rank, terms.restriction.as_deref())),
        details: grant.details.clone(),
    }
}

fn bucket_image(bucket: &Bucket) -> BucketImage {
    let all = Span::new(0, bucket.line.end());
    BucketImage {
        account: bucket.account,
        terms: TermsImage::of(&bucket.rank, bucket.restriction.as_deref()),
        expired: bucket.expired,
        has_revoked: bucket.has_revoked,
        runs: bucket.line.runs_in(all).map(|(run, part)| (run.start, part)).collect(),
    }
}
