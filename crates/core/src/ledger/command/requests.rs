//! The commands with many fields, and what they contain.

use super::terms::{Context, GrantKind, OnExpiry, Restriction};
use crate::credits::Credits;
use crate::ledger::credits::price::Rate;
use crate::ledger::holds::archive::{ArchivedAnswer, ArchivedHold};
use crate::ledger::jobs::ArchivedJob;
use crate::ledger::jobs::{JobTerms, Offer};
use crate::ledger::state::Movement;
use crate::name::{AccountPath, GrantId, HoldId, JobName, MovementId};
use crate::opaque::Opaque;
use crate::time::Timestamp;

/// What the archive has durably and the ledger may forget, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Forget {
    /// The position of the archive: the last record of the journal that these states contain.
    pub through: u64,
    /// Answers.
    pub answers: Vec<ArchivedAnswer>,
    /// Closed holds and charges.
    pub holds: Vec<ArchivedHold>,
    /// Closed holds of jobs that were kept for the whole retention.
    pub old_holds: Vec<ArchivedHold>,
    /// Refunds, transfers and collections.
    pub movements: Vec<Movement>,
    /// Jobs that ended before the retention.
    pub jobs: Vec<ArchivedJob>,
    /// How many closed holds and charges were examined for them. Those without a record stay, and come last now.
    pub examined_holds: u32,
    /// How many holds of jobs were examined.
    pub examined_old: u32,
    /// How many movements were examined.
    pub examined_movements: u32,
}

impl Forget {
    /// Whether there is nothing to forget.
    pub fn is_empty(&self) -> bool {
        let Forget { through: _, answers, holds, old_holds, movements, jobs, .. } = self;
        let no_record = holds.is_empty() && old_holds.is_empty() && movements.is_empty();
        answers.is_empty() && jobs.is_empty() && no_record && !self.turns()
    }

    /// Whether some of what was examined is to stay, and comes last from now on.
    pub fn turns(&self) -> bool {
        let Forget { holds, old_holds, movements, .. } = self;
        let examined = [self.examined_holds, self.examined_old, self.examined_movements];
        let records = [holds.len(), old_holds.len(), movements.len()];
        records.into_iter().zip(examined).any(|(records, examined)| records < examined as usize)
    }
}

/// What usage measured outside Bursar belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum UsageOf {
    /// A job that runs outside Bursar.
    Job(JobName),
    /// A hold.
    Hold(HoldId),
}

/// Submits a job or an array of jobs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SubmitJob {
    /// The job's name; the jobs of an array are `<id>.0`, `<id>.1`, and so on.
    pub id: JobName,
    /// The account that pays.
    pub account: AccountPath,
    /// The terms for credits and placement.
    pub terms: JobTerms,
    /// The current price of every acceptable GPU type and region.
    pub offers: Vec<Offer>,
    /// What the agent needs to start it, stored unchanged.
    pub payload: Opaque,
    /// The job as it was submitted, stored unchanged.
    pub submitted: Opaque,
    /// The name of its first hold; later ones are `<hold>.2`, `<hold>.3`, and so on. For an array
    /// `<hold>.0`, `<hold>.1`, and so on are the first ones.
    pub hold: HoldId,
    /// The number of jobs of an array.
    pub array: Option<u32>,
    /// Jobs of the tenant that must succeed first.
    pub after: Vec<JobName>,
    /// The account at or below which the caller may see jobs; the whole tenant if absent.
    pub scope: Option<AccountPath>,
}

/// Puts credits into an account.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IssueGrant {
    /// The grant's name.
    pub id: GrantId,
    /// The account that gets it.
    pub account: AccountPath,
    /// How much.
    pub amount: Credits,
    /// Where it comes from.
    pub kind: GrantKind,
    /// The first instant at which it can be spent; now if absent.
    pub effective_at: Option<Timestamp>,
    /// The last instant at which it can be spent; never expires if absent.
    pub expires_at: Option<Timestamp>,
    /// Lower is spent first.
    pub priority: u8,
    /// What it may be spent on.
    pub restriction: Option<Restriction>,
    /// The caller's own reference.
    pub reference: Option<Box<str>>,
    /// Free-form text, stored unchanged.
    pub metadata: Option<Box<str>>,
}

impl IssueGrant {
    /// The priority of a grant that names none.
    pub const DEFAULT_PRIORITY: u8 = 100;

    /// A purchase that can be spent on everything from now on and never expires.
    pub fn purchase(
        id: impl Into<GrantId>,
        account: impl Into<AccountPath>,
        amount: Credits,
    ) -> IssueGrant {
        IssueGrant {
            id: id.into(),
            account: account.into(),
            amount,
            kind: GrantKind::Purchase,
            effective_at: None,
            expires_at: None,
            priority: IssueGrant::DEFAULT_PRIORITY,
            restriction: None,
            reference: None,
            metadata: None,
        }
    }
}

/// Reserves credits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PlaceHold {
    /// The hold's name.
    pub id: HoldId,
    /// The account that spends.
    pub account: AccountPath,
    /// How much.
    pub amount: Credits,
    /// The lease without renewal; unlimited if absent (a queued job).
    pub ttl_ms: Option<i64>,
    /// What it is for.
    pub context: Context,
    /// What happens to held credits whose grant expires.
    pub on_expiry: OnExpiry,
    /// The pinned rate at which GPU time is charged.
    pub rate: Option<Rate>,
    /// The GPU time that the amount stands for, in GPU-milliseconds; counted by GPU-hour budgets.
    pub gpu_ms: u64,
    /// The caller's own reference.
    pub reference: Option<Box<str>>,
}

impl PlaceHold {
    /// A hold for any use, without an end or a rate.
    pub fn new(
        id: impl Into<HoldId>,
        account: impl Into<AccountPath>,
        amount: Credits,
    ) -> PlaceHold {
        PlaceHold {
            id: id.into(),
            account: account.into(),
            amount,
            ttl_ms: None,
            context: Context::default(),
            on_expiry: OnExpiry::default(),
            rate: None,
            gpu_ms: 0,
            reference: None,
        }
    }
}

/// Spends credits at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Charge {
    /// The charge's name.
    pub id: HoldId,
    /// The account that spends.
    pub account: AccountPath,
    /// How much.
    pub amount: Credits,
    /// Whether to charge what is spendable if that is less.
    pub allow_partial: bool,
    /// What it is for.
    pub context: Context,
    /// When the usage happened; now if absent.
    pub effective_at: Option<Timestamp>,
}

/// Returns spent credits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Refund {
    /// The refund's name.
    pub id: MovementId,
    /// The tenant in which `of` is looked up.
    pub tenant: AccountPath,
    /// The closed hold or the charge.
    pub of: RefundOf,
    /// How much; everything not yet refunded if absent.
    pub amount: Option<Credits>,
    /// Whether to re-issue returned credits that have expired.
    pub compensate: bool,
    /// Why it is made. Stored with the refund; the ledger does not keep it.
    pub note: Option<Box<MovementNote>>,
    /// Records of holds that the ledger may have forgotten. Those that are needed are restored with
    /// the refund.
    pub recalled: Vec<RecalledHold>,
}

/// How usage that was measured outside ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum UsageEnd {
    /// Nothing more is known: cancelled if that was requested, else succeeded.
    Ended,
    /// It succeeded.
    Succeeded,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// It was lost, with its node for example.
    Lost,
}

/// Reason and reference of a refund or transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MovementNote {
    /// The reason, for people.
    pub reason: Option<Box<str>>,
    /// The caller's own reference.
    pub reference: Option<Box<str>>,
}

/// The archived record of a closed hold or charge.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecalledHold {
    /// The record.
    pub record: Box<ArchivedHold>,
}

/// What a refund returns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RefundOf {
    /// A closed hold.
    Hold(HoldId),
    /// A charge.
    Charge(HoldId),
    /// A job: its holds are refunded, the newest first.
    Job(JobName),
    /// A job that the ledger has forgotten, with the names of its holds from history, the newest
    /// first.
    PastJob(JobName, Vec<HoldId>),
}

/// Moves credits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// The transfer's name.
    pub id: MovementId,
    /// The account whose own grants are drawn.
    pub from: AccountPath,
    /// The account that gets them.
    pub to: AccountPath,
    /// How much.
    pub amount: Credits,
    /// Why it is made. Stored with the transfer; the ledger does not keep it.
    pub note: Option<Box<MovementNote>>,
}
